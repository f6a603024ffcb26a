"""Contrastive losses that correct for false negatives and emphasise hard negatives.

The debiased contrastive loss is from Chuang et al. (2020), its form with hard negatives from
Robinson et al. (2021).
"""

import math

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import softplus

from declutr.objectives import numerics
from declutr.objectives.objective import Objective


def debiased_loss(
    first: Tensor,
    second: Tensor,
    temperature: float = 0.5,
    tau_plus: float = 0.1,
    reduction: str = "mean",
) -> Tensor:
    """Compute the debiased contrastive loss, which corrects for the share of false negatives.

    For each of the 2N rows of both views let `pos = exp(cos+ / tau)`, let S be the sum of
    `exp(cos / tau)` over the n = 2N - 2 other rows, and let
    `N_g = max((S - tau_plus n pos) / (1 - tau_plus), n exp(-1 / tau))`. The loss of the row is
    `-log(pos / (pos + N_g))` (Chuang et al., 2020, equation 8, with M = 1). Where N_g is at its
    floor, negatives have no gradient. A single pair has no negatives and gives 0.

    With `tau_plus` 0 this is NT-Xent. The loss is not called DCL here because that also names the
    decoupled contrastive loss.

    # Parameters

    first, second : raw views `(N, d)`; they are L2-normalised here.
    temperature : tau.
    tau_plus : the probability that two texts belong together, in [0, 1).
    reduction : `"mean"` or `"sum"` over the 2N rows, or `"none"` for the losses `(2N,)`, those of
        `first` before those of `second`.

    # Raises

    `ValueError` : if the views differ in shape or the reduction is unknown.
    """
    return hard_negative_loss(first, second, temperature, tau_plus, 0.0, reduction=reduction)


@numerics.full_precision
def hard_negative_loss(
    first: Tensor,
    second: Tensor,
    temperature: float = 0.5,
    tau_plus: float = 0.1,
    beta: float = 1.0,
    detach_weights: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Compute the debiased contrastive loss with negatives weighted by their hardness.

    The sum S of `debiased_loss` becomes `n sum_k w_k exp(cos_k / tau) / sum_k w_k` with the weights
    `w_k = exp(beta cos_k / tau)` (Robinson et al., 2021, equation 4). The temperature in the
    weights is from the public code. With `beta` 0 this is `debiased_loss`.

    # Parameters

    first, second, temperature, tau_plus, reduction : see `debiased_loss`.
    beta : the concentration on hard negatives, 0 or above.
    detach_weights : whether the weights have no gradient; in the public code they have one.

    # Raises

    `ValueError` : if the views differ in shape or the reduction is unknown.
    """
    numerics.check_views(first, second)
    pairs = first.size(0)
    if pairs < 2:
        nothing = numerics.nothing(first, second).expand(2 * pairs)
        return numerics.reduced(nothing, reduction, first, second)
    rows = numerics.unit(torch.cat([first, second]))  # (2N, d)
    similarities = rows @ rows.T / temperature  # (2N, 2N)
    positive = torch.cat([similarities.diagonal(pairs), similarities.diagonal(-pairs)])  # (2N,)
    index = torch.arange(2 * pairs, device=rows.device)
    excluded = (index.unsqueeze(1) - index) % pairs == 0  # the row itself and its positive
    negatives = similarities.masked_fill(excluded, -math.inf)
    count = 2 * pairs - 2
    log_sum = negatives.logsumexp(dim=1)  # (2N,)
    if beta:
        weights = beta * (negatives.detach() if detach_weights else negatives)  # log w_k
        weighted = (negatives + weights).logsumexp(dim=1) - weights.logsumexp(dim=1)
        log_sum = math.log(count) + weighted
    log_negatives = _debiased(log_sum, positive, count, temperature, tau_plus)
    return numerics.reduced(softplus(log_negatives - positive), reduction)


def _debiased(
    log_sum: Tensor, positive: Tensor, count: int, temperature: float, tau_plus: float
) -> Tensor:
    """Return log N_g `(2N,)`, computed in logarithms so that nothing overflows.

    It uses `S - c pos = S (1 - exp(log c + log pos - log S))`, where c is `tau_plus * count`.
    """
    if not tau_plus:
        return log_sum  # Without a correction N_g is S, which is never below the floor.
    share = math.log(tau_plus * count) + positive - log_sum  # log of the share of S to subtract
    floor = math.log(count) - 1 / temperature
    with torch.no_grad():
        left = (-torch.expm1(share)).clamp_min(0).log()  # -inf where all of S is subtracted
        above = log_sum + left - math.log1p(-tau_plus) > floor
    # `torch.where` would multiply the infinite gradients of unused elements by 0, which is not a
    # number: any value with a finite gradient takes their place.
    share = share.masked_fill(~above, -1.0)
    corrected = log_sum + torch.log(-torch.expm1(share)) - math.log1p(-tau_plus)
    return torch.where(above, corrected, floor)


@Objective.register("debiased_contrastive")
class DebiasedContrastive(Objective):
    """The debiased contrastive loss of two views; see `debiased_loss`.

    # Parameters

    temperature : tau, above 0.
    tau_plus : the probability that two texts belong together, in [0, 1).
    reduction : `"mean"` or `"sum"` over the 2N rows.
    """

    beta: float = 0.0
    detach_weights: bool = False

    def __init__(
        self, temperature: float = 0.5, tau_plus: float = 0.1, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if not 0 <= tau_plus < 1:
            raise ConfigurationError(f"tau_plus must be in [0, 1), got {tau_plus}.")
        self.temperature = numerics.above_zero("temperature", temperature)
        self.tau_plus = tau_plus
        self.reduction = numerics.scalar_reduction(reduction)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        settings = (self.temperature, self.tau_plus, self.beta, self.detach_weights)
        return hard_negative_loss(anchors, positives, *settings, self.reduction)


@Objective.register("hard_negative")
class HardNegative(DebiasedContrastive):
    """The debiased contrastive loss with hard negatives; see `hard_negative_loss`.

    # Parameters

    beta : the concentration on hard negatives, 0 or above.
    temperature, tau_plus, reduction : see `debiased_contrastive`.
    detach_weights : whether the weights of negatives have no gradient.
    """

    def __init__(
        self,
        beta: float = 1.0,
        temperature: float = 0.5,
        tau_plus: float = 0.1,
        detach_weights: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(temperature, tau_plus, reduction)
        self.beta = numerics.at_least_zero("beta", beta)
        self.detach_weights = detach_weights
