"""Files of any format as rows, sentences, and token ids on disk, without AllenNLP."""

import os
from collections.abc import Sequence

from declutr.earlier_paths import names_of

PathLike = str | os.PathLike
Paths = PathLike | Sequence[PathLike]
_ENCODING_ERRORS = ("strict", "replace")

__getattr__ = names_of(__name__)  # this package was a module up to release 1.8


class SourceError(ValueError):
    """Raised for a corpus that cannot be read; names the file, the row and a remedy."""


def normalize_whitespace(text: str) -> str:
    r"""Return `text` with single spaces for runs of white space, and none at its ends.

    >>> normalize_whitespace(" One  text\t of\nthree lines ")
    'One text of three lines'
    """
    return " ".join(text.split())


def require_encoding_errors(encoding_errors: str) -> None:
    """Raise `SourceError` unless the argument is `"strict"` or `"replace"`."""
    if encoding_errors not in _ENCODING_ERRORS:
        raise SourceError(
            f"Unknown encoding_errors '{encoding_errors}': expected one of {_ENCODING_ERRORS}."
        )
