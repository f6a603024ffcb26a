"""Reading of the text files of data sets: encodings, lines, fields, labels and completeness."""

import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

from declutr.corpus import normalize_whitespace
from declutr.corpus.text_files import marked_encoding
from declutr.evaluation.task import BrokenData, require_file

CARE = "compare with care"
"""What notes on data sets say that are not the published ones."""
_BAD = re.compile("[\udc80-\udcff]")  # what `surrogateescape` makes of bytes that are not UTF-8
_GOOD = re.compile("[^\x00-\x7f\udc80-\udcff]")


def read_lines(path: Path, published: int | None = None, latin_1: bool = True) -> list[str]:
    """Return the lines of a text file.

    Only line feeds end a line, because some sentences contain other characters that
    `str.splitlines` would split at.

    # Parameters

    path : the file.
    published : the number of lines of the published file. If the last line has no line end, a file
        with fewer lines counts as truncated.
    latin_1 : see `read_text`.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : the file is empty, is in another encoding, or may be truncated.
    """
    text = read_text(path, latin_1)
    lines = text.removesuffix("\n").split("\n") if text else []
    if not any(line.strip() for line in lines):
        raise BrokenData(f"{path} is empty.")
    if published and len(lines) < published and not text.endswith("\n"):
        raise BrokenData(
            f"{path} ends in the middle of line {len(lines)}, expected {published} lines. If it is "
            "a download, it is incomplete: get it anew. If it is a part of the data that is meant "
            "to be one, put a line end after its last line."
        )
    return [line.removesuffix("\r") for line in lines]


def read_text(path: Path, latin_1: bool = True) -> str:
    """Return the text of a file in UTF-8, or in the encoding that its byte order mark names.

    # Parameters

    path : the file.
    latin_1 : whether the file may be in Latin-1, as files of SentEval's older tasks are. It is read
        so if none of its bytes beyond ASCII form valid UTF-8; one bad byte in a UTF-8 file
        therefore does not change the other characters.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : the file is in another encoding; the message names the line and the byte.
    """
    raw = require_file(path).read_bytes()
    marked = marked_encoding(raw)
    if marked:
        try:
            return raw.decode(marked)
        except UnicodeDecodeError as error:
            raise BrokenData(
                f"{path} begins as {marked.upper()}, but byte {error.start + 1} is not "
                f"({error.reason}). Get it anew, or convert it to UTF-8."
            ) from error
    if b"\0" in raw:
        raise BrokenData(
            f"{path}, line {raw[: raw.index(0)].count(10) + 1}: a byte 0, which text does not "
            "have. If it is UTF-16 without a byte order mark, convert it to UTF-8."
        )
    text = raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    bad = _BAD.search(text)
    if bad is None:
        return text
    if latin_1 and not _GOOD.search(text):
        return raw.decode("latin-1")
    before = text[: bad.start()]
    column = len(before.rpartition("\n")[2].encode("utf-8")) + 1
    raise BrokenData(
        f"{path}, line {before.count(chr(10)) + 1}: byte {column} (0x{ord(bad[0]) - 0xDC00:02X}) "
        f"is not UTF-8{', though other characters of the file are' if latin_1 else ''}. Mend the "
        "line, or convert the file to UTF-8."
    )


def words(text: str) -> str:
    """Return a sentence with single spaces, and a full stop for a blank one.

    Encoders expect at least one token.
    """
    return normalize_whitespace(text) or "."


def senteval_order(columns: Sequence[Sequence[str]], keys: Iterable[Any]) -> list[int]:
    """Return the order of rows by the number of words in each column, then by a key.

    Rows that agree in all of these keep their order.

    # Parameters

    columns : lists of n sentences.
    keys : n values to compare rows with equal numbers of words.

    # Returns

    n row numbers.
    """
    lengths = ([len(text.split()) for text in column] for column in columns)
    by = list(zip(*lengths, keys, strict=True))
    return sorted(range(len(by)), key=by.__getitem__)


def label_of(label: str, known: Mapping[str, int], path: Path, line: int) -> int:
    """Return the class number of a label; the file and the line, from 1, are for the error.

    # Raises

    `BrokenData` : the label is not known.
    """
    if label not in known:
        raise BrokenData(
            f"{path}, line {line}: got the label {label[:40]!r}, expected one of {sorted(known)}."
        )
    return known[label]


def fields_of(text: str, separator: str, count: int, path: Path, line: int) -> list[str]:
    """Return the fields of a line, at least `count`; file and line, from 1, are for the error.

    # Raises

    `BrokenData` : the line has fewer fields.
    """
    fields = text.split(separator)
    if len(fields) < count:
        raise BrokenData(
            f"{path}, line {line}: expected {count} fields, got {len(fields)} in {text[:60]!r}."
        )
    return fields


def require_all_labels(path: Path, labels: Sequence[int], known: Mapping[str, int]) -> None:
    """Raise `BrokenData` if a class of `known`, numbers by label, has no item in the file."""
    missing = [label for label, number in known.items() if number not in set(labels)]
    if missing:
        raise BrokenData(f"{path} has no item of class {missing}; it may have been cut off.")


def other_size(kind: str, got: int, published: int) -> list[str]:
    """Return a note if a data set does not have the published size, in a list that may be empty.

    # Parameters

    kind : what is counted, such as `sentences`.
    got, published : how many there are, and how many there should be.
    """
    if got == published:
        return []
    return [f"{got:,} {kind} where the published data has {published:,}: {CARE}"]


def other_sizes(kind: str, parts: Mapping[str, Sized], published: Mapping[str, int]) -> list[str]:
    """Return notes on the parts of a data set that do not have the published size.

    # Parameters

    kind : what is counted in a part, with `{}` for the name of the part.
    parts : the parts by name.
    published : published sizes by name.
    """
    return [
        note
        for name, part in parts.items()
        for note in other_size(kind.format(name), len(part), published[name])
    ]
