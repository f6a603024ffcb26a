"""Files of any format as rows, sentences, and token ids on disk, without AllenNLP."""

import os
import re
from collections.abc import Sequence

from declutr.earlier_paths import names_of

PathLike = str | os.PathLike
Paths = PathLike | Sequence[PathLike]
_ENCODING_ERRORS = ("strict", "replace")
_SURROGATE = re.compile("[\ud800-\udfff]")

__getattr__ = names_of(__name__)  # this package was a module up to release 1.8


class SourceError(ValueError):
    """Raised for a corpus that cannot be read; names the file, the row and a remedy."""


def normalize_whitespace(text: str) -> str:
    r"""Return `text` with single spaces for runs of white space, and none at its ends.

    >>> normalize_whitespace(" One  text\t of\nthree lines ")
    'One text of three lines'
    """
    return " ".join(text.split())


def without_surrogates(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates, as JSON holds for half of an emoji.

    Other programs write them for undecodable bytes. No tokenizer takes them.
    """
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def require_encoding_errors(encoding_errors: str) -> None:
    """Raise `SourceError` unless the argument is `"strict"` or `"replace"`."""
    if encoding_errors not in _ENCODING_ERRORS:
        raise SourceError(
            f"Unknown encoding_errors '{encoding_errors}': expected one of {_ENCODING_ERRORS}."
        )
