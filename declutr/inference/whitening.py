"""Whitening: an affine map to embeddings with mean 0 and covariance I, or their first k components.

It is stored beside the weights (Su et al. 2021, arXiv:2103.15316, "Whitening-k"). With the mean mu
and the covariance Sigma = U diag(s) U' of embeddings of training text, an embedding x becomes

    y = (x - mu) U diag(s)^(-1/2) [:, :k],   s falling.

Sigma divides by N - 1; N would give the same cosines. Scaling y to length 1 is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from declutr.inference.embedding_moments import Moments, WhiteningError
from declutr.inference.fitted_map import FILE, FittedMap

__all__ = ["FILE", "FLOOR", "Whitening", "WhiteningError"]

FLOOR = 1e-8
"""The smallest variance, relative to the largest, that embeddings are scaled by.

After layer normalisation, there is a direction in which embeddings differ by rounding errors alone.
Divided by their own standard deviation, they would count as much as any other direction."""


@dataclass(frozen=True, eq=False)
class Whitening(FittedMap):
    """An affine map of embeddings, `(x - mean) @ matrix`, that whitens them.

        whitening = Whitening.fit(blocks, dimension=256)
        embeddings = whitening.transform(embeddings)  # (n, d) -> (n, 256)

    # Parameters

    mean : the mean `(d,)` of the embeddings that the whitening was fitted on.
    matrix : the scaled directions `(d, k)` as columns, in the order of falling variance.
    variances : the variances `(d,)` of all directions, falling, without `FLOOR`; `None` if unknown.
    texts : the number of embeddings that the whitening was fitted on; 0 if it is not known.
    digest : any string that identifies the training text; it is stored in the file.

    # Raises

    `WhiteningError` : the shapes do not go together, or numbers are not finite.
    """

    format: ClassVar[str] = "1"

    mean: np.ndarray
    matrix: np.ndarray
    variances: np.ndarray | None = None
    texts: int = 0
    digest: str | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "matrix", "variances"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        d = self.mean.shape[0] if self.mean.ndim == 1 else 0
        shapes = f"mean {self.mean.shape} and matrix {self.matrix.shape}"
        if not d or self.matrix.ndim != 2 or len(self.matrix) != d or not self.matrix.shape[1]:
            raise WhiteningError(f"Got {shapes}, expected (d,) and (d, k).")
        if self.matrix.shape[1] > d:
            raise WhiteningError(f"Got {shapes}, expected (d,) and (d, k) with k of at most d.")
        if self.variances is not None and self.variances.shape != (d,):
            raise WhiteningError(f"Got {shapes} with variances {self.variances.shape}.")
        if not all(np.isfinite(array).all() for array in (self.mean, self.matrix)):
            raise WhiteningError("Got a whitening with numbers that are not finite.")

    @classmethod
    def fit(cls, blocks: Iterable[np.ndarray], dimension: int | None = None) -> Whitening:
        """Fit a whitening to all rows of all blocks, in one pass and in float64.

        Memory holds one block and a few arrays `(d, d)`.

        # Parameters

        blocks : any number of blocks of embeddings `(n, d)`.
        dimension : the number k of dimensions to keep; by default d.

        # Raises

        `WhiteningError` : k is not within 1 to d; there are not more rows than k; rows are not
            finite, of different width, or all equal.
        """
        if dimension is not None and dimension < 1:
            raise WhiteningError(f"Expected to keep at least 1 dimension, got {dimension}.")
        moments = Moments()
        for block in blocks:
            moments.add(np.asarray(block))
            # Checked with the first block, so that nobody waits for the others in vain.
            if dimension is not None and len(moments.mean) and dimension > len(moments.mean):
                raise WhiteningError(
                    f"Embeddings have {len(moments.mean)} dimensions; whitening cannot keep "
                    f"{dimension}. Expected at most {len(moments.mean)}."
                )
        if not moments.count:
            raise WhiteningError("Got no texts to fit whitening on.")
        kept = dimension or len(moments.mean)
        if moments.count <= kept:
            raise WhiteningError(
                f"Whitening to {kept} dimensions needs more than {kept} texts, got "
                f"{moments.count}. Give more text, or keep fewer dimensions."
            )
        variances, directions = moments.directions()
        matrix = directions / np.sqrt(np.maximum(variances, FLOOR * variances[0]))
        return cls(moments.mean, matrix[:, :kept], variances.clip(min=0), moments.count)

    @property
    def input_dimension(self) -> int:
        """The width d of the embeddings that are whitened."""
        return len(self.mean)

    @property
    def dimension(self) -> int:
        """The width k of whitened embeddings."""
        return self.matrix.shape[1]

    @cached_property
    def bias(self) -> np.ndarray:
        """The bias `(k,)` of the equivalent linear layer `x @ matrix + bias`."""
        return -(self.mean @ self.matrix)

    @property
    def kept_variance(self) -> float | None:
        """The share of variance in the k directions, from 0 to 1; `None` if it is not known."""
        if self.variances is None:
            return None
        return float(self.variances[: self.dimension].sum() / self.variances.sum())

    def truncated(self, dimension: int) -> Whitening:
        """Return a whitening that keeps only the first `dimension` of these k dimensions.

        # Raises

        `WhiteningError` : `dimension` is not within 1 to k.
        """
        if not 1 <= dimension <= self.dimension:
            raise WhiteningError(
                f"Expected to keep 1 to {self.dimension} dimensions, got {dimension}."
            )
        return replace(self, matrix=self.matrix[:, :dimension])

    @property
    def description(self) -> list[int]:
        """The shape `[d, k]` of the matrix."""
        return list(self.matrix.shape)

    def told(self) -> str:
        d, share = self.input_dimension, self.kept_variance or 0.0
        return (
            f"{d} dimensions to {self.dimension}, which hold {100 * share:.1f} % of the variance."
        )

    def _map(self, rows: np.ndarray) -> np.ndarray:
        return (rows - self.mean) @ self.matrix

    def _stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {"mean": self.mean, "matrix": self.matrix, "variances": self.variances}
        return {name: array for name, array in arrays.items() if array is not None}, {}

    @classmethod
    def _of_stored(cls, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Whitening:
        mean, matrix, variances = arrays["mean"], arrays["matrix"], arrays.get("variances")
        return cls(mean, matrix, variances, int(about["texts"]), about["digest"])
