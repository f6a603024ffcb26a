"""A model that was trained here."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from declutr.encoder import Encoder
from declutr.encoder_sources.devices import chosen_device
from declutr.encoder_sources.file_fingerprints import files_fingerprint
from declutr.encoder_sources.source import EncoderError, EncoderSource


class TrainedArchive(EncoderSource):
    """`declutr.encoder.Encoder` of a serialization folder, a `model.tar.gz` or a URL of one.

    # Parameters

    place : where it is.
    batch_size, device : as for `open_encoder`.
    max_length : tokens a text; what the model was trained with by default.
    """

    def __init__(
        self,
        place: str,
        *,
        batch_size: int = 64,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        self._place = place
        self._batch_size = batch_size
        self._max_length = max_length
        where = chosen_device(device)
        shorter = {"dataset_reader.tokenizer.max_length": max_length} if max_length else {}
        try:
            self._encoder = Encoder(
                place,
                cuda_device=(where.index or 0) if where.type == "cuda" else -1,
                overrides=shorter,
            )
        except (OSError, tarfile.TarError) as error:
            raise EncoderError(str(error)) from error
        self._content = _content(place)

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def __call__(self, sentences: list[str]) -> np.ndarray:
        return self._encoder(sentences, batch_size=self._batch_size)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "trained archive",
            "place": self._place,
            "max_length": self._max_length,
            "content": self._content,
        }

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._encoder.truncated_texts}


def _content(place: str) -> str:
    """A fingerprint of what is loaded from there."""
    if "://" in place:
        from cached_path import cached_path

        return files_fingerprint([Path(cached_path(place))])
    path = Path(place)
    if path.is_file():
        return files_fingerprint([path])
    # As AllenNLP's `load_archive` chooses.
    weights = path / "weights.th"
    if not weights.exists():
        weights = path / "best.th"
    inside = [
        file
        for folder in ("vocabulary", "transformer")
        for file in sorted((path / folder).rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    ]
    return files_fingerprint([path / "config.json", weights, *inside], path)
