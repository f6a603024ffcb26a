"""Distances between embeddings, and a divergence between predictions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from declutr.objectives.numerics import full_precision, reduced
from declutr.objectives.numerics import same_label as same_label
from declutr.objectives.numerics import unit as unit

# Rounding leaves a squared distance between equal rows of up to this times their squared lengths.
_ROUNDING = 1e-13


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return `|x_i - y_j|^2` between all rows of `x` `(N, d)` and all rows of `y` `(M, d)`.

    They are computed as `|x|^2 + |y|^2 - 2xy` in float64: in float32 that difference of large
    numbers would lose its digits. Subtracting each row from each other row is ten times slower.

    # Returns

    Distances `(N, M)` in the dtype of `x`.
    """
    squared, apart = _squared(x, y)
    return squared.where(apart, 0).to(x.dtype)


def euclidean_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return `|x_i - y_j|` between all rows of `x` `(N, d)` and all rows of `y` `(M, d)`.

    The distance between equal rows is 0, and its gradient is 0.

    # Returns

    Distances `(N, M)` in the dtype of `x`.
    """
    squared, apart = _squared(x, y)
    # The gradient of a square root is infinite at 0, so the root is taken of 1 in its place.
    return squared.where(apart, 1).sqrt().where(apart, 0).to(x.dtype)


def _squared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return squared distances in float64, and a mask of those above the rounding error of 0."""
    x, y = x.double(), y.double()
    lengths = x.pow(2).sum(dim=1, keepdim=True) + y.pow(2).sum(dim=1)  # (N, M)
    squared = lengths - 2 * x @ y.T
    return squared, squared > _ROUNDING * lengths


def off_diagonal(square: Tensor) -> Tensor:
    """Return all elements of a matrix `(N, N)` but the diagonal as `(N (N - 1),)`, row by row."""
    n = len(square)
    # In the flattened matrix every (n + 1)-th element, from the first on, is of the diagonal.
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].flatten()


@full_precision
def jensen_shannon(
    logits_p: Tensor, logits_q: Tensor, reduction: str = "mean", more: Sequence[Tensor] = ()
) -> Tensor:
    """Compute the Jensen-Shannon divergence of two predictions, or more, over C classes, in nats.

    The divergence is `KL(P || M) / 2 + KL(Q || M) / 2` with `M = (P + Q) / 2`; of V predictions it
    is the mean of all `KL(P_v || M)`, M their mean. It is symmetric and lies in [0, log V]. It is
    the consistency term of cutoff, between the predictions for a text and for the same text with
    parts cut out (Shen et al., 2020, section 3.3). The public code computes `KL(M || P) / 2 +
    KL(M || Q) / 2` instead, which has no upper bound.

    # Parameters

    logits_p, logits_q : scores `(N, C)`; `-inf` rules a class out.
    reduction : `"mean"`, `"sum"` or `"none"` over the N divergences.
    more : further predictions, scores `(N, C)` each.

    # Raises

    `ValueError` : if the predictions are not all `(N, C)` or the reduction is unknown.
    """
    views = [logits_p, logits_q, *more]
    if any(view.shape != logits_p.shape or view.dim() != 2 for view in views):
        raise ValueError(
            "Expected two predictions (N, C) of the same shape, or more, got "
            f"{' and '.join(str(tuple(view.shape)) for view in views)}."
        )
    # 0 * log 0 counts as 0, but 0 * -inf is not a number: a class that is ruled out gets a finite
    # logarithm instead, a quarter of the lowest so that sums do not overflow.
    logs = log_softmax(torch.stack(views), dim=2)  # (V, N, C)
    logs = logs.clamp_min(torch.finfo(logs.dtype).min / 4)
    terms = logs.exp() * (logs - (logs.logsumexp(dim=0) - math.log(len(views))))
    return reduced(terms.sum(dim=2).mean(dim=0), reduction, *views)
