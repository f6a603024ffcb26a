"""The hinge loss of VSE++: the right one must be nearer than the wrong ones, by a margin."""

from __future__ import annotations

import torch

from declutr.objectives.numerics import full_precision

NEGATIVES = ("hardest", "all")


@full_precision
def matching_loss(
    images: torch.Tensor,
    captions: torch.Tensor,
    image_ids: torch.Tensor,
    margin: float = 0.2,
    negatives: str = "hardest",
) -> torch.Tensor:
    """`max_c' [a + s(i, c') - s(i, c)]+  +  max_i' [a + s(i', c) - s(i, c)]+` (Faghri et al., 2018,
    equation 6), the mean over pairs; their code takes the sum.

    Captions of the same image are no negatives of it. Without negatives the loss is 0.

    # Parameters

    images, captions : of unit length, `(n, e)`; row i of both belong together.
    image_ids : `(n,)`, which image it is.
    margin : a.
    negatives : `"hardest"` of the batch, or `"all"`, the sum over them (equation 5).

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
