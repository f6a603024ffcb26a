"""The encoding of a text file, told from its first bytes; nothing is opened here."""

from __future__ import annotations

import codecs

HEAD = 4096
"""How many bytes are enough to tell; fewer do where a file has no more."""

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NUL_SHARE = 10  # one byte in so many: far more than stray ones in text, far fewer than in UTF-16


def marked_encoding(head: bytes) -> str | None:
    """`"utf-16"` or `"utf-32"`, if a byte order mark at the begin says so."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


class NoKnownEncoding(ValueError):
    """Bytes that are neither UTF-8 nor marked as UTF-16 or UTF-32: the message says what to do."""


def encoding_of(head: bytes) -> str:
    """The Python codec of a text: `"utf-8-sig"`, `"utf-16"` or `"utf-32"`; each drops the mark.

    A byte order mark decides. Without one it is UTF-8, whether valid or not, unless it is full of
    NUL bytes, as UTF-16 is.

    # Parameters

    head : the first `HEAD` bytes, decompressed.

    # Raises

    `NoKnownEncoding` : many NUL bytes and no mark.
    """
    marked = marked_encoding(head)
    if marked:
        return marked
    nuls = head.count(0)
    if nuls > 1 and (nuls * _NUL_SHARE >= len(head) or not _begins_as_utf8(head)):
        raise NoKnownEncoding(
            f"has {nuls} NUL bytes among its first {len(head)} and no byte order mark: it is "
            "UTF-16 or UTF-32, or no text at all. Expected UTF-8: convert it with "
            "`iconv -f UTF-16LE -t UTF-8 OLD > NEW` (or UTF-16BE, UTF-32LE, UTF-32BE)."
        )
    return "utf-8-sig"


def _begins_as_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True
