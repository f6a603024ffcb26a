"""Where the store of a corpus lies: named after all that its ids depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from declutr.corpus.file_digests import Appearance
from declutr.corpus.text_files import (
    HEAD,
    TABLES,
    SourceError,
    encoding_of,
    file_format,
    open_bytes,
)
from declutr.corpus.token_store import TokenStore

LAYOUT = 1  # raise it when what a store holds changes
_READING = 2  # raise it when files are read otherwise; 1 was that of release 1.5.0
_BLOCK = 1 << 22
_AS_BY_1_5 = "read-as-by-1.5"  # a mark in a store of then: its files have the same rows today


def store_place(
    cache: Path,
    files: list[Path],
    digests: dict[Path, tuple[str, Appearance]],
    fingerprint: str,
    text_key: str,
    encoding_errors: str,
) -> Path:
    """Where the store of these files lies, or will.

    That of release 1.5.0, begun or whole, if it has the same rows.

    # Parameters

    cache : the folder of all stores.
    digests : of the content of each file.
    fingerprint : of how documents become arrays.
    text_key, encoding_errors : how the files are read.
    """
    parts: list[Any] = [LAYOUT, fingerprint, encoding_errors]
    for file in files:
        kind = file_format(file)
        parts += [kind, None if kind == "text" else text_key, digests[file][0]]
    earlier, now = cache / _hashed(parts), cache / _hashed([*parts, {"reading": _READING}])
    if TokenStore.exists(now):
        return now
    partial = Path(f"{earlier}.partial")
    begun = partial if partial.is_dir() else earlier
    if not begun.is_dir():
        return now
    if not (begun / _AS_BY_1_5).exists():
        if not read_as_by_1_5(files):
            return now
        with suppress(OSError):  # a cache that may only be read: look again the next time
            (begun / _AS_BY_1_5).touch()
    return earlier


def _hashed(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def read_as_by_1_5(files: Iterable[Path]) -> bool:
    """Whether the rows of all files are those that release 1.5.0 read. Reads all of a text file.

    It took CSV and TSV for plain text, a lone carriage return for the end of a line, and UTF-16 for
    UTF-8 that is not valid. Files without any of these have the same rows. A file that only might
    be read otherwise, or cannot be read, counts as different.
    """
    return all(map(_same_rows, dict.fromkeys(files)))


def _same_rows(file: Path) -> bool:
    kind = file_format(file)
    if kind in TABLES:
        return False
    if kind == "parquet":
        return True
    try:
        with open_bytes(file) as stream:
            block = stream.read(_BLOCK)
            if encoding_of(block[:HEAD], file) != "utf-8-sig":
                return False
            while block:
                if block.endswith(b"\r"):
                    block += stream.read(1)
                if block.count(b"\r") != block.count(b"\r\n"):
                    return False
                block = stream.read(_BLOCK)
    except (SourceError, OSError, EOFError):  # of decompression, too
        return False
    return True
