"""What every named encoder gives: embeddings, who it is, and what it had to leave out."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from declutr.corpus.text_inputs import as_texts, require_rows
from declutr.inference import EncoderError
from declutr.inference.text_model import Prompts

__all__ = ["EncoderError", "NamedEncoder"]


class NamedEncoder(ABC):
    """A callable `list[str] -> (n, d)` with a name.

    `open_encoder` makes one of what a text names. What is behind it is up to `embed` and `settings`
    of its class.
    """

    name = ""
    """For tables."""

    spec = ""
    """The text it was opened by."""

    dimension: int | None = None
    """The width d; `None` for a Python callable that was not called yet."""

    prompts = Prompts()
    """What the model wants put before texts; nothing, for what is not a transformer."""

    prompt: str | None = None
    """What it was opened to put before sentences; `None` leaves that to the model's default."""

    @abstractmethod
    def embed(self, sentences: list[str]) -> Any:
        """Return the embeddings `(n, d)` of n > 0 sentences, in their order.

        Where the model takes prompts, so does this: `prompt` is what a call asks for.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return `kind`, `place` and everything that embeddings depend on, as plain JSON values."""

    def counts(self) -> dict[str, int]:
        """Return what was cut (`truncated_texts`) or not known (`unknown_words` of `words`)."""
        return {}

    def __repr__(self) -> str:
        return f"NamedEncoder({self.name!r}, {self.spec!r})"

    def __call__(self, sentences: Sequence[str], *, prompt: str | None = None) -> np.ndarray:
        """Return the embeddings `(n, d)`, float32, in the order of `sentences`, blank or not.

        # Parameters

        prompt : what is put before each, where the model takes prompts; by default what it was
            opened with.

        # Raises

        `TypeError` : something that is not a list of strings.
        `EncoderError` : the encoder gave another shape.
        """
        require_rows(sentences)  # a single string is most often a mistake here
        texts = as_texts(sentences)
        if not texts:
            return np.empty((0, self.dimension or 0), dtype=np.float32)
        given = self.embed(texts, **({} if prompt is None else {"prompt": prompt}))
        try:
            vectors = np.asarray(given, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise EncoderError(
                f"{self.name}: expected numbers of shape ({len(texts)}, d), got "
                f"{type(given).__name__}: {error}"
            ) from error
        expected = (len(texts), self.dimension or "d")
        wrong = vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]
        if wrong or self.dimension not in (None, vectors.shape[1]):
            before = "" if wrong else " as before"
            raise EncoderError(
                f"{self.name}: expected embeddings of shape {expected}{before}, got "
                f"{vectors.shape}."
            )
        self.dimension = vectors.shape[1]
        return vectors

    def describe(self) -> dict[str, Any]:
        """Return who it is, as JSON values: its settings, `dimension` and `fingerprint`.

        The fingerprint tells whether embeddings can have changed since: it covers the settings and
        the content of the files the encoder was read from, and not where they lie.
        """
        own = self.settings()
        covered = {key: value for key, value in own.items() if key != "place"}
        text = json.dumps(covered, sort_keys=True)
        return {
            **own,
            "dimension": self.dimension,
            "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:32],
        }
