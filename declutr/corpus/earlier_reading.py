"""Whether files are read today as release 1.5.0 read them, whose token stores may still be kept.

It took CSV and TSV for plain text, a lone carriage return for the end of a line, and UTF-16 for
UTF-8 that is not valid. Files without any of these have the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from declutr.corpus.text_encodings import HEAD, NoKnownEncoding, encoding_of
from declutr.corpus.text_files import TABLES, file_format, open_bytes

_BLOCK = 1 << 22


def read_as_by_1_5(files: Iterable[Path]) -> bool:
    """Whether the rows of all files are those that they had then. Reads all of a text file.

    A file that only might be read otherwise, or cannot be read, counts as different.
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
            if encoding_of(block[:HEAD]) != "utf-8-sig":
                return False
            while block:
                if block.endswith(b"\r"):
                    block += stream.read(1)
                if block.count(b"\r") != block.count(b"\r\n"):
                    return False
                block = stream.read(_BLOCK)
    except (NoKnownEncoding, OSError, EOFError):  # of decompression, too
        return False
    return True
