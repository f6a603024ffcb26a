"""Prediction of a slowly moving target network (BYOL; Grill et al., 2020)."""

import math

from torch import Tensor

from declutr.objectives.numerics import check_views, full_precision, reduced, scalar_reduction, unit
from declutr.objectives.objective import Objective


@full_precision
def byol_loss(predictions: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the BYOL loss of predicting the targets of one view from the other view.

    The loss of prediction p and target t is `|p - t|^2 = 2 - 2 cos(p, t)`, which lies in [0, 4]
    (Grill et al., 2020, equation 2). The squares are summed over the d features; the mean over
    them, which some implementations take, is d times smaller.

    # Parameters

    predictions, targets : raw rows `(N, d)` of different views. Both are L2-normalised here, and
        targets get no gradient.
    reduction : `"mean"` or `"sum"` over the N rows, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes differ or the reduction is unknown.
    """
    check_views(predictions, targets)
    cosines = (unit(predictions) * unit(targets.detach())).sum(dim=-1)
    return reduced(2 - 2 * cosines, reduction, predictions)


def symmetric_byol_loss(
    first_predictions: Tensor,
    second_predictions: Tensor,
    first_targets: Tensor,
    second_targets: Tensor,
    reduction: str = "mean",
) -> Tensor:
    """Add the BYOL losses of both directions: each view predicts the targets of the other.

    The loss of a row lies in [0, 8].

    # Parameters

    first_predictions, second_predictions : raw predictions `(N, d)` from each view.
    first_targets, second_targets : raw targets `(N, d)` from each view, which get no gradient.
    reduction : see `byol_loss`.

    # Raises

    `ValueError` : if shapes differ or the reduction is unknown.
    """
    one = byol_loss(first_predictions, second_targets, reduction)
    return one + byol_loss(second_predictions, first_targets, reduction)


def target_momentum(step: int, steps: int, base: float = 0.996) -> float:
    """Return the momentum of the target network, which rises from `base` to 1 along a cosine.

    The momentum is the share of the target that stays when it is updated, after the optimizer. At
    step k of K it is `1 - (1 - base) (cos(pi k / K) + 1) / 2` (Grill et al., 2020, section 3.3).

    >>> target_momentum(0, 10), target_momentum(10, 10)
    (0.996, 1.0)

    # Parameters

    step, steps : k and K. Steps beyond K have the momentum 1.
    base : the momentum of step 0.

    # Raises

    `ValueError` : if `steps` is below 1 or `step` is below 0.
    """
    if steps < 1 or step < 0:
        raise ValueError(f"Expected steps >= 1 and step >= 0, got {steps} and {step}.")
    return 1 - (1 - base) * (math.cos(math.pi * min(step / steps, 1)) + 1) / 2


@Objective.register("byol")
class BYOL(Objective):
    """The BYOL loss of predictions and targets of both views; see `symmetric_byol_loss`.

    `forward(predictions, targets)` with two tensors computes `byol_loss`, which is one direction.

    # Parameters

    reduction : `"mean"` or `"sum"` over the rows.
    """

    min_pairs = 1  # The loss needs no negatives.

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = scalar_reduction(reduction)

    def forward(
        self,
        anchors: Tensor,
        positives: Tensor,
        target_anchors: Tensor | None = None,
        target_positives: Tensor | None = None,
    ) -> Tensor:
        if target_anchors is None or target_positives is None:
            return byol_loss(anchors, positives, self.reduction)
        targets = target_anchors, target_positives
        return symmetric_byol_loss(anchors, positives, *targets, self.reduction)
