"""Digests of the files of a source of documents, by which a run tells that its data changed."""

from declutr.corpus import Paths, SourceError
from declutr.corpus.file_digests import file_digests
from declutr.corpus.source_files import source_files
from declutr.system.cache_folder import default_cache_dir


def source_digests(path: Paths) -> list[str] | None:
    """Return the SHA-256 of each file at `path`, in their order; `None` if they cannot be read.

    # Parameters

    path : what `declutr.corpus.source_files.source_files` takes.
    """
    cache = default_cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        files = source_files(path)
        digests = file_digests(files, cache)
    except (SourceError, OSError):
        return None
    return [digests[file][0] for file in files]
