"""What whitening and flows share: maps of embeddings that are fitted after training, and stored.

Their file lies beside the weights of a model. It holds arrays and JSON only, so that reading one
runs no code, and a checksum over both.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from declutr._version import __version__
from declutr.archives import FITTED_TO, WHITENING
from declutr.inference.embedding_moments import ROWS, WhiteningError
from declutr.system import local_path
from declutr.system.files import checksums_of, json_checksum, write_whole

_Map = TypeVar("_Map", bound="FittedMap")

FILE = WHITENING
"""The name of the file in the folder of a model, and at the root of an archive."""


class FittedMap(ABC):
    """A map of embeddings `(n, d)` to `(n, k)` that is fitted on training text and then fixed."""

    format: ClassVar[str]
    """What the file says it holds. Releases that do not know a format refuse it."""

    texts: int
    """The number of embeddings that the map was fitted on; 0 if it is not known."""

    digest: str | None
    """Any string that identifies the training text; it is stored in the file."""

    weights: str | None = None
    """The digest of the weights whose embeddings it was fitted to, if it is known."""

    @property
    @abstractmethod
    def input_dimension(self) -> int:
        """The width d of the embeddings that are mapped."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The width k of mapped embeddings."""

    @property
    @abstractmethod
    def description(self) -> Any:
        """The description of this map in `Encoder.describe()`, as JSON values."""

    @abstractmethod
    def told(self) -> str:
        """Return a sentence for the user about what was fitted."""

    @abstractmethod
    def _map(self, rows: np.ndarray) -> np.ndarray:
        """Return rows `(n, k)` of rows `(n, d)`, both in float64."""

    @abstractmethod
    def _stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays, and the JSON values beside them, that `_of_stored` makes this of."""

    @classmethod
    @abstractmethod
    def _of_stored(cls: type[_Map], arrays: dict[str, np.ndarray], about: dict[str, Any]) -> _Map:
        """Return the map that `_stored` has given, or raise `KeyError` or a `ValueError`."""

    def transform(self, embeddings: np.ndarray) -> np.ndarray:
        """Return the mapped embeddings `(n, k)` of embeddings `(n, d)`.

        They are computed in float64, and returned in the input's dtype if it is a floating-point
        type, else in float64.

        # Raises

        `WhiteningError` : the embeddings have another shape.
        """
        embeddings = np.asarray(embeddings)
        if embeddings.ndim != 2 or embeddings.shape[1] != self.input_dimension:
            raise WhiteningError(
                f"This {type(self).__name__.lower()} is for embeddings (n, "
                f"{self.input_dimension}), got {embeddings.shape}. Fit it again for this model."
            )
        dtype = embeddings.dtype if embeddings.dtype.kind == "f" else np.dtype(np.float64)
        mapped = np.empty((len(embeddings), self.dimension), dtype=dtype)
        for start in range(0, len(embeddings), ROWS):
            mapped[start : start + ROWS] = self._map(
                embeddings[start : start + ROWS].astype(np.float64)
            )
        return mapped

    def with_digest(self: _Map, digest: str) -> _Map:
        """Return a copy that names its training text by `digest`."""
        copied = copy(self)
        object.__setattr__(copied, "digest", digest)  # also where the class is frozen
        return copied

    def with_weights(self: _Map, digest: str | None) -> _Map:
        """Return a copy that notes by which weights the embeddings were made.

        # Parameters

        digest : what `declutr.archives.fitted_weights` makes of the weights.
        """
        copied = copy(self)
        object.__setattr__(copied, "weights", digest)
        return copied

    @staticmethod
    def stored_in(folder: str | os.PathLike) -> bool:
        """Return whether a folder holds such a map."""
        return (local_path(folder) / FILE).is_file()

    def save(self, folder: str | os.PathLike) -> Path:
        """Write `whitening.safetensors` into a folder, whole or not at all; return its path."""
        file = local_path(folder) / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, self.to_bytes(), shared=True)
        return file

    def to_bytes(self) -> bytes:
        """Return the content of the file: the same bytes each time for the same map."""
        from safetensors.numpy import save

        arrays, about = self._stored()
        tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        about = {
            "format": self.format,
            "version": __version__,
            "texts": self.texts,
            "dimension": self.dimension,
            "digest": self.digest,
            **({} if self.weights is None else {FITTED_TO: self.weights}),
            **about,
        }
        about["checksum"] = _checksum(about, tensors)
        # A single entry: safetensors writes several in any order, and bytes would differ.
        return save(tensors, {"whitening": json.dumps(about)})

    @classmethod
    def load(cls: type[_Map], folder: str | os.PathLike) -> _Map:
        """Read the map of this kind that `save` wrote into a folder.

        # Raises

        `FileNotFoundError` : the folder has no such file.
        `WhiteningError` : the file is damaged, or holds another kind of map, or one of another
            version.
        """
        return load_map(folder, [cls])


def load_map(folder: str | os.PathLike, kinds: Sequence[type[_Map]]) -> _Map:
    """Read the map that is stored in a folder, if it is of one of these kinds.

    # Raises

    `FileNotFoundError` : the folder has no such file.
    `WhiteningError` : the file is damaged, or holds another kind of map, or one of another version.
    """
    from safetensors import SafetensorError, safe_open

    file = local_path(folder) / FILE
    if not file.is_file():
        raise FileNotFoundError(f"No {FILE} in '{folder}'. `declutr whiten MODEL TEXTS` makes one.")
    try:
        with safe_open(file, framework="numpy") as stored:
            about = json.loads((stored.metadata() or {})["whitening"])
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        by_format = {kind.format: kind for kind in kinds}
        if about["format"] not in by_format:
            raise WhiteningError(
                f"its format is {about['format']!r}, expected {' or '.join(map(repr, by_format))}: "
                "it is of another version of declutr"
            )
        checksum = about.pop("checksum", None)  # release 1.5 wrote none
        if checksum not in (None, _checksum(about, arrays)):
            raise WhiteningError("it is damaged: its numbers are not what its checksum says")
        return (
            by_format[about["format"]]._of_stored(arrays, about).with_weights(about.get(FITTED_TO))
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise WhiteningError(
            f"'{file}' does not hold a whitening ({error}). Fit it again: `declutr whiten "
            "MODEL TEXTS`."
        ) from error


def _checksum(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    sums = {name: [array.shape, checksums_of(array.tobytes())] for name, array in arrays.items()}
    return json_checksum([about, sums])
