"""Archives of others: loading one runs none of its code and touches no file outside it.

Three walls. Extraction (`extraction`) writes regular files into a folder of its own. The content is
looked at before anything is built from it (`content`): plain JSON, tensors, text; no code of
others, no other archives, no files outside. And while AllenNLP builds, it imports nothing that a
name asks for (`registered_names`), and no more than there are weights for (`bounded_building`).
`trust` opens the second and the third for what one made oneself, except that tensors are tensors;
the first stands. A transformer alone is looked at in the same way (`transformer_files`).

Registered classes are trusted with the arguments they take: a plugin of one's own that runs what an
argument says does so for any archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.archives.layout import weights_of
from declutr.archives.places import is_transformer, local_place, require_model
from declutr.archives.refusal import BrokenArchive, UnsafeArchive
from declutr.archives.safety.bounded_building import parameters_in_proportion
from declutr.archives.safety.content import check_content
from declutr.archives.safety.extraction import extract, extracted
from declutr.archives.safety.registered_names import registered_names_only
from declutr.archives.safety.transformer_files import check_transformer, weights_bytes

if TYPE_CHECKING:  # looking at a transformer needs no AllenNLP, which takes seconds
    from allennlp.models.archival import Archive

__all__ = [
    "BrokenArchive",
    "UnsafeArchive",
    "check_content",
    "check_transformer",
    "extract",
    "extracted",
    "is_transformer",
    "opened_archive",
    "parameters_in_proportion",
    "registered_names_only",
    "safely_loaded_archive",
    "weights_bytes",
    "weights_of",
]


@contextmanager
def opened_archive(place: str | os.PathLike, trust: bool = False) -> Iterator[Path]:
    """The folder of a model whose content has been checked; AllenNLP may build from it inside.

    A `model.tar.gz` is extracted into a temporary folder, which is gone on exit: what is read from
    it must have been read by then. A folder is used as it is.

    # Parameters

    place : a serialization folder, an archive, or a URL of one.
    trust : allow Jsonnet, types that are imported, other archives and remote code.

    # Raises

    `UnsafeArchive` : it is refused; the message says why. Inside, AllenNLP raises it for a name
        that it would have to import.
    `BrokenArchive` : a file that is no gzipped tar, damaged, or cut off.
    `declutr.archives.places.NoModel` : there is nothing, or something else.
    """
    name = os.fspath(place)
    path = local_place(name).expanduser()
    require_model(path, name)
    with ExitStack() as stack:
        try:
            folder = path if path.is_dir() else stack.enter_context(extracted(path))
        except (BrokenArchive, UnsafeArchive) as error:  # by the name it was given
            raise type(error)(str(error).replace(str(path), name)) from error.__cause__
        require_model(folder, name)
        try:
            check_content(folder, trust, everything=folder != path)
        except (BrokenArchive, UnsafeArchive) as error:
            raise type(error)(f"{name}: {error}") from None
        if not trust:
            weights = weights_of(folder)
            stack.enter_context(parameters_in_proportion(weights.stat().st_size if weights else 0))
            stack.enter_context(registered_names_only())
        yield folder


def safely_loaded_archive(
    place: str | os.PathLike,
    *,
    cuda_device: int = -1,
    overrides: str | Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Archive:
    """AllenNLP's `Archive` of a model that others may have made: see `opened_archive`.

    # Parameters

    place, trust : as for `opened_archive`.
    cuda_device : where the model goes; -1 is the CPU.
    overrides : keys of the configuration to change, from the caller and not from the archive.

    # Raises

    As `opened_archive` does.
    """
    from allennlp.models.archival import load_archive

    changes = overrides if isinstance(overrides, str) else dict(overrides or {})
    with opened_archive(place, trust) as folder:
        return load_archive(folder, cuda_device=cuda_device, overrides=changes)
