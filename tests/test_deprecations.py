"""Deprecated names work, and give one warning each, at the line that uses them."""

import importlib
import pkgutil
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import declutr
from declutr import deprecations
from declutr.deprecations import MODULES, PACKAGES, SPLIT, table
from declutr.earlier_paths import ORIGINAL, place_of
from declutr.objectives import Objective
from declutr.objectives.objective import inputs_of

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test as a process that has warned of nothing."""
    monkeypatch.setattr(deprecations, "_told", set())


def is_module(path: str) -> bool:
    place = ROOT / "declutr" / path.replace(".", "/")
    return place.with_name(f"{place.name}.py").is_file() or (place / "__init__.py").is_file()


def test_current_modules_exist() -> None:
    splits = [place for places in {**SPLIT, **PACKAGES}.values() for place in places.split()]
    places = {*MODULES.values(), *ORIGINAL.values(), *splits}
    assert [place for place in sorted(places) if not is_module(place)] == []


def test_no_earlier_path_is_one_of_today() -> None:
    modules = pkgutil.walk_packages(declutr.__path__, "declutr.")
    today = {name.removeprefix("declutr.") for _, name, _ in modules}
    assert not today & {*MODULES, *SPLIT, *ORIGINAL}
    assert not {*MODULES, *SPLIT, *PACKAGES} & {*ORIGINAL}


def test_each_row_names_both_releases() -> None:
    rows = table()
    assert len({row.old for row in rows}) == len(rows) >= 150
    for row in rows:
        since, removed = (tuple(map(int, at.split("."))) for at in (row.since, row.removed))
        assert since[0] >= 2 and removed == (since[0] + 1, 0), row


# How a name is used, the name, and what to use, behind "declutr.".
USES = {
    "import declutr.table_rows": ("table_rows", "corpus.tables"),
    "from declutr.encoder_sources import parse_spec": (
        *("encoder_sources.parse_spec", "inference.sources.parse_spec"),
    ),
    "from declutr.encoder_sources.spec import FORMS": (
        *("encoder_sources.spec", "inference.sources.spec"),
    ),
    "from declutr.sampling import SpanSampler": (
        *("sampling.SpanSampler", "sampling.spans.SpanSampler"),
    ),
    "import importlib; importlib.import_module('declutr.file_modes')": (
        *("file_modes", "system.files"),
    ),
}


@pytest.mark.slow
def test_each_use_gives_one_warning_at_its_line() -> None:
    """Use each name twice, in a new process with Python's own filters."""
    code = "\n".join(["import declutr", *USES, *USES])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = [
        f"<string>:{line}: FutureWarning: "
        f"declutr.{old} is deprecated since declutr 2.0 and goes in 3.0: use declutr.{new}."
        for line, (old, new) in enumerate(USES.values(), start=2)
    ]
    assert done.stderr.splitlines() == expected


@pytest.mark.parametrize("path", ORIGINAL)
def test_the_paths_of_the_original_package_give_no_warning(path: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = importlib.import_module(f"declutr.{path}")
        for name in ("NTXentLoss", "PairMarginMiner", "PretrainedTransformerEmbedderMLM"):
            getattr(module, name, None)
        assert declutr.DeCLUTR.__name__ == "DeCLUTR"


class NeedsIds(Objective):
    needs = ("ids",)
    takes = ("labels",)

    def forward(self, anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
        return anchors


def test_the_attributes_of_an_objective_give_a_warning_each() -> None:
    with pytest.warns(FutureWarning) as caught:
        assert inputs_of(NeedsIds()).required["ids"]
    told = "is deprecated since declutr 2.0 and goes in 3.0: use the names of the arguments of"
    for name, warning in zip(("needs", "takes"), caught, strict=True):
        assert str(warning.message) == f"{__name__}.NeedsIds.{name} {told} forward."
        assert warning.filename == __file__
    with warnings.catch_warnings(record=True) as again:
        inputs_of(NeedsIds())
    assert again == []


IMPORT = re.compile(
    r"^ *(?:import (declutr[\w.]*)|from (declutr[\w.]*) import (\([^)]*\)|.*))", re.MULTILINE
)


def used_in(code: str) -> Iterator[str]:
    """The modules of this package, and their names, that Python code imports."""
    for module, package, names in IMPORT.findall(code):
        yield module or package
        yield from (f"{package}.{name}" for name in re.findall(r"(?:^|[(,])\s*(\w+)", names))


def is_deprecated(path: str) -> bool:
    inside = path.partition(".")[2]
    package, _, name = inside.rpartition(".")
    if package == "objectives" and name in declutr.objectives.__all__:
        return False  # a function that has the name of an earlier module
    if package in PACKAGES:
        package_now = importlib.import_module(f"declutr.{package}")
        return name not in vars(package_now) and not is_module(inside)
    moved = place_of(inside) is not None or inside in SPLIT or package in SPLIT
    return moved and inside not in ORIGINAL and package not in ORIGINAL


def test_nothing_in_the_repository_uses_a_deprecated_name() -> None:
    code = "import declutr.text_codecs\nfrom declutr.sampling import (\n  spans, SpanSampler,\n)\n"
    found = [name for name in used_in(code) if is_deprecated(name)]
    assert found == ["declutr.text_codecs", "declutr.sampling.SpanSampler"]
    files = [
        path
        for folder in ("declutr", "tests", "benchmarks", "examples", "scripts", "docs")
        for suffix in ("py", "md")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
        if path.name not in ("test_public_paths.py", "test_deprecations.py")
    ]
    wrong = [
        f"{path.name}: {used}"
        for path in [*files, *ROOT.glob("*.md")]
        for used in used_in(path.read_text(encoding="utf-8"))
        if is_deprecated(used)
    ]
    assert wrong == []
