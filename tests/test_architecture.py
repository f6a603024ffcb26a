"""Imports point one way, and the light parts stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import declutr

PACKAGE = Path(declutr.__file__).parent

# From the ground up. A room may import from those before it, and not from those after it.
ROOMS = [
    *("_version", "deprecations", "earlier_paths", "bridge"),
    *("system", "recipes", "environment"),
    "components",  # names alone; what they stand for is imported later
    *("sampling", "objectives", "corpus", "transformer", "archives", "modules", "data"),
    *("embedding_store", "evaluation", "models", "task_models", "pretrained_parts", "training"),
    *("inference", "search", "export", "static_vectors"),
    "plugin",
    *("runs", "commands"),
    *("quickstart", "__init__", "__main__"),
]
WITHOUT_ALLENNLP = {
    *("system", "recipes", "environment", "sampling", "corpus", "transformer"),
    *("embedding_store", "evaluation"),
}


@cache
def modules() -> dict[str, Path]:
    """All modules, by dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """The name in `ROOMS` of a module."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def imported(module: str) -> frozenset[str]:
    """Dotted names of what a module imports: inside functions and for type checkers, too."""
    names = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, (
                f"{module}: relative imports hide where things are"
            )
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules() else node.module for name in inside}
    return frozenset(names)


def imported_here(module: str) -> Iterator[str]:
    """Modules of this package that a module imports."""
    return (name for name in imported(module) if name in modules() and name != module)


def test_every_module_is_in_a_room() -> None:
    assert {room(module) for module in modules()} == set(ROOMS)


def test_rooms_import_one_way() -> None:
    place = {name: number for number, name in enumerate(ROOMS)}
    wrong = [
        f"{module} imports {name}"
        for module in modules()
        if module != "declutr"  # which gives Encoder when it is asked for
        for name in imported_here(module)
        if place[room(name)] > place[room(module)] and name != "declutr"
    ]
    assert wrong == []


def test_no_imports_go_in_circles() -> None:
    done: set[str] = set()
    path: list[str] = []

    def follow(module: str) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for name in sorted(imported_here(module)):
            follow(name)
        path.pop()
        done.add(module)

    for module in sorted(modules()):
        follow(module)
    assert len(done) == len(modules())


def test_the_pure_rooms_know_no_allennlp() -> None:
    wrong = [
        module
        for module in modules()
        if room(module) in WITHOUT_ALLENNLP
        and any(name.split(".")[0] == "allennlp" for name in imported(module))
    ]
    assert wrong == []


def test_objectives_never_see_a_model_or_tokens() -> None:
    for module in modules():
        if room(module) == "objectives":
            assert not any(name.startswith("transformers") for name in imported(module)), module
            rooms = {room(name) for name in imported_here(module)}
            assert rooms <= {"objectives", "components", "system", "bridge", "deprecations"}, module


def test_only_one_module_uses_torch_distributed() -> None:
    """What processes say to each other is in one place; torch's way of splitting a model is in
    another, which says nothing itself."""
    used = {
        module: {name for name in imported(module) if name.startswith("torch.distributed")}
        for module in modules()
        if room(module) != "bridge"
    }
    talking = {module for module, names in used.items() if "torch.distributed" in names}
    assert talking == {"declutr.system.distributed"}
    splitting = {module for module, names in used.items() if names} - talking
    assert splitting == {"declutr.training.sharding"}


@pytest.mark.slow
def test_importing_declutr_is_cheap(checkpoint: Path) -> None:
    """And a transformer is opened, and embeds, without what only training needs."""
    code = (
        "import declutr, sys; heavy = {'torch', 'allennlp', 'transformers', 'numpy'}\n"
        "heavy |= {'logging', 'importlib.metadata', 'inspect'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        f"assert declutr.Encoder({str(checkpoint)!r}, device='cpu')(['a', 'b c']).any()\n"
        "heavy = {'allennlp', 'spacy', 'nltk', 'datasets', 'tensorboardX', 'boto3'}\n"
        "heavy |= {'pytorch_metric_learning', 'declutr.models.declutr', 'declutr.objectives'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]
