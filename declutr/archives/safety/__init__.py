"""Safe loading of untrusted archives: none of their code runs, and no file outside is touched.

There are three barriers:

1. Extraction (`extraction`) writes nothing but regular files and folders into a folder of its own.
2. `check_content` inspects the content before anything is built from it. It accepts plain JSON,
   tensors and text, and refuses code, references to other archives, and files outside.
3. While AllenNLP builds a model (`building`), it imports nothing for the sake of a name, and builds
   no more parameters than the weights account for.

`trust` lifts the second and the third for archives that the user made, except that weight files
must always hold nothing but tensors; it never lifts the first. A transformer without an archive is
inspected in the same way (`check_transformer`).

Registered classes are trusted with the arguments they take. A plugin of the user that executes an
argument therefore does so for every archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.archives import (
    CONFIG,
    TRUST,
    BrokenArchive,
    UnsafeArchive,
    local_place,
    require_model,
    weights_of,
)
from declutr.archives.safety.building import (
    is_untrusted,
    parameters_in_proportion,
    registered_names_only,
)
from declutr.archives.safety.content import check_content
from declutr.archives.safety.files import check_no_pickle, check_transformer
from declutr.archives.safety.overrides import Overrides, names_in_overrides

__all__ = [
    "BrokenArchive",
    "UnsafeArchive",
    "check_content",
    "check_transformer",
    "loaded_by_rules",
    "opened_archive",
    "parameters_in_proportion",
    "registered_names_only",
    "safely_loaded_archive",
]

if TYPE_CHECKING:  # Inspecting a transformer needs no AllenNLP, whose import takes seconds.
    from allennlp.models.archival import Archive


def __getattr__(name: str) -> Any:
    """Return a name of `declutr.archives.safety.extraction`, which a folder needs none of."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.extraction"), name)


# The folder of the archive that this thread or task has open, and whether it is trusted.
_opened: ContextVar[tuple[Path, bool] | None] = ContextVar("opened", default=None)


@contextmanager
def opened_archive(
    place: str | os.PathLike,
    trust: bool = False,
    *,
    overrides: Overrides = None,
    weights_file: str | os.PathLike | None = None,
    evaluation: bool = False,
) -> Iterator[Path]:
    """Return a context with a folder of checked content, from which AllenNLP may build a model.

    A `model.tar.gz` is extracted into a temporary folder that is deleted on exit, so everything has
    to be read inside the context. A folder is used in place.

    # Parameters

    place : a serialization directory, an archive, or the URL of one.
    trust : whether to allow Jsonnet, types that must be imported, other archives, remote code, and
        files of any size that there is room for.
    overrides : the changes of the configuration that the caller will build with, and vouches for:
        what they set is not judged, and types in them may be imported.
    weights_file : weights to be loaded instead of those in the archive.
    evaluation : whether to check what is built after loading, too: the data loaders and the
        evaluator.

    # Raises

    `UnsafeArchive` : if the archive is refused; the message says why. Inside the context, AllenNLP
        raises it for a name that it would have to import.
    `BrokenArchive` : if a file is not a gzipped tar file, is damaged, or is truncated.
    `declutr.archives.NoModel` : if there is no model at `place`.
    """
    name = os.fspath(place)
    path = local_place(name)
    require_model(path, name)
    with ExitStack() as stack:
        try:
            folder = path if path.is_dir() else stack.enter_context(_extracted(path, trust))
        # Messages name the local copy of a download, which means nothing to the user.
        except (BrokenArchive, UnsafeArchive) as error:
            raise type(error)(str(error).replace(str(path), name)) from error.__cause__
        require_model(folder, name)
        everything = folder != path
        try:
            check_content(folder, trust, everything, overrides=overrides, evaluation=evaluation)
        except (BrokenArchive, UnsafeArchive) as error:
            raise type(error)(f"{name}: {error}") from None
        weights = weights_of(folder)
        if weights_file:
            weights = Path(weights_file)
            check_no_pickle(weights, str(weights_file))
        if not trust:
            names = names_in_overrides(folder / CONFIG, overrides)
            stack.enter_context(parameters_in_proportion(weights.stat().st_size if weights else 0))
            stack.enter_context(registered_names_only(names))
        stack.callback(_opened.reset, _opened.set((folder, trust)))
        yield folder


def _extracted(archive: Path, trust: bool) -> AbstractContextManager[Path]:
    from declutr.archives.safety.extraction import extracted  # not needed for a folder

    return extracted(archive, trust)


def safely_loaded_archive(
    place: str | os.PathLike,
    *,
    cuda_device: int = -1,
    overrides: Overrides = None,
    trust: bool = False,
) -> Archive:
    """Load an untrusted archive and return AllenNLP's `Archive` of it.

    # Parameters

    place : a serialization directory, an archive, or the URL of one.
    cuda_device : the GPU to load the model to; -1 is the CPU.
    overrides : changes of the configuration, as JSON or a dictionary; the caller vouches for them.
    trust : whether to allow Jsonnet, types that must be imported, other archives, and remote code.

    # Raises

    `UnsafeArchive`, `BrokenArchive`, `declutr.archives.NoModel` : under the conditions of
        `opened_archive`.
    """
    from allennlp.models.archival import load_archive

    changes = overrides if isinstance(overrides, str) else dict(overrides or {})
    with opened_archive(place, trust, overrides=changes) as folder:
        return load_archive(folder, cuda_device=cuda_device, overrides=changes)


def loaded_by_rules(
    load: Callable[..., Archive],
    place: str | os.PathLike,
    *,
    trust: bool,
    cuda_device: int = -1,
    overrides: Overrides = "",
    weights_file: str | None = None,
) -> Archive:
    """Call AllenNLP's `load_archive`; on checked content only, unless the archive is trusted.

    An archive that is open already (`opened_archive`) was checked then. While objects are built
    from an untrusted one, no other archive is loaded.

    # Parameters

    load : the function `load_archive`.
    place, cuda_device, overrides, weights_file : its arguments.
    trust : whether to leave an archive that is not open already to AllenNLP alone.

    # Raises

    `UnsafeArchive`, `BrokenArchive`, `declutr.archives.NoModel` : under the conditions of
        `opened_archive`.
    """
    others = {"cuda_device": cuda_device, "overrides": overrides, "weights_file": weights_file}
    folder, trusted = _opened.get() or (None, trust)
    if folder == Path(place):
        return load(place, **others)
    if is_untrusted():
        raise UnsafeArchive(f"{CONFIG}: it loads another archive, '{place}'. {TRUST}")
    if trusted:
        return load(place, **others)
    with opened_archive(
        place, overrides=overrides, weights_file=weights_file, evaluation=True
    ) as checked:
        return load(checked, **others)
