"""The matching loss of VSE++, and recall of images and captions in a whole collection."""

from typing import NamedTuple

import torch

from declutr.objectives.numerics import full_precision

NEGATIVES = ("hardest", "all")
RANKS = (1, 5, 10)


@full_precision
def matching_loss(
    images: torch.Tensor,
    captions: torch.Tensor,
    image_ids: torch.Tensor,
    margin: float = 0.2,
    negatives: str = "hardest",
) -> torch.Tensor:
    """Return the hinge loss of matching pairs against negatives in the batch, averaged over pairs.

    The loss of a pair is `max_c' [a + s(i, c') - s(i, c)]+  +  max_i' [a + s(i', c) - s(i, c)]+`
    (Faghri et al., 2018, equation 6). The code of that paper sums over pairs. Other captions of the
    same image are not negatives. Without negatives the loss is 0.

    # Parameters

    images, captions : embeddings of unit length, `(n, e)`; row i of both belong together.
    image_ids : `(n,)`; equal numbers mean the same image.
    margin : the margin a.
    negatives : `"hardest"` takes the hardest negative, `"all"` sums over all (equation 5).

    # Returns

    A scalar.

    # Raises

    `ValueError` : unknown `negatives`.
    """
    if negatives not in NEGATIVES:
        raise ValueError(f"Unknown negatives '{negatives}': expected one of hardest, all.")
    scores = images @ captions.T  # (n, n)
    own = scores.diagonal()
    same = image_ids.unsqueeze(1) == image_ids
    wrong_captions = (margin + scores - own.unsqueeze(1)).clamp_min(0).masked_fill(same, 0)
    wrong_images = (margin + scores - own).clamp_min(0).masked_fill(same, 0)
    if negatives == "hardest":
        return (wrong_captions.amax(dim=1) + wrong_images.amax(dim=0)).mean()
    return (wrong_captions.sum(dim=1) + wrong_images.sum(dim=0)).mean()


class Ranks(NamedTuple):
    """The numbers of wrong answers that score higher than the best right one; ties count half."""

    captions: torch.Tensor
    """Wrong captions before the best right one of each image, `(n,)`."""
    images: torch.Tensor
    """Wrong images before the right one of each caption, `(m,)`."""


@torch.no_grad()
def retrieval_ranks(
    images: torch.Tensor, captions: torch.Tensor, image_of: torch.Tensor, block: int = 512
) -> Ranks:
    """Return the rank of the right caption for each image, and of the right image for each caption.

    # Parameters

    images, captions : embeddings of unit length, `(n, e)` and `(m, e)`.
    image_of : the row of the image of each caption, `(m,)`; every image has at least one caption.
    block : the number of rows to compare with all others at a time. The scores need memory for
        `block * max(n, m)` numbers.
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
    """Count the scores `(b, x)` above the right one `(b, 1)` in each row; return `(b,)`."""
    return (others > right).sum(dim=1) + 0.5 * (others == right).sum(dim=1)


def recalls(ranks: Ranks) -> dict[str, float]:
    """Return recall@1, 5 and 10 in per cent, from images to texts and back, and their sum `rsum`.

    # Parameters

    ranks : the rank of the right text of each image, and of the right image of each text, from 0.

    # Returns

    `image_to_text_r1`, ..., `text_to_image_r10`, and the sum of all six.
    """
    found = {
        f"{name}_r{k}": 100 * float((each < k).double().mean())
        for name, each in (("image_to_text", ranks.captions), ("text_to_image", ranks.images))
        for k in RANKS
    }
    return {**found, "rsum": sum(found.values())}
