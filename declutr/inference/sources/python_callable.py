"""A function of the user's own, and the files of Python code that it consists of."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sysconfig
import uuid
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import declutr
from declutr.inference.fingerprints import files_fingerprint
from declutr.inference.sources.source import EncoderError, NamedEncoder
from declutr.system.imports import NoSuchModule, module_from_here

_known: dict[str, tuple[ModuleSpec | None, str]] = {}
"""By module, what it was loaded from and the fingerprint of its files when it was first used."""

_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_PACKAGES = {"site-packages", "dist-packages"}  # those of a user or of the system lie elsewhere
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in _PATHS]
_INSTALLED.append(Path(declutr.__file__).resolve().parent)  # wherever it lies


class PythonCallable(NamedEncoder):
    """Calls `module:function` with a list of strings; an array or tensor `(n, d)` comes back.

    The module may lie in the current folder. A fingerprint knows of the function's name, of the
    module's file and of those that it imports, installed packages left out. It cannot know of files
    that the function reads or of settings from elsewhere: the function, or the object it is a
    method of, may have an attribute `fingerprint`, a string that stands for them.

    # Parameters

    place : `package.module:function`, or `package.module:object.method`.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        module, _, self._function = place.partition(":")
        if not module or not self._function:
            raise EncoderError(f"Expected MODULE:FUNCTION, got {place!r}.")
        self._encode, owner, marks = _imported(module, self._function)
        self._content = [_code(owner), *marks]

    def embed(self, sentences: list[str]) -> np.ndarray:
        vectors: Any = self._encode(sentences)
        if hasattr(vectors, "detach"):  # a tensor, on some device and of some precision
            vectors = vectors.detach().float().cpu().numpy()
        return np.asarray(vectors)

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "Python callable",
            "place": self._place,
            "function": self._function,
            "content": self._content,
        }


def _imported(module: str, attribute: str) -> tuple[Callable[[list[str]], Any], Any, list[str]]:
    """The callable, its module, and the attributes `fingerprint` on the way from there."""
    try:
        owner = module_from_here(module, f"'{module}:{attribute}'")
    except NoSuchModule as error:
        raise EncoderError(str(error)) from error
    found: Any = owner
    marks = []
    for name in attribute.split("."):
        if not hasattr(found, name):
            file = getattr(owner, "__file__", None)
            raise EncoderError(f"{module!r} ({file}) has no {attribute!r}.")
        found = getattr(found, name)
        marks.append(str(getattr(found, "fingerprint", "")))
    if inspect.isclass(found) or not callable(found):
        got = f"an object of type {type(found).__name__}"
        if inspect.isclass(found):
            got = f"the class {found.__name__}"
        raise EncoderError(
            f"Expected '{module}:{attribute}' to be a function of a list of strings, got {got}."
        )
    return found, owner, marks


def _code(module: ModuleType) -> str | None:
    """A fingerprint of the code that runs: something new each time where that is not the files'."""
    file = getattr(module, "__file__", None)
    if not file:
        return None
    now = files_fingerprint(source_files(module.__name__, Path(file)))
    spec = module.__spec__  # another object after a reload
    loaded, first = _known.setdefault(module.__name__, (spec, now))
    if loaded is not spec:
        _known[module.__name__] = spec, now
    elif first != now:  # the files have changed since, what was imported from them has not
        return uuid.uuid4().hex
    return now


def source_files(module: str, file: Path) -> list[Path]:
    """`file`, and those of its packages and of all it imports, directly or not, in order of name.

    The standard library and installed packages are left out, but for the package that the module
    itself is of. Imports inside functions count; no code is run to find them.

    # Parameters

    module : the dotted name of the module.
    file : where it was imported from.
    """
    found = {module: file}
    waiting = [(module, file)]
    while waiting:
        name, path = waiting.pop()
        if path.suffix != ".py":  # compiled
            continue
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported, spec in _specs({name, *_imported_names(path, package)}):
            origin = Path(spec.origin or "")
            if imported not in found and origin.is_file() and _is_own(origin, imported, module):
                found[imported] = origin
                waiting.append((imported, origin))
    return [found[name] for name in sorted(found)]


def _imported_names(file: Path, package: str) -> set[str]:
    """Dotted names that a file imports. `from a import b` gives `a.b`, a module or not."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # changed since it was imported
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            try:
                start = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # beyond the package: the import itself fails
                continue
            names |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
    return names


def _specs(names: Iterable[str]) -> Iterator[tuple[str, ModuleSpec]]:
    """Of every name and of the packages it lies in, as far as there are such modules."""
    for name in names:
        first, *others = name.split(".")
        try:
            spec = importlib.util.find_spec(first)
        except ValueError:  # a module that was made by hand
            continue
        while spec is not None:
            yield spec.name, spec
            if not others:
                break
            where = list(spec.submodule_search_locations or ())
            spec = _spec_within(where, f"{spec.name}.{others.pop(0)}")


def _spec_within(folders: list[str], name: str) -> ModuleSpec | None:
    """Of a module in folders of its package, which need not have been imported."""
    try:
        return PathFinder.find_spec(name, folders)
    except KeyError:  # a package without `__init__.py`, which asks `sys.modules` for its parent
        spec = ModuleSpec(name, None, is_package=True)
        places = [Path(folder, name.rpartition(".")[2]) for folder in folders]
        spec.submodule_search_locations = [str(place) for place in places if place.is_dir()]
        return spec


def _is_own(file: Path, name: str, module: str) -> bool:
    """Whether a file is the user's, or of the same package as `module`."""
    if name.partition(".")[0] == module.partition(".")[0]:
        return True
    place = file.resolve()
    return _PACKAGES.isdisjoint(place.parts) and not any(f in place.parents for f in _INSTALLED)
