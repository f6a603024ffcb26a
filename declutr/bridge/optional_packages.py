"""Packages that AllenNLP imports at its start, and that training and embedding do without.

Each belongs to an extra of this package. If it is installed, AllenNLP gets it as ever. If it is
not, the modules of AllenNLP that import it get a stand-in (`declutr.bridge.lending.stand_in`), and
the error at its use names the extra. `setup.py` lists the extras.
"""

import contextlib
from types import ModuleType
from typing import Any

from declutr.bridge import deferral
from declutr.bridge.lending import Layout, is_installed, stand_in
from declutr.bridge.repairs import replaces


def spacy() -> contextlib.AbstractContextManager[None]:
    """Stand in for spaCy, with which AllenNLP can tokenize, split sentences and index tokens.

    The stand-ins of the classes of its tokens are real classes, of which nothing is an instance.
    Can be removed when AllenNLP imports spaCy only where it uses it.
    """
    tokens = {"": ("load",), "tokens": ("Doc", "Token")}
    layout = {**tokens, "cli.download": ("download",), "language": ("Language",)}
    return stand_in("spacy", layout, get("spacy"))


def nltk() -> contextlib.AbstractContextManager[None]:
    """Defer the import of nltk, of which AllenNLP needs one name in an annotation, or stand in.

    Can be removed when AllenNLP imports it for type checkers only.
    """
    if is_installed("nltk"):
        return deferral.deferred("nltk")
    return stand_in("nltk", {"": ("Tree",)}, get("nltk"))


def lmdb() -> contextlib.AbstractContextManager[None]:
    """Stand in for lmdb, which only AllenNLP's `TensorCache` uses.

    Can be removed when AllenNLP imports lmdb only where it uses it.
    """
    return stand_in("lmdb", {"": ("open", "Environment")}, get("lmdb"))


def h5py() -> contextlib.AbstractContextManager[None]:
    """Stand in for h5py, which only ELMo and word vectors in HDF5 use.

    Can be removed when AllenNLP imports h5py only where it uses it.
    """
    return stand_in("h5py", {"": ("File",)}, get("hdf5"))


def tensorboard() -> contextlib.AbstractContextManager[None]:
    """Stand in for tensorboardX, which only the callback "tensorboard" uses.

    Can be removed when AllenNLP imports tensorboardX only where it uses it.
    """
    return stand_in("tensorboardX", {"": ("SummaryWriter",)}, get("tensorboard"))


def pytest() -> contextlib.AbstractContextManager[None]:
    """Stand in for pytest, which AllenNLP's helpers for tests import.

    Can be removed when `allennlp.common.testing` imports pytest only where it uses it.
    """
    return stand_in("pytest", {}, get("test"))


def cached_path() -> contextlib.AbstractContextManager[None]:
    """Stand in for cached-path, which installs and imports the clients of three clouds.

    What AllenNLP needs of it for the files of this machine is in `declutr.bridge.local_paths`.

    Can be removed when cached-path installs and imports these clients only for their URLs.
    """
    layout: Layout = {
        "": (
            *("cached_path", "is_url_or_existing_file", "filename_to_url"),
            *("resource_to_filename", "check_tarfile", "find_latest_cached"),
        ),
        "cache_file": ("CacheFile",),
        "common": ("PathOrStr",),
        "file_lock": ("FileLock",),
        "meta": ("Meta",),
    }
    if is_installed("cached_path"):
        return stand_in("cached_path", layout, get("remote"))
    from declutr.bridge import local_paths

    given = {
        "cached_path": local_paths.cached_path,
        "is_url_or_existing_file": local_paths.is_url_or_existing_file,
        "common.PathOrStr": local_paths.PathOrStr,
        "file_lock.FileLock": local_paths.FileLock,
    }
    return stand_in("cached_path", layout, get("remote"), given)


def found_without_cache(module: ModuleType) -> None:
    """Find files and folders of this machine where AllenNLP's cache folder cannot be made.

    cached-path makes that folder in the home folder, before it looks. Where it may not, as in a
    container with another user or a read-only file system, no archive could be opened.
    Can be removed when cached-path makes the folder for what it puts there.
    """

    @replaces(module)
    def cached_path(original: Any, place: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(place, *args, **kwargs)
        except OSError:
            if "://" in str(place) or kwargs.get("extract_archive") or any(args[1:]):
                raise
            from declutr.bridge import local_paths

            return str(local_paths.cached_path(place, module.CACHE_DIRECTORY))


def get(extra: str) -> str:
    """Return the sentence that says how to install an extra of this package."""
    return f"Install it: pip install 'declutr[{extra}]'."


def suggested_names(module: ModuleType) -> None:
    """Find the registered name that a misspelt one was meant to be without nltk.

    AllenNLP imports nltk for the edit distance, so that a misspelling ended with an error on nltk
    where that is not installed. Can be removed when AllenNLP computes the distance itself.
    """

    def _get_suggestion(name: str, available: list[str]) -> str | None:
        spelt = (name.replace("_", "-"), name.replace("-", "_"))
        alike = [other for other in spelt if other in available]
        return next(iter([*alike, *(other for other in available if _one_edit(name, other))]), None)

    module._get_suggestion = _get_suggestion  # type: ignore[attr-defined]


def _one_edit(a: str, b: str) -> bool:
    """Return whether one character, or the order of two neighbours, is all that differs."""
    start = _same(a, b)
    a, b = a[start:], b[start:]
    end = _same(a[::-1], b[::-1])
    a, b = a[: len(a) - end], b[: len(b) - end]
    return a != b and (max(len(a), len(b)) == 1 or (len(a) == 2 and a == b[::-1]))


def _same(a: str, b: str) -> int:
    """Return the number of characters with which both begin."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
