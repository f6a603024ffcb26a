"""Features for classifiers: sentence embeddings, or combinations of the embeddings of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from declutr.evaluation.task import Vectors

if TYPE_CHECKING:  # tasks without classifiers need not wait for it
    import torch

MATERIALISED = 2**28
"""The largest size of features of pairs that are computed once, in numbers (1 GiB).

Larger features are computed again for every batch.
"""


def difference_and_product(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return `[|u - v|, u * v]`, `(..., 2d)`, SentEval's features of MRPC and SICK.

    # Parameters

    u, v : embeddings of the first and the second sentences, `(..., d)`.
    """
    import torch

    return torch.cat([(u - v).abs(), u * v], dim=-1)


def both_product_and_difference(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return `[u, v, u * v, |u - v|]`, `(..., 4d)`, SentEval's features of SNLI.

    # Parameters

    u, v : embeddings of the first and the second sentences, `(..., d)`.
    """
    import torch

    return torch.cat([u, v, u * v, (u - v).abs()], dim=-1)


Combine = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""A function from the embeddings of the first and the second sentences to features of pairs."""


@dataclass(frozen=True)
class Features:
    """The features `(n, w)` of n items.

    Features of pairs can be computed as they are requested: those of SNLI's 550,000 pairs are seven
    times as large as the embeddings of its distinct sentences.
    """

    vectors: torch.Tensor
    """Embeddings `(m, d)`, float32: one row for each item, or one for each sentence of pairs."""
    left: torch.Tensor | None = None
    """Rows of `vectors` with the first sentences of pairs, `(n,)`; None if items are not pairs."""
    right: torch.Tensor | None = None
    """Rows of `vectors` with the second sentences of pairs, `(n,)`."""
    combine: Combine | None = None
    """The function that turns the two embeddings of a pair into features."""

    def __len__(self) -> int:
        return len(self.vectors if self.left is None else self.left)

    @property
    def width(self) -> int:
        """The number w of features of an item."""
        import torch

        return self.rows(torch.zeros(1, dtype=torch.long, device=self.vectors.device)).shape[-1]

    def rows(self, places: torch.Tensor) -> torch.Tensor:
        """Return features `(*shape, w)` of the items with the numbers `places`, of any shape."""
        if self.left is None or self.right is None or self.combine is None:
            return self._taken(places)
        flat = places.reshape(-1)
        u = self._taken(self.left.index_select(0, flat))
        v = self._taken(self.right.index_select(0, flat))
        return self.combine(u, v).unflatten(0, places.shape)

    def array(self, places: np.ndarray) -> np.ndarray:
        """Return the features `(n, w)` of the items with the numbers `places` as a numpy array."""
        import torch

        return self.rows(torch.from_numpy(places).to(self.vectors.device)).cpu().numpy()

    def to(self, device: str) -> Features:
        """Return a copy whose tensors are on `device`."""
        tensors = ((name, getattr(self, name)) for name in ("vectors", "left", "right"))
        moved = {name: tensor.to(device) for name, tensor in tensors if tensor is not None}
        return replace(self, **moved)

    def _taken(self, places: torch.Tensor) -> torch.Tensor:
        rows = self.vectors.index_select(0, places.reshape(-1))
        return rows.unflatten(0, places.shape) if places.dim() > 1 else rows


def sentence_features(sentences: Sequence[str], vectors: Vectors) -> Features:
    """Return the embeddings of sentences as features."""
    import torch

    return Features(torch.from_numpy(vectors(sentences)))


def pair_features(
    first: Sequence[str], second: Sequence[str], combine: Combine, vectors: Vectors
) -> Features:
    """Return features of the pairs `first[i]` and `second[i]`."""
    import torch

    different = list(dict.fromkeys([*first, *second]))
    row = {sentence: number for number, sentence in enumerate(different)}
    left, right = (torch.tensor([row[text] for text in texts]) for texts in (first, second))
    lazy = Features(torch.from_numpy(vectors(different)), left, right, combine)
    if len(lazy) * lazy.width > MATERIALISED:
        return lazy
    return Features(lazy.rows(torch.arange(len(lazy))))
