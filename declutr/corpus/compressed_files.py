"""Compressed files, told by the suffixes of their names, and read as what they hold."""

import bz2
import io
import lzma
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from declutr.corpus import SourceError

COMPRESSIONS = (".gz", ".bz2", ".xz", ".lzma", ".zst", ".lz4", ".zip")

NAMES: dict[Path, str] = {}
"""The names of downloaded files at their URLs, which tell the format; names in the cache do not."""

_OF_SYSTEMS = re.compile(r"^__MACOSX/|(^|/)\.")
_PACKAGES = {".zst": "zstandard", ".lz4": "lz4"}
_BLOCK = 1 << 17  # bytes that are decompressed at once
_Frame = tuple[Any, ...]  # what makes the decompressor of a frame, and how much it gives at a time


def is_compressed(file: Path) -> bool:
    """Return whether the name of a file has one of the suffixes `COMPRESSIONS`."""
    return _suffix(file) in COMPRESSIONS


def uncompressed_name(file: Path) -> Path:
    """Return the name without the suffix of a compression, or that of the file in a zip archive.

    # Raises

    `SourceError` : if a zip archive holds another number of files than one.
    """
    name = Path(NAMES.get(file, file))
    if not is_compressed(file):
        return name
    if _suffix(file) == ".zip" and file.is_file():
        with _opened_zip(file) as archive:
            return Path(_only_member(archive, file).filename)
    return name.with_suffix("")


def open_bytes(file: Path) -> BinaryIO:
    """Open a file for reading bytes, decompressed.

    # Raises

    `SourceError` : if a package is not installed that decompresses the file, or a zip archive holds
        another number of files than one.
    """
    suffix = _suffix(file)
    if suffix == ".zip":
        with _opened_zip(file) as archive:  # The stream of its file keeps the archive open.
            return cast(BinaryIO, archive.open(_only_member(archive, file)))
    if (new := _frame(suffix)) is not None:
        return opened_frames(open(file, "rb"), *new)
    from fsspec.utils import infer_compression

    compression = infer_compression(f"file{suffix}") if suffix in COMPRESSIONS else None
    if compression is None and suffix in COMPRESSIONS:
        raise SourceError(
            f"'{file}' is compressed, which needs the package {_PACKAGES.get(suffix, suffix)}, "
            "which is not installed: pip install 'declutr[compression]'."
        )
    if compression is None:
        return open(file, "rb")
    return cast(BinaryIO, _Decompressed(open(file, "rb"), compression))


class _Decompressed(io.BufferedReader):
    """The decompressed bytes of a file, which is closed with them.

    fsspec's own files seek to their end, for which all of them would be decompressed twice.
    """

    def __init__(self, file: BinaryIO, compression: str) -> None:
        from fsspec.compression import compr

        self._file = file
        super().__init__(compr[compression](file, mode="rb"), _BLOCK)

    def close(self) -> None:
        super().close()
        self._file.close()


def _suffix(file: Path) -> str:
    return Path(NAMES.get(file, file)).suffix.lower()


def _opened_zip(file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise SourceError(f"'{file}' could not be read as a zip archive: {error}.") from error


def _only_member(archive: zipfile.ZipFile, file: Path) -> zipfile.ZipInfo:
    # macOS adds a folder __MACOSX and hidden files with what its file system knows besides.
    inside = (member for member in archive.infolist() if not member.is_dir())
    members = [member for member in inside if not _OF_SYSTEMS.search(member.filename)]
    if len(members) != 1:
        raise SourceError(
            f"'{file}' is a zip archive of {len(members)} files, expected one. Unpack it, and give "
            "the folder."
        )
    return members[0]


BZ2: _Frame = (bz2.BZ2Decompressor, _BLOCK)
XZ: _Frame = (lzma.LZMADecompressor, _BLOCK)


def opened_frames(file: BinaryIO, new: Callable[[], Any], *at_once: int) -> BinaryIO:
    """Return the decompressed bytes of a file of frames, as `*BZ2` or `*XZ` decompresses them.

    Streams of Python's bz2 and lzma end without an error where something follows a frame that does
    not begin another one, and those of the package zstandard where a file is cut off. fsspec's
    other choices for Zstandard, of Python 3.14 and of backports.zstd, do not.
    """
    return cast(BinaryIO, io.BufferedReader(_Frames(file, new, *at_once), _BLOCK))


def _frame(suffix: str) -> _Frame | None:
    """Return the decompressor of a format whose files `opened_frames` reads."""
    if suffix == ".bz2":
        return BZ2
    if suffix in (".xz", ".lzma"):
        return XZ
    if suffix != ".zst":
        return None
    try:
        import zstandard
    except ImportError:
        return None
    # Published dumps are packed by `zstd --long=31`, whose frames are refused otherwise.
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
    return (decompressor.decompressobj,)


class _Frames(io.RawIOBase):
    """The decompressed bytes of a file of frames one after another, with zeros between them or not.

    # Parameters

    file : the file, which is closed with this one.
    new : makes a decompressor of one frame.
    at_once : the most bytes that it gives at a time, if it takes such a limit.
    """

    def __init__(self, file: BinaryIO, new: Callable[[], Any], *at_once: int) -> None:
        self._file, self._new, self._at_once = file, new, at_once
        self._frame: Any = new()
        self._compressed, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._compressed and getattr(self._frame, "needs_input", True):
                self._compressed = self._file.read(_BLOCK)
                if not self._compressed:
                    if self._frame is not None:
                        raise EOFError("the file is cut off: its last frame has no end")
                    return 0
            if self._frame is None:
                self._compressed = self._compressed.lstrip(b"\0")
                if not self._compressed:
                    continue
                self._frame = self._new()
            self._ready = memoryview(self._frame.decompress(self._compressed, *self._at_once))
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
