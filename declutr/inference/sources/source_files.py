"""The files of Python code that a module consists of: its own, and those of what it imports."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import declutr

_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_PACKAGES = {"site-packages", "dist-packages"}  # those of a user or of the system lie elsewhere
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in _PATHS]
_INSTALLED.append(Path(declutr.__file__).resolve().parent)  # wherever it lies


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
