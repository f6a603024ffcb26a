"""The interface of named encoders: embeddings, a description, and counts of what was left out."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from declutr._version import __version__
from declutr.corpus.text_inputs import as_texts, require_rows
from declutr.inference import EncoderError
from declutr.inference.text_model import Prompts

__all__ = ["EncoderError", "NamedEncoder"]


class NamedEncoder(ABC):
    """A callable with a name, from a list of n sentences to their embeddings `(n, d)`.

    `declutr.inference.sources.open_encoder` makes one. Subclasses implement `embed` and `settings`.
    """

    name = ""
    """The name in tables."""

    spec = ""
    """The text that it was opened by, without the label."""

    dimension: int | None = None
    """The width d of embeddings; `None` for a Python callable before its first call."""

    parameters: int | None = None
    """The number of parameters of the model; `None` if it is not known or there are none."""

    not_stored: str | None = None
    """The reason why embeddings are not stored on disk (`declutr.embedding_store`), if any."""

    prompts = Prompts()
    """The prompts of the model; encoders that are not transformers have none."""

    prompt: str | None = None
    """The prompt that the encoder was opened with; `None` leaves it to the model's default."""

    @abstractmethod
    def embed(self, sentences: list[str]) -> Any:
        """Return the embeddings `(n, d)` of n > 0 sentences, in their order.

        If the model takes prompts, this method has a keyword argument `prompt` too.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return `kind`, `place` and all else that embeddings depend on, as plain JSON values."""

    def counts(self) -> dict[str, int]:
        """Return counts by their names, such as `truncated_texts` or `unknown_words`."""
        return {}

    def computed_with(self) -> dict[str, str]:
        """Return what embeddings also depend on: releases, and the device and its precision.

        The fingerprint leaves it out, since scores hardly change; stored embeddings do not.
        """
        return {"declutr": __version__}

    def __repr__(self) -> str:
        return f"NamedEncoder({self.name!r}, {self.spec!r})"

    def __call__(self, sentences: Sequence[str], *, prompt: str | None = None) -> np.ndarray:
        """Return the embeddings `(n, d)`, float32, of n sentences in their order.

        # Parameters

        sentences : the sentences, some of which may be blank.
        prompt : the prompt to put before each sentence, if the model takes prompts; by default the
            prompt that the encoder was opened with.

        # Raises

        `TypeError` : `sentences` is not a list of strings.
        `EncoderError` : the encoder returned another shape, or something else than numbers.
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
        """Return settings, `dimension`, `parameters` and `fingerprint`, as JSON values.

        The fingerprint changes if embeddings may have changed: it covers the settings and the
        content of the files that the encoder was read from, but not where they lie.
        """
        own = self.settings()
        covered = {key: value for key, value in own.items() if key != "place"}
        text = json.dumps(covered, sort_keys=True)
        return {
            **own,
            "dimension": self.dimension,
            "parameters": self.parameters,
            "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:32],
        }
