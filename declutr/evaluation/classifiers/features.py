"""What classifiers are trained on: embeddings of sentences, or what is made of those of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from declutr.evaluation.task import Vectors

MATERIALISED = 2**28
"""Features of pairs of up to so many numbers (1 GiB) are made once, more for each batch anew."""


def difference_and_product(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`[|u - v|, u * v]`, `(..., 2d)` of two `(..., d)`: for paraphrases and SICK (SentEval)."""
    return torch.cat([(u - v).abs(), u * v], dim=-1)


def both_product_and_difference(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`[u, v, u * v, |u - v|]`, `(..., 4d)` of two `(..., d)`: for SNLI (SentEval)."""
    return torch.cat([u, v, u * v, (u - v).abs()], dim=-1)


Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Features:
    """Features `(n, w)` of n items, row by row.

    The features of SNLI's 550,000 pairs are seven times as large as the embeddings of their
    different sentences, so features of pairs can be made as they are asked for.
    """

    vectors: torch.Tensor
    """`(m, d)`, float32: rows are items, or sentences that pairs point to."""
    left: torch.Tensor | None = None
    """`(n,)`: the rows of `vectors` of the first sentences of pairs; None where rows are items."""
    right: torch.Tensor | None = None
    combine: Combine | None = None

    def __len__(self) -> int:
        return len(self.vectors if self.left is None else self.left)

    @property
    def width(self) -> int:
        return self.rows(torch.zeros(1, dtype=torch.long, device=self.vectors.device)).shape[-1]

    def rows(self, places: torch.Tensor) -> torch.Tensor:
        """The features `(*shape, w)` of the items at `places`, of any shape."""
        if self.left is None or self.right is None or self.combine is None:
            return self._taken(places)
        flat = places.reshape(-1)
        u = self._taken(self.left.index_select(0, flat))
        v = self._taken(self.right.index_select(0, flat))
        return self.combine(u, v).unflatten(0, places.shape)

    def array(self, places: np.ndarray) -> np.ndarray:
        """The features `(n, w)` of items, for a library that wants them whole."""
        return self.rows(torch.from_numpy(places).to(self.vectors.device)).cpu().numpy()

    def to(self, device: str) -> Features:
        tensors = ((name, getattr(self, name)) for name in ("vectors", "left", "right"))
        moved = {name: tensor.to(device) for name, tensor in tensors if tensor is not None}
        return replace(self, **moved)

    def _taken(self, places: torch.Tensor) -> torch.Tensor:
        rows = self.vectors.index_select(0, places.reshape(-1))
        return rows.unflatten(0, places.shape) if places.dim() > 1 else rows


def sentence_features(sentences: Sequence[str], vectors: Vectors) -> Features:
    """The embeddings of sentences."""
    return Features(torch.from_numpy(vectors(sentences)))


def pair_features(
    first: Sequence[str], second: Sequence[str], combine: Combine, vectors: Vectors
) -> Features:
    """What `combine` makes of the embeddings of `first[i]` and `second[i]`."""
    different = list(dict.fromkeys([*first, *second]))
    row = {sentence: number for number, sentence in enumerate(different)}
    left, right = (torch.tensor([row[text] for text in texts]) for texts in (first, second))
    lazy = Features(torch.from_numpy(vectors(different)), left, right, combine)
    if len(lazy) * lazy.width > MATERIALISED:
        return lazy
    return Features(lazy.rows(torch.arange(len(lazy))))
