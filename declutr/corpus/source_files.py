"""The files at a path: a file, a folder, a glob, a URL, or a list of these."""

import glob
import logging
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from declutr.corpus import Paths, SourceError
from declutr.corpus.compressed_files import NAMES
from declutr.corpus.text_files import file_format
from declutr.system import local_path

logger = logging.getLogger(__name__)

_DATASET_DICT = "dataset_dict.json"  # what `save_to_disk` of a DatasetDict writes beside its splits
_TOLD: set[str] = set()  # paths of which a warning has been logged


def source_files(path: Paths) -> list[Path]:
    """Return the files at `path`.

    The files of a folder or glob are sorted, so that row numbers are the same everywhere. Links in
    a folder are followed, and hidden files are left out.

    # Parameters

    path : a file, a folder (searched recursively), a glob, a URL, or a list of these.

    # Raises

    `SourceError` : if nothing is found, a folder cannot be read, or a link leads nowhere.
    """
    if path is None:
        raise SourceError("Got no path. Set train_data_path with -o, or in the recipe.")
    if not isinstance(path, (str, os.PathLike)):
        if not path:
            raise SourceError("Got an empty list of files; expected at least one.")
        return [file for part in path for file in source_files(part)]
    text = os.fspath(path)
    if not text:
        raise SourceError("Got an empty path; expected a file, a folder, a glob or a URL.")
    if "://" in text:
        file = _downloaded(text)
        NAMES[file] = PurePosixPath(urlsplit(text).path).name
        return [file]
    expanded = local_path(text)
    if expanded.is_dir():
        files = sorted(_files_within(expanded))
    elif expanded.is_fifo():
        raise SourceError(
            f"'{text}' is a pipe, which can be read only once. Write it to a file, or give a "
            f"command that takes - for standard input - and < {text}."
        )
    elif expanded.exists():
        files = [expanded]
    else:
        matches = [Path(match) for match in glob.glob(str(expanded), recursive=True)]
        files = sorted(file for file in matches if _is_file(file))
        _tell_folders(text, [place for place in matches if place.is_dir()], files)
    if not files:
        raise SourceError(
            f"Found no documents at '{text}'. Expected a file with one document a line (plain or "
            "compressed), JSON lines, CSV or TSV with a header, parquet, a folder of such files, "
            "or a glob that matches some."
        )
    if any(file.name == _DATASET_DICT for file in files):
        raise SourceError(
            f"'{text}' is a DatasetDict, as save_to_disk of datasets writes. Write a split of "
            "it as parquet: datasets.load_from_disk(folder)['train'].to_parquet('docs.parquet')."
        )
    _tell_formats(text, files)
    return files


def _downloaded(url: str) -> Path:
    try:
        from cached_path import cached_path
    except ImportError as error:
        raise SourceError(
            f"'{url}' is a URL, which needs the package cached-path, which is not installed: pip "
            "install 'declutr[remote]'. Or download the file and give its path."
        ) from error
    return Path(cached_path(url))


def _tell_folders(pattern: str, folders: list[Path], files: list[Path]) -> None:
    """Warn, once, that a glob matches folders whose files it does not match."""
    within = {folder for file in files for folder in file.parents}
    left_out = sorted(folder for folder in folders if folder not in within and _has_files(folder))
    if left_out and pattern not in _TOLD:
        _TOLD.add(pattern)
        logger.warning(
            "'%s' matches folders, such as '%s', and no file in them (%d in all): what is in them "
            "is left out. To read it as well, use ** in the glob, or name the folder in its place.",
            *(pattern, left_out[0], len(left_out)),
        )


def _tell_formats(path: str, files: list[Path]) -> None:
    """Warn, once, that there are lines of text beside records, as a README beside its data."""
    kinds = {file_format(file): file for file in reversed(files)} if len(files) > 1 else {}
    plain = kinds.pop("text", None)
    kinds.pop("tsv", None)  # some readers take fields between tabs of any file
    if plain and kinds and path not in _TOLD:
        _TOLD.add(path)
        logger.warning(
            "At '%s', each line of '%s' is read as a text, beside the records of '%s'. If it is no "
            "part of the corpus, name the files that are, as by a glob.",
            *(path, plain, next(iter(kinds.values()))),
        )


def _has_files(folder: Path) -> bool:
    try:
        return next(_files_within(folder), None) is not None
    except SourceError:  # it cannot be read, or has a link that leads nowhere
        return True


def _files_within(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[Path]:
    """Yield the files in a folder and the folders in it, links followed, hidden ones left out.

    A link to a folder that it is in is not followed. A folder inside that cannot be read, such as
    the `lost+found` of a disk, is left out with a warning.
    """
    try:
        status = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        message = f"The folder '{folder}' cannot be read: {error.strerror}."
        if not above:
            raise SourceError(message) from error
        logger.warning("%s Documents in it are left out.", message)
        return
    here = status.st_dev, status.st_ino
    if here in above:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        place = Path(entry)
        if place.is_dir():  # Unlike `entry`, it raises nothing for a link to itself.
            yield from _files_within(place, (*above, here))
        elif _is_file(place):
            yield place


def _is_file(place: Path) -> bool:
    if place.is_file():
        return True
    if place.is_symlink() and not place.exists():
        raise SourceError(
            f"'{place}' is a link to '{os.readlink(place)}', which is not there. Fetch it, or "
            "remove the link."
        )
    return False
