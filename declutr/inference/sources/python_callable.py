"""Encoders that call a Python function of the user, and fingerprints of its source files."""

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
from declutr.system import NoSuchModule, module_from_here, raised_as

_known: dict[str, tuple[ModuleSpec | None, str]] = {}
"""The spec that each module was loaded by, and the fingerprint of its files at its first use."""

_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
# Packages of the user and of the system lie in folders of these names outside of `_PATHS`.
_PACKAGES = {"site-packages", "dist-packages"}
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in _PATHS]
_INSTALLED.append(Path(declutr.__file__).resolve().parent)  # which may be installed in place


class PythonCallable(NamedEncoder):
    """An encoder that calls a Python function of a list of strings.

    The function returns an array or tensor `(n, d)`. Its module may lie in the current folder. The
    fingerprint covers the function's name, the file of its module and the files that this imports,
    except installed packages. It does not cover files that the function reads, or settings from
    elsewhere: for these, the function or the object that it is a method of may have an attribute
    `fingerprint`, a string that becomes part of the fingerprint. Embeddings are stored on disk only
    if there is such a string, since nothing else tells that they have changed.

    # Parameters

    place : `package.module:function`, or `package.module:object.method`.
    fingerprint : such a string, for a function that has none.

    # Raises

    `EncoderError` : there is no such module or function, or it cannot be called.
    """

    def __init__(self, place: str, *, fingerprint: str = "") -> None:
        self._place = place
        module, _, self._function = place.partition(":")
        if not module or not self._function:
            raise EncoderError(f"Expected MODULE:FUNCTION, got {place!r}.")
        self._encode, owner, marks = _imported(module, self._function)
        self._content = [_code(owner), *marks, *filter(None, [fingerprint])]
        if not any(self._content[1:]):
            self.not_stored = (
                f"'{place}' has no attribute `fingerprint`, a string that changes when its "
                f"embeddings do; give it one, or say {place}?fingerprint=TEXT"
            )

    def embed(self, sentences: list[str]) -> np.ndarray:
        vectors: Any = self._encode(sentences)
        if hasattr(vectors, "detach"):  # a tensor, on any device and of any dtype
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
    """Return the callable, its module, and the `fingerprint` of each object on the dotted path."""
    with raised_as(EncoderError, NoSuchModule):
        owner = module_from_here(module, f"'{module}:{attribute}'")
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
    """Return a fingerprint of the files of a module; `None` if it has no file.

    If the files have changed since the module was imported, they are not the code that runs: the
    result is then a new random string each time.
    """
    file = getattr(module, "__file__", None)
    if not file:
        return None
    now = files_fingerprint(source_files(module.__name__, Path(file)))
    spec = module.__spec__  # a reload replaces it, and the files count anew
    loaded, first = _known.setdefault(module.__name__, (spec, now))
    if loaded is not spec:
        _known[module.__name__] = spec, now
    elif first != now:  # the files have changed, but the imported code has not
        return uuid.uuid4().hex
    return now


def source_files(module: str, file: Path) -> list[Path]:
    """Return the source files of a module and of all modules that it imports, sorted by name.

    Indirect imports, imports inside functions and the `__init__.py` of parent packages count. The
    standard library and installed packages are left out, except the package of the module itself.
    No code is run.
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
    """Return the dotted names that a file imports; `from a import b` gives `a` and `a.b`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # the file was broken after its import
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            try:
                start = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # a relative import beyond the top package fails when it runs, too
                continue
            names |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
    return names


def _specs(names: Iterable[str]) -> Iterator[tuple[str, ModuleSpec]]:
    """Yield the name and spec of every module, after those of its packages, if they exist."""
    for name in names:
        first, *others = name.split(".")
        try:
            spec = importlib.util.find_spec(first)
        except ValueError:  # the module was made at run time, and has no spec
            continue
        while spec is not None:
            yield spec.name, spec
            if not others:
                break
            where = list(spec.submodule_search_locations or ())
            spec = _spec_within(where, f"{spec.name}.{others.pop(0)}")


def _spec_within(folders: list[str], name: str) -> ModuleSpec | None:
    """Return the spec of a module in the folders of its package, without importing the package."""
    try:
        return PathFinder.find_spec(name, folders)
    except KeyError:  # a namespace package, for which the finder needs the imported parent
        spec = ModuleSpec(name, None, is_package=True)
        places = [Path(folder, name.rpartition(".")[2]) for folder in folders]
        spec.submodule_search_locations = [str(place) for place in places if place.is_dir()]
        return spec


def _is_own(file: Path, name: str, module: str) -> bool:
    """Return whether a file is not installed, or belongs to the same package as `module`."""
    if name.partition(".")[0] == module.partition(".")[0]:
        return True
    place = file.resolve()
    return _PACKAGES.isdisjoint(place.parts) and not any(f in place.parents for f in _INSTALLED)
