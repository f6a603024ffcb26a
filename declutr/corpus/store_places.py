"""The folder of a token store, named by a hash of everything that its contents depend on."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from declutr.corpus import text_files
from declutr.corpus.compressed_files import open_bytes
from declutr.corpus.token_store import TokenStore
from declutr.system.files import Appearance

LAYOUT = 1  # Increase it when the contents of a store change.
_READING = 2  # Increase it when files are read in another way; release 1.5.0 had 1.
_BLOCK = 1 << 22
# A file of this name in a store of release 1.5.0 says that its rows are the same today.
_AS_BY_1_5 = "read-as-by-1.5"


def store_place(
    cache: Path,
    files: list[Path],
    digests: dict[Path, tuple[str, Appearance]],
    fingerprint: str,
    text_key: str,
    encoding_errors: str,
) -> Path:
    """Return the folder where the token store of these files is, or will be.

    A store that release 1.5.0 began or completed is used if its rows would be the same today.

    # Parameters

    cache : the folder of all stores.
    files : the files of the corpus, in order.
    digests : the digest of each file, from `declutr.corpus.file_digests.file_digests`.
    fingerprint : identifies how documents become arrays.
    text_key, encoding_errors : how the files are read.
    """
    parts: list[Any] = [LAYOUT, fingerprint, encoding_errors]
    for file in files:
        kind = text_files.file_format(file)
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
        with suppress(OSError):  # In a read-only cache, the files are compared again next time.
            (begun / _AS_BY_1_5).touch()
    return earlier


def _hashed(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def read_as_by_1_5(files: Iterable[Path]) -> bool:
    """Return whether release 1.5.0 read the same rows from all files; text files are read whole.

    That release took CSV and TSV for plain text, a lone carriage return for a line end, and UTF-16
    for invalid UTF-8. Files without any of these have the same rows. A file in doubt, or one that
    cannot be read, counts as different.
    """
    return all(map(_same_rows, dict.fromkeys(files)))


def _same_rows(file: Path) -> bool:
    kind = text_files.file_format(file)
    if kind in text_files.TABLES:
        return False
    if kind == "parquet":
        return True
    try:
        with open_bytes(file) as stream:
            block = stream.read(_BLOCK)
            if text_files.encoding_of(block[: text_files.HEAD], file) != "utf-8-sig":
                return False
            while block:
                if block.endswith(b"\r"):
                    block += stream.read(1)
                if block.count(b"\r") != block.count(b"\r\n"):
                    return False
                block = stream.read(_BLOCK)
    except (text_files.SourceError, OSError, EOFError):  # Decompression may raise EOFError.
        return False
    return True
