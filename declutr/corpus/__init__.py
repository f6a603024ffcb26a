"""Files of any format as rows, sentences, and token ids on disk: no AllenNLP."""

import os
from collections.abc import Sequence

from declutr.earlier_paths import names_of

PathLike = str | os.PathLike
Paths = PathLike | Sequence[PathLike]

__getattr__ = names_of("declutr.corpus.tokenized")  # it was a module, up to release 1.8


class SourceError(ValueError):
    """A corpus that cannot be read: the message names the file, the row and the way out."""


def normalize_whitespace(text: str) -> str:
    """`text` with every run of white space as one blank, none at the ends (case is kept)."""
    return " ".join(text.split())
