"""Image features in a .npy file, read row by row when a batch needs them."""

import os
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from allennlp.data.fields.field import Field

from declutr.corpus.documents import PathLike, SourceError
from declutr.system.files import Appearance, appearance


class StoredImages:
    """An array `(n, d)` or `(n, regions, d)` in a .npy file that is memory-mapped.

    It is pickled as its path, so that workers of a data loader open the file themselves. Use
    `stored_images` to open a file once per process.

    # Raises

    `SourceError` : the file does not exist, or does not contain such an array.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            raise SourceError(
                f"No image features at '{path}' ({error.strerror}). Write them with numpy.save, "
                "and name the file under 'images'."
            ) from error
        except (EOFError, ValueError) as error:
            raise SourceError(
                f"'{path}' is no .npy file of numbers ({error}). Write it with numpy.save."
            ) from error
        shape = getattr(self._rows, "shape", None)
        if shape is None or len(shape) not in (2, 3) or 0 in shape:
            raise SourceError(
                f"'{path}' holds {'several arrays' if shape is None else f'an array {shape}'}, "
                "expected image features (n, d), or (n, regions, d)."
            )
        if self._rows.dtype.kind not in "fiu":
            raise SourceError(
                f"'{path}' holds {self._rows.dtype}, expected image features as numbers."
            )

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> torch.Tensor:
        """Return the features of one image, `(d,)` or `(regions, d)`, float32.

        # Raises

        `SourceError` : the features are not finite.
        """
        features = torch.from_numpy(np.array(self._rows[number], dtype=np.float32))
        if not bool(features.isfinite().all()):
            raise SourceError(f"'{self.path}', row {number}: image features that are not finite.")
        return features

    def repeat(self, first: int, count: int) -> bool:
        """Return whether `count` rows from `first` on are equal."""
        return bool((self._rows[first : first + count] == self._rows[first]).all())

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return stored_images, (self.path,)


def stored_images(path: PathLike) -> StoredImages:
    """Open the image features in a .npy file, once per process unless the file changes.

    # Raises

    `SourceError` : the file does not exist, or does not contain such an array.
    """
    path = os.fspath(path)
    try:
        return _opened(path, appearance(path))
    except OSError:
        return StoredImages(path)  # raises an error that says what is wrong


@lru_cache(maxsize=8)
def _opened(path: str, stamp: Appearance) -> StoredImages:
    return StoredImages(path)


class ImageField(Field[torch.Tensor]):
    """A field with one row of stored images, which is read when the field becomes a tensor.

    So the instances of a large collection need little memory.
    """

    __slots__ = ["images", "row"]

    def __init__(self, images: StoredImages, row: int) -> None:
        self.images, self.row = images, row

    def get_padding_lengths(self) -> dict[str, int]:
        return {}

    def as_tensor(self, padding_lengths: dict[str, int]) -> torch.Tensor:
        return self.images.row(self.row)

    def human_readable_repr(self) -> dict[str, Any]:
        return {"file": self.images.path, "row": self.row}
