"""Captions found by their image, and images by their caption: recall within a whole collection."""

from __future__ import annotations

from typing import NamedTuple

import torch

RANKS = (1, 5, 10)


class Ranks(NamedTuple):
    """How many wrong answers come before the first right one; ties count half."""

    captions: torch.Tensor
    """Of the best own caption of each image, `(n,)`."""
    images: torch.Tensor
    """Of the image of each caption, `(m,)`."""


@torch.no_grad()
def retrieval_ranks(
    images: torch.Tensor, captions: torch.Tensor, image_of: torch.Tensor, block: int = 512
) -> Ranks:
    """# Parameters

    images, captions : of unit length, `(n, e)` and `(m, e)`.
    image_of : the row of the image of each caption, `(m,)`; every image has one or more.
    block : rows that are compared with all others at a time; memory is `block * max(n, m)`.
    """
    of_images, of_captions = [], []
    rows = torch.arange(len(images), device=images.device)
    for some, numbers in zip(images.split(block), rows.split(block), strict=True):
        scores = some @ captions.T  # (b, m)
        own = image_of == numbers.unsqueeze(1)
        best = scores.masked_fill(~own, -torch.inf).amax(dim=1, keepdim=True)
        of_images.append(_before(scores.masked_fill(own, -torch.inf), best))
    for some, numbers in zip(captions.split(block), image_of.split(block), strict=True):
        scores = some @ images.T  # (b, n)
        own_score = scores.gather(1, numbers.unsqueeze(1))
        others = scores.scatter(1, numbers.unsqueeze(1), -torch.inf)
        of_captions.append(_before(others, own_score))
    return Ranks(torch.cat(of_images), torch.cat(of_captions))


def _before(others: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`(b,)` of scores `(b, x)` and `(b, 1)`."""
    return (others > right).sum(dim=1) + 0.5 * (others == right).sum(dim=1)


def recalls(ranks: Ranks) -> dict[str, float]:
    """Six recalls in per cent, and their sum, `rsum` (at most 600), as papers give them."""
    found = {
        f"{name}_r{k}": 100 * float((each < k).double().mean())
        for name, each in (("image_to_text", ranks.captions), ("text_to_image", ranks.images))
        for k in RANKS
    }
    return {**found, "rsum": sum(found.values())}
