"""Predicting a slowly moving target, without negatives (BYOL; Grill et al., 2020)."""

import math

from torch import Tensor

from declutr.objectives.checks import check_views, scalar_reduction
from declutr.objectives.numerics import full_precision, reduced, unit
from declutr.objectives.objective import Objective


@full_precision
def byol_loss(predictions: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """`|p - sg(t)|^2 = 2 - 2 cos(p, sg(t))` of one direction (Grill et al., 2020, equation 2).

    `predictions` and `targets` are raw `(N, d)`, of different views; both are L2-normalised here
    and targets get no gradient. In [0, 4]. The square is summed over features: the mean over
    elements, which some code takes, is d times smaller.
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
    """Both directions added, in [0, 8]: the predictions of one view against targets of the other.

    All are raw `(N, d)`; `first` and `second` name the view a row was computed from.
    """
    return byol_loss(first_predictions, second_targets, reduction) + byol_loss(
        second_predictions, first_targets, reduction
    )


def target_momentum(step: int, steps: int, base: float = 0.996) -> float:
    """`tau_k = 1 - (1 - tau_base) (cos(pi k / K) + 1) / 2` (Grill et al., 2020, section 3.3).

    How much of the target stays at step k of K, to be applied after the optimiser: from `base` up
    to 1. Steps beyond K give 1.

    # Raises

    `ValueError` : `steps` below 1 or `step` below 0.
    """
    if steps < 1 or step < 0:
        raise ValueError(f"Expected steps >= 1 and step >= 0, got {steps} and {step}.")
    return 1 - (1 - base) * (math.cos(math.pi * min(step / steps, 1)) + 1) / 2


@Objective.register("byol")
class BYOL(Objective):
    """`symmetric_byol_loss` of predictions and targets of both views.

    With two tensors it is `byol_loss(predictions, targets)`, one direction.

    # Parameters

    reduction : `"mean"` or `"sum"` over the rows.
    """

    min_pairs = 1  # there are no negatives

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
        return symmetric_byol_loss(
            anchors, positives, target_anchors, target_positives, self.reduction
        )
