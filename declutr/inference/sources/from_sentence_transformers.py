"""A model of the sentence-transformers package, which stays optional."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from declutr.inference.devices import chosen_device
from declutr.inference.fingerprints import code_fingerprint, model_fingerprint
from declutr.inference.prompts import Prompts
from declutr.inference.sources.source import EncoderError, EncoderSource


class FromSentenceTransformers(EncoderSource):
    """Embeds as `SentenceTransformer.encode` does, with the model's own pooling and prompts.

    # Parameters

    place : a name on the hub, or a folder.
    revision : branch, tag or commit, for a name on the hub.
    prompt_name : of the model's prompt that is put before sentences; by default its default.
    batch_size, device, max_length : as for `open_encoder`.
    """

    def __init__(
        self,
        place: str,
        *,
        revision: str | None = None,
        prompt_name: str | None = None,
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
        # Not in releases before 2.4.
        named: dict[str, str] = dict(getattr(self._model, "prompts", None) or {})
        self.prompts = Prompts(named, getattr(self._model, "default_prompt_name", None))
        self.prompt = self.prompts.chosen(None, prompt_name, place)
        longest = self._model.max_seq_length
        if max_length and longest:
            self._model.max_seq_length = longest = min(max_length, longest)
        self._max_length = longest
        self._content = model_fingerprint(place, revision)
        # The package runs the code of modules in a folder without being asked to trust it.
        self._code = code_fingerprint(Path(place))
        self._truncated = 0

    @property
    def dimension(self) -> int | None:
        # Renamed in sentence-transformers 5.
        name = "get_embedding_dimension"
        ask = getattr(self._model, name, None) or self._model.get_sentence_embedding_dimension
        return ask()

    def __call__(self, sentences: list[str], prompt: str | None = None) -> np.ndarray:
        prompt = self.prompt if prompt is None else prompt
        before = self.prompts.default if prompt is None else prompt
        self._truncated += self._too_long([before + text for text in sentences])
        chosen: dict[str, Any] = {} if prompt is None else {"prompt": prompt}
        return self._model.encode(
            sentences,
            **chosen,
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
            **({"code": self._code} if self._code else {}),
            **({} if self.prompt is None else {"prompt": self.prompt}),
        }

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._truncated}

    def _too_long(self, sentences: list[str]) -> int:
        """How many of them, their prompts included, are cut."""
        tokenizer = getattr(self._model, "tokenizer", None)
        if not self._max_length or not callable(tokenizer):  # words or characters, without a limit
            return 0
        ids = tokenizer(sentences, verbose=False, return_attention_mask=False)["input_ids"]
        return sum(len(tokens) > self._max_length for tokens in ids)
