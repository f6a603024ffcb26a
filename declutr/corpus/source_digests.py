"""Digests of the files of a source of documents, by which a run tells that its data changed."""

import os
from pathlib import Path

from declutr.corpus import PathLike, Paths, SourceError
from declutr.corpus.file_digests import file_digests
from declutr.corpus.source_files import source_files
from declutr.system.cache_folder import default_cache_dir


def source_digests(path: Paths, cache_dir: PathLike | None = None) -> list[str] | None:
    """Return the SHA-256 of each file at `path`, in their order.

    It is `None` if they cannot be read, and for URLs, which would be asked for once more.

    # Parameters

    path : what `declutr.corpus.source_files.source_files` takes.
    cache_dir : the folder of the index of digests, by default the usual one. With that of the
        reader, files are hashed once.
    """
    places = [path] if isinstance(path, (str, os.PathLike)) else path or []
    if any("://" in os.fspath(place) for place in places):
        return None
    cache = default_cache_dir() if cache_dir is None else Path(cache_dir)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        files = source_files(path)
        digests = file_digests(files, cache)
    except (SourceError, OSError):
        return None
    return [digests[file][0] for file in files]
