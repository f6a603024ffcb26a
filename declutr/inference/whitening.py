"""Whitening: an affine map to embeddings with mean 0 and covariance I, or their first k components.

It is stored beside the weights (Su et al. 2021, arXiv:2103.15316, "Whitening-k"). With the mean mu
and the covariance Sigma = U diag(s) U' of embeddings of training text, an embedding x becomes

    y = (x - mu) U diag(s)^(-1/2) [:, :k],   s falling.

Sigma divides by N - 1; N would give the same cosines. Scaling y to length 1 is left to the caller.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from declutr._version import __version__
from declutr.archives import WHITENING
from declutr.inference.embedding_moments import ROWS, Moments, WhiteningError
from declutr.system.files import checksums_of, json_checksum, write_whole

FILE = WHITENING
"""The name of the file in the folder of a model, and at the root of an archive."""

FLOOR = 1e-8
"""The smallest variance, relative to the largest, that embeddings are scaled by.

After layer normalisation, there is a direction in which embeddings differ by rounding errors alone.
Divided by their own standard deviation, they would count as much as any other direction."""

_FORMAT = "1"


@dataclass(frozen=True, eq=False)
class Whitening:
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

    def transform(self, embeddings: np.ndarray) -> np.ndarray:
        """Return the whitened embeddings `(n, k)` of embeddings `(n, d)`.

        They are computed in float64, and returned in the input's dtype if it is a floating-point
        type, else in float64.

        # Raises

        `WhiteningError` : the embeddings have another shape.
        """
        embeddings = np.asarray(embeddings)
        if embeddings.ndim != 2 or embeddings.shape[1] != self.input_dimension:
            raise WhiteningError(
                f"This whitening is for embeddings (n, {self.input_dimension}), got "
                f"{embeddings.shape}. Fit it again for this model."
            )
        dtype = embeddings.dtype if embeddings.dtype.kind == "f" else np.dtype(np.float64)
        whitened = np.empty((len(embeddings), self.dimension), dtype=dtype)
        for start in range(0, len(embeddings), ROWS):
            block = embeddings[start : start + ROWS].astype(np.float64) - self.mean
            whitened[start : start + ROWS] = block @ self.matrix
        return whitened

    @staticmethod
    def stored_in(folder: str | os.PathLike) -> bool:
        """Return whether a folder holds a whitening."""
        return (Path(folder) / FILE).is_file()

    def save(self, folder: str | os.PathLike) -> Path:
        """Write `whitening.safetensors` into a folder, whole or not at all; return its path."""
        file = Path(folder) / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, self.to_bytes(), shared=True)
        return file

    def to_bytes(self) -> bytes:
        """Return the content of the file: the same bytes each time for the same whitening."""
        from safetensors.numpy import save

        arrays = {"mean": self.mean, "matrix": self.matrix, "variances": self.variances}
        tensors = {name: np.ascontiguousarray(a) for name, a in arrays.items() if a is not None}
        about = {
            "format": _FORMAT,
            "version": __version__,
            "texts": self.texts,
            "dimension": self.dimension,
            "digest": self.digest,
        }
        about["checksum"] = _checksum(about, tensors)
        # A single entry: safetensors writes several in any order, and bytes would differ.
        return save(tensors, {"whitening": json.dumps(about)})

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Whitening:
        """Read the whitening that `save` wrote into a folder.

        # Raises

        `FileNotFoundError` : the folder has no whitening.
        `WhiteningError` : the file is damaged, or is not a whitening of this version.
        """
        from safetensors import SafetensorError, safe_open

        file = Path(folder) / FILE
        if not file.is_file():
            raise FileNotFoundError(
                f"No {FILE} in '{folder}'. `declutr whiten MODEL TEXTS` makes one."
            )
        try:
            with safe_open(file, framework="numpy") as stored:
                about = json.loads((stored.metadata() or {})["whitening"])
                arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            if about["format"] != _FORMAT:
                raise WhiteningError(
                    f"its format is {about['format']!r}, expected {_FORMAT!r}: it is of another "
                    "version of declutr"
                )
            checksum = about.pop("checksum", None)  # release 1.5 wrote none
            if checksum not in (None, _checksum(about, arrays)):
                raise WhiteningError("it is damaged: its numbers are not what its checksum says")
            mean, matrix, variances = arrays["mean"], arrays["matrix"], arrays.get("variances")
            return cls(mean, matrix, variances, int(about["texts"]), about["digest"])
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise WhiteningError(
                f"'{file}' does not hold a whitening ({error}). Fit it again: `declutr whiten "
                "MODEL TEXTS`."
            ) from error


def _checksum(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    sums = {name: [array.shape, checksums_of(array.tobytes())] for name, array in arrays.items()}
    return json_checksum([about, sums])
