"""What every encoder gives: embeddings, who it is, and what it had to leave out."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from declutr.corpus.text_inputs import as_texts, require_rows
from declutr.inference.errors import EncoderError
from declutr.inference.prompts import Prompts

__all__ = ["EncoderError", "EncoderSource", "NamedEncoder"]


class EncoderSource(ABC):
    """Where embeddings come from."""

    prompts = Prompts()
    """Those of the model. A source that has some takes `prompt=` where it is called."""

    prompt: str | None = None
    """What it was opened to put before sentences."""

    @abstractmethod
    def __call__(self, sentences: list[str]) -> np.ndarray:
        """The embeddings `(n, d)` of n > 0 sentences, in their order."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """The width d, or `None` if only an embedding will tell."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """`kind`, `place` and everything the embeddings depend on, as plain JSON values."""

    def counts(self) -> dict[str, int]:
        """What was cut or not known, so far."""
        return {}


class NamedEncoder:
    """A callable `list[str] -> (n, d)` with a name.

    # Parameters

    name : for tables.
    spec : the text it was opened by.
    source : what embeds.
    """

    def __init__(self, name: str, spec: str, source: EncoderSource) -> None:
        self.name, self.spec = name, spec
        self._source = source
        self._dimension = source.dimension

    def __repr__(self) -> str:
        return f"NamedEncoder({self.name!r}, {self.spec!r})"

    @property
    def dimension(self) -> int | None:
        """The width d; `None` for a Python callable that was not called yet."""
        return self._dimension

    @property
    def prompts(self) -> Prompts:
        """What the model wants put before texts; nothing, for what is not a transformer."""
        return self._source.prompts

    @property
    def prompt(self) -> str | None:
        """What it was opened to put before sentences; `None` leaves that to the model's default."""
        return self._source.prompt

    def __call__(self, sentences: Sequence[str], *, prompt: str | None = None) -> np.ndarray:
        """The embeddings `(n, d)`, float32, in the order of `sentences`; blank ones have one too.

        # Parameters

        prompt : what is put before each, where the source takes prompts; by default what it was
            opened with.

        # Raises

        `TypeError` : something that is not a list of strings.
        `EncoderError` : the encoder gave another shape.
        """
        texts = _strings(sentences)
        if not texts:
            return np.empty((0, self._dimension or 0), dtype=np.float32)
        source: Any = self._source
        given = source(texts) if prompt is None else source(texts, prompt=prompt)
        try:
            vectors = np.asarray(given, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise EncoderError(
                f"{self.name}: expected numbers of shape ({len(texts)}, d), got "
                f"{type(given).__name__}: {error}"
            ) from error
        expected = (len(texts), self._dimension or "d")
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise EncoderError(
                f"{self.name}: expected embeddings of shape {expected}, got {vectors.shape}."
            )
        if self._dimension not in (None, vectors.shape[1]):
            raise EncoderError(
                f"{self.name}: expected embeddings of shape {expected} as before, got "
                f"{vectors.shape}."
            )
        self._dimension = vectors.shape[1]
        return vectors

    def describe(self) -> dict[str, Any]:
        """Who it is, as JSON values: `kind`, `place`, `dimension`, its settings, `fingerprint`.

        The fingerprint tells whether embeddings can have changed since: it covers the settings and
        the content of the files the encoder was read from, and not where they lie.
        """
        own = self._source.describe()
        covered = {key: value for key, value in own.items() if key != "place"}
        text = json.dumps(covered, sort_keys=True)
        return {
            **own,
            "dimension": self._dimension,
            "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:32],
        }

    def counts(self) -> dict[str, int]:
        """What was cut (`truncated_texts`) or not known (`unknown_words` of `words`) so far."""
        return self._source.counts()


def _strings(sentences: Sequence[str]) -> list[str]:
    require_rows(sentences)  # a single string is most often a mistake here
    return as_texts(sentences)
