"""Alignment and uniformity of embeddings on the unit sphere (Wang & Isola, 2020)."""

import math

import torch
from torch import Tensor

from declutr.objectives.numerics import above_zero, at_least_zero, check_views, full_precision, unit
from declutr.objectives.objective import Objective


@full_precision
def alignment(x: Tensor, y: Tensor, alpha: float = 2) -> Tensor:
    """Compute the alignment of positive pairs, which is the mean of `|x_i - y_i|^alpha`.

    The best value is 0, and the worst is 2^alpha.

    # Parameters

    x, y : raw embeddings `(N, d)`, of which row i of both belongs together. They are L2-normalised
        here.
    alpha : the power of distances.
    """
    return (unit(x) - unit(y)).norm(dim=-1).pow(alpha).mean()


@full_precision
def uniformity(x: Tensor, t: float = 2, block: int = 4096) -> Tensor:
    """Compute the uniformity of embeddings, the log of the mean of `exp(-t |x_i - x_j|^2)`.

    The mean is over all pairs of different rows. Lower values are more uniform: the value is 0 if
    all rows have the same direction, and never below -4t.

    # Parameters

    x : raw embeddings `(N, d)`, N >= 2, which are L2-normalised here.
    t : the sharpness.
    block : the number of rows that are compared with all rows at once, so that memory grows with N
        and not with its square.

    # Raises

    `ValueError` : if there are fewer than two rows.
    """
    n = x.size(0)
    if n < 2:
        raise ValueError(f"Uniformity needs at least two embeddings, got {n}.")
    x = unit(x)
    sums = []
    for start in range(0, n, block):
        rows = x[start : start + block]  # (b, d)
        squared = (2 - 2 * rows @ x.T).clamp_min(0)  # (b, n): |a - b|^2 = 2 - 2ab for unit vectors
        nearness = -t * squared
        # A row is not compared with itself. Its own term adds nothing to the sum and has no
        # gradient, so autograd need not know that it is overwritten.
        with torch.no_grad():
            nearness.diagonal(start).fill_(-math.inf)
        sums.append(nearness.logsumexp(dim=1))
    return torch.cat(sums).logsumexp(dim=0) - math.log(n * (n - 1))


@full_precision
def align_uniform_loss(
    first: Tensor,
    second: Tensor,
    alpha: float = 2,
    t: float = 2,
    align_weight: float = 1.0,
    uniform_weight: float = 1.0,
) -> Tensor:
    """Compute the weighted sum of the alignment of two views and of their mean uniformity.

    The loss is `w_a align(x, y) + w_u (uniform(x) + uniform(y)) / 2` (Wang & Isola, 2020, section
    4). Both terms are means by definition, so there is no `reduction`.

    # Parameters

    first, second : raw views `(N, d)`; they are L2-normalised here.
    alpha, t : the power of distances in alignment, and the sharpness of uniformity.
    align_weight, uniform_weight : the weights w_a and w_u of the two terms.

    # Raises

    `ValueError` : if the views differ in shape or have fewer than two rows.
    """
    check_views(first, second)
    spread = (uniformity(first, t) + uniformity(second, t)) / 2
    return align_weight * alignment(first, second, alpha) + uniform_weight * spread


@Objective.register("align_uniform")
class AlignUniform(Objective):
    """The alignment and uniformity of two views as a loss; see `align_uniform_loss`.

    # Parameters

    alpha, t : the power of distances in alignment and the sharpness of uniformity, both above 0.
    align_weight, uniform_weight : the weights of the two terms, 0 or above.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        t: float = 2.0,
        align_weight: float = 1.0,
        uniform_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.alpha = above_zero("alpha", alpha)
        self.t = above_zero("t", t)
        self.align_weight = at_least_zero("align_weight", align_weight)
        self.uniform_weight = at_least_zero("uniform_weight", uniform_weight)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        settings = self.alpha, self.t, self.align_weight, self.uniform_weight
        return align_uniform_loss(anchors, positives, *settings)
