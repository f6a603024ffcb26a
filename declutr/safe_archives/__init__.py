"""Archives of others: loading one runs none of its code and touches no file outside it.

Three walls. Extraction (`extraction`) writes regular files into a folder of its own. The content is
looked at before anything is built from it (`content`): plain JSON, tensors, text; no code of
others, no other archives, no files outside. And while AllenNLP builds, it imports nothing that a
name asks for (`registered_names`). `trust` opens the second and the third for what one made
oneself, except that tensors are tensors; the first stands.

Registered classes are trusted with the arguments they take: a plugin of one's own that runs what an
argument says does so for any archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from allennlp.common.file_utils import cached_path
from allennlp.models.archival import Archive, load_archive

from declutr.safe_archives.content import check_content
from declutr.safe_archives.extraction import extract, extracted
from declutr.safe_archives.refusal import UnsafeArchive
from declutr.safe_archives.registered_names import registered_names_only

__all__ = [
    "UnsafeArchive",
    "check_content",
    "extract",
    "extracted",
    "opened_archive",
    "registered_names_only",
    "safely_loaded_archive",
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
    `tarfile.ReadError` : a file that is no gzipped tar.
    `FileNotFoundError` : there is nothing, or no configuration.
    """
    name = os.fspath(place)
    path = Path(cached_path(name)) if "://" in name else Path(name).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"No model at '{name}'. Expected the folder of a trained model or its model.tar.gz."
        )
    with ExitStack() as stack:
        folder = path if path.is_dir() else stack.enter_context(extracted(path))
        try:
            check_content(folder, trust, everything=folder != path)
        except UnsafeArchive as error:
            raise UnsafeArchive(f"{name}: {error}") from None
        if not trust:
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
    changes = overrides if isinstance(overrides, str) else dict(overrides or {})
    with opened_archive(place, trust) as folder:
        return load_archive(folder, cuda_device=cuda_device, overrides=changes)
