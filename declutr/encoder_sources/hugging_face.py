"""A transformer of the Hugging Face hub, or in a folder, with plain pooling on top."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from transformers import logging as transformers_logging

from declutr.encoder_sources.devices import chosen_device
from declutr.encoder_sources.file_fingerprints import model_fingerprint
from declutr.encoder_sources.pooling import POOLINGS, pooled
from declutr.encoder_sources.source import EncoderError, EncoderSource

PRECISIONS = ("float32", "bf16")
_UNLIMITED = 1_000_000  # what tokenizers without a limit report is far above this


class HuggingFace(EncoderSource):
    """Embeds with a pretrained transformer as it is.

    Texts are sorted by length, so that batches hold little padding; what else is in a batch does
    not change an embedding. Of an encoder with a decoder, the encoder is used.

    # Parameters

    place : a name on the hub, or a folder.
    pooling : one of `POOLINGS`.
    precision : `bf16` computes in bfloat16 where autocast does; weights stay float32.
    revision : branch, tag or commit, for a name on the hub.
    batch_size, device, max_length : as for `open_encoder`.
    """

    def __init__(
        self,
        place: str,
        *,
        pooling: str = "mean",
        precision: str = "float32",
        revision: str | None = None,
        batch_size: int = 64,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        _require("pooling", pooling, POOLINGS)
        _require("precision", precision, PRECISIONS)
        self._place, self._pooling, self._precision = place, pooling, precision
        self._batch_size = batch_size
        self._device = chosen_device(device)
        self._tokenizer, model = _load(place, revision, pooling)
        self._model = model.to(self._device).eval()
        limits = [limit for limit in (max_length, _longest(self._tokenizer, model)) if limit]
        self._max_length = min(limits, default=None)
        self._content = model_fingerprint(place, revision)
        self._truncated = 0

    @property
    def dimension(self) -> int:
        return self._model.config.hidden_size

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "transformer",
            "place": self._place,
            "pooling": self._pooling,
            "precision": self._precision,
            "max_length": self._max_length,
            "content": self._content,
        }

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._truncated}

    def __call__(self, sentences: list[str]) -> np.ndarray:
        tokens = self._tokenized(sentences)
        lengths = np.array([len(ids) for ids in tokens["input_ids"]])
        # A tokenizer without special tokens makes nothing of a blank text, and zeros stand for it.
        vectors = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            vectors[rows] = self._embed({key: [tokens[key][row] for row in rows] for key in tokens})
        return vectors

    def _tokenized(self, sentences: list[str]) -> dict[str, list[list[int]]]:
        """`input_ids` of each sentence, and `token_type_ids` where there are any."""
        settings = {"return_attention_mask": False, "verbose": False}
        tokens = dict(self._tokenizer(sentences, **settings))
        if self._max_length is None:
            return tokens
        long = [n for n, ids in enumerate(tokens["input_ids"]) if len(ids) > self._max_length]
        if long:
            self._truncated += len(long)
            # Again, so that the special token at the end is not what is cut.
            texts = [sentences[row] for row in long]
            cut = self._tokenizer(texts, truncation=True, max_length=self._max_length, **settings)
            for key, values in tokens.items():
                for number, row in enumerate(long):
                    values[row] = cut[key][number]
        return tokens

    @torch.inference_mode()
    def _embed(self, tokens: dict[str, list[list[int]]]) -> np.ndarray:
        """The vectors of a batch, whose first text is the longest."""
        count, longest = len(tokens["input_ids"]), len(tokens["input_ids"][0])
        mask = torch.zeros(count, longest, dtype=torch.int64)
        for row, ids in enumerate(tokens["input_ids"]):
            mask[row, : len(ids)] = 1
        padding = {
            "input_ids": self._tokenizer.pad_token_id or 0,
            "token_type_ids": getattr(self._tokenizer, "pad_token_type_id", 0),
        }
        inputs = {"attention_mask": mask}
        for key, rows in tokens.items():
            inputs[key] = torch.full((count, longest), padding[key])
            for row, values in enumerate(rows):
                inputs[key][row, : len(values)] = torch.tensor(values)
        inputs = {key: tensor.to(self._device) for key, tensor in inputs.items()}
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            output = self._model(
                **inputs, output_hidden_states=self._pooling == "first-last", return_dict=True
            )
        return pooled(output, inputs["attention_mask"], self._pooling).cpu().numpy()


def _load(place: str, revision: str | None, pooling: str) -> tuple[Any, Any]:
    """Tokenizer and model.

    # Raises

    `EncoderError` : there is none, or weights that matter are not in the checkpoint.
    """
    at = {"revision": revision} if revision else {}
    try:
        # Weights that the checkpoint lacks are drawn at random; that is no business of others.
        with torch.random.fork_rng(devices=[]), _quiet():
            tokenizer = AutoTokenizer.from_pretrained(place, **at)
            # float32: transformers 5 would keep what the checkpoint was saved in.
            model, info = AutoModel.from_pretrained(
                place, dtype=torch.float32, output_loading_info=True, **at
            )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise EncoderError(
            f"No transformer could be loaded from '{place}'; expected a name on the Hugging Face "
            f"hub, or a folder with a config.json, weights and a tokenizer. {error}"
        ) from error
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    missing = sorted(info["missing_keys"])
    used = [key for key in missing if pooling == "pooler" or not _of_the_pooler(key)]
    if used:
        raise EncoderError(
            f"The checkpoint '{place}' lacks {len(used)} weights that {pooling} pooling needs, "
            f"the first is {used[0]!r}. Expected a checkpoint of {type(model).__name__}"
            + ("; use another pooling." if all(map(_of_the_pooler, used)) else ".")
        )
    if pooling == "pooler" and getattr(model, "pooler", None) is None:
        raise EncoderError(f"{type(model).__name__} has no pooler; use another pooling.")
    return tokenizer, model


def _of_the_pooler(key: str) -> bool:
    return "pooler." in key


def _longest(tokenizer: Any, model: Any) -> int | None:
    """How many tokens the transformer takes, special ones included; `None` if there is no limit."""
    if tokenizer.model_max_length < _UNLIMITED:
        return int(tokenizer.model_max_length)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    # RoBERTa and its kin count positions from after the padding id.
    offsets = [
        module.padding_idx + 1
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    ]
    return positions - max(offsets, default=0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the table of weights that were not found: a pooler nobody uses would be in it."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _require(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise EncoderError(f"Expected {name} to be one of {', '.join(known)}, got {value!r}.")
