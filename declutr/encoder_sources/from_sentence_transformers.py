"""A model of the sentence-transformers package, which stays optional."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from declutr.encoder_sources.source import EncoderError, EncoderSource
from declutr.text_models.devices import chosen_device
from declutr.text_models.file_fingerprints import model_fingerprint


class FromSentenceTransformers(EncoderSource):
    """Embeds as `SentenceTransformer.encode` does, with the model's own pooling and prompts.

    # Parameters

    place : a name on the hub, or a folder.
    revision : branch, tag or commit, for a name on the hub.
    batch_size, device, max_length : as for `open_encoder`.
    """

    def __init__(
        self,
        place: str,
        *,
        revision: str | None = None,
        batch_size: int = 64,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EncoderError(
                f"'{place}' needs the package sentence-transformers: pip install "
                "'declutr[sentence-transformers]'. Or use its transformer alone, with a pooling "
                f"of your choice: hf:{place}?pooling=mean"
            ) from error
        self._place = place
        self._batch_size = batch_size
        where = chosen_device(device)
        try:
            with torch.random.fork_rng(devices=[]):
                self._model = SentenceTransformer(place, device=str(where), revision=revision)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EncoderError(
                f"No sentence-transformers model could be loaded from '{place}': {error}"
            ) from error
        longest = self._model.max_seq_length
        if max_length and longest:
            self._model.max_seq_length = longest = min(max_length, longest)
        self._max_length = longest
        self._content = model_fingerprint(place, revision)
        self._truncated = 0

    @property
    def dimension(self) -> int | None:
        # Renamed in sentence-transformers 5.
        name = "get_embedding_dimension"
        ask = getattr(self._model, name, None) or self._model.get_sentence_embedding_dimension
        return ask()

    def __call__(self, sentences: list[str]) -> np.ndarray:
        self._truncated += self._too_long(sentences)
        return self._model.encode(
            sentences,
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
        )

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "sentence-transformers",
            "place": self._place,
            "pooling": "its own",
            "max_length": self._max_length,
            "content": self._content,
        }

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._truncated}

    def _too_long(self, sentences: list[str]) -> int:
        """How many of them are cut. Prompts, if the model adds any, are not counted."""
        tokenizer = getattr(self._model, "tokenizer", None)
        if not self._max_length or not callable(tokenizer):  # words or characters, without a limit
            return 0
        ids = tokenizer(sentences, verbose=False, return_attention_mask=False)["input_ids"]
        return sum(len(tokens) > self._max_length for tokens in ids)
