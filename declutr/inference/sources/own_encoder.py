"""Trained models and plain transformers, by `declutr.inference.encoder.Encoder`."""

from __future__ import annotations

import tarfile
from typing import Any

import numpy as np

from declutr.inference.encoder import Encoder
from declutr.inference.sources.source import EncoderError, EncoderSource

PRECISIONS = {"float32": "float32", "bf16": "bfloat16", "int8": "int8"}
_FLAGS = {"true": True, "false": False}


class OwnEncoder(EncoderSource):
    """An `Encoder` of a place, in float32 unless asked otherwise: scores are to be compared.

    # Parameters

    place : as for `Encoder`.
    kind : `archive`, `transformer` (of which modules of sentence-transformers do not count, but
        `pooling`), or `None` for what lies there.
    pooling, revision : as for `Encoder`.
    precision : a key of `PRECISIONS`.
    normalize, whiten : `true` or `false`.
    dim : the leading dimensions that are kept.
    long_texts : `truncate` or `chunk`.
    prompt_name : of the model's prompt that is put before sentences; by default its default.
    batch_size, device, max_length : as for `open_encoder`.
    """

    def __init__(
        self,
        place: str,
        *,
        kind: str | None = None,
        pooling: str | None = None,
        revision: str | None = None,
        precision: str = "float32",
        normalize: str | None = None,
        whiten: str | None = None,
        dim: str | None = None,
        long_texts: str = "truncate",
        prompt_name: str | None = None,
        batch_size: int = 64,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise EncoderError(
                f"Expected precision to be one of {', '.join(PRECISIONS)}, got {precision!r}."
            )
        if dim is not None and not dim.isdecimal():
            raise EncoderError(f"Expected dim to be a whole number, got {dim!r}.")
        self._batch_size, self._precision = batch_size, precision
        try:
            self._encoder = Encoder(
                place,
                kind=kind,
                pooling=pooling,
                revision=revision,
                dtype=PRECISIONS[precision],
                normalize=_flag("normalize", normalize),
                whiten=_flag("whiten", whiten),
                truncate_dim=int(dim) if dim else None,
                long_texts=long_texts,
                prompt_name=prompt_name,
                device=device,
                max_length=max_length,
            )
        except (OSError, tarfile.TarError) as error:
            raise EncoderError(str(error)) from error
        self.prompts, self.prompt = self._encoder.prompts, self._encoder.prompt

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def __call__(self, sentences: list[str], prompt: str | None = None) -> np.ndarray:
        return self._encoder(sentences, batch_size=self._batch_size, prompt=prompt)

    def describe(self) -> dict[str, Any]:
        described = self._encoder.describe()
        if described["dtype"] != PRECISIONS[self._precision]:  # it would be slower
            described["precision_asked_for"] = self._precision
        return described

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._encoder.truncated_texts}


def _flag(name: str, value: str | None) -> bool | None:
    if value is None:
        return None
    if value not in _FLAGS:
        raise EncoderError(f"Expected {name} to be true or false, got {value!r}.")
    return _FLAGS[value]
