"""Alignment and uniformity of embeddings on the unit sphere (Wang & Isola, 2020)."""

import math

import torch
from torch import Tensor

from declutr.objectives.checks import above_zero, at_least_zero, check_views
from declutr.objectives.numerics import full_precision, unit
from declutr.objectives.objective import Objective


@full_precision
def alignment(x: Tensor, y: Tensor, alpha: float = 2) -> Tensor:
    """Mean of |x_i - y_i|^alpha over positive pairs; 0 is perfect, 4 the worst for alpha 2.

    `x` and `y` are raw `(N, d)`; they are L2-normalised here.
    """
    return (unit(x) - unit(y)).norm(dim=-1).pow(alpha).mean()


@full_precision
def uniformity(x: Tensor, t: float = 2, block: int = 4096) -> Tensor:
    """Logarithm of the mean of exp(-t |x_i - x_j|^2) over distinct pairs; lower is more uniform.

    `x` is raw `(N, d)`, N >= 2, and is L2-normalised here. 0 when all rows point the same way, -4t
    at the least. Computed in blocks of rows, so that memory grows with N only.

    # Raises

    `ValueError` : fewer than two rows.
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
        with torch.no_grad():  # a row by itself is left out, and what is left out has no gradient
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
    """`w_a align(x, y) + w_u (uniform(x) + uniform(y)) / 2` (Wang & Isola, 2020, section 4).

    `first` and `second` are raw views `(N, d)`. Both terms are means by definition, so there is no
    `reduction`.

    # Raises

    `ValueError` : fewer than two rows.
    """
    check_views(first, second)
    spread = (uniformity(first, t) + uniformity(second, t)) / 2
    return align_weight * alignment(first, second, alpha) + uniform_weight * spread


@Objective.register("align_uniform")
class AlignUniform(Objective):
    """`align_uniform_loss`.

    # Parameters

    alpha, t : the power of distances in alignment, the sharpness of uniformity; above 0.
    align_weight, uniform_weight : of the two terms.
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
        return align_uniform_loss(
            anchors, positives, self.alpha, self.t, self.align_weight, self.uniform_weight
        )
