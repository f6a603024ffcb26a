"""What becomes of the vectors that a model gives: whitened, cut and scaled."""

from __future__ import annotations

import numpy as np

from declutr.inference.errors import EncoderError
from declutr.inference.text_model import TextModel
from declutr.inference.whitening import Whitening
from declutr.system.vectors import unit_rows


class Finishing:
    """Vectors of a model to embeddings.

    # Parameters

    model : whose vectors they are.
    place : where it is, for messages.
    whiten, truncate_dim, normalize : see `declutr.inference.encoder.Encoder`.

    # Raises

    `EncoderError` : a whitening that is not there, or more dimensions than there are.
    """

    def __init__(
        self,
        model: TextModel,
        place: str,
        whiten: bool | None,
        truncate_dim: int | None,
        normalize: bool | None,
    ) -> None:
        self.whitening: Whitening | None = model.whitening if whiten is not False else None
        if whiten and self.whitening is None:
            raise EncoderError(
                f"There is no whitening stored with '{place}'. Fit one with `declutr whiten`."
            )
        width = self.whitening.dimension if self.whitening else model.dimension
        if truncate_dim is not None and not 1 <= truncate_dim <= width:
            raise EncoderError(f"truncate_dim must lie in 1 to {width}, got {truncate_dim}.")
        self.truncate_dim = truncate_dim
        self.normalize = model.normalizes if normalize is None else normalize
        self.dimension = width if truncate_dim is None else truncate_dim
        """The width of embeddings."""

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Embeddings `(n, k)` of vectors `(n, d)`."""
        if self.whitening is not None:
            vectors = self.whitening.transform(vectors).astype(np.float32)
        if self.truncate_dim is not None:
            vectors = vectors[:, : self.truncate_dim]
        return unit_rows(vectors) if self.normalize else vectors
