"""Negatives corrected for false ones (Chuang et al., 2020) and weighted by hardness (Robinson et
al., 2021)."""

import math

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import softplus

from declutr.objectives.checks import above_zero, at_least_zero, check_views, scalar_reduction
from declutr.objectives.numerics import full_precision, nothing, reduced, unit
from declutr.objectives.objective import Objective


def debiased_loss(
    first: Tensor,
    second: Tensor,
    temperature: float = 0.5,
    tau_plus: float = 0.1,
    reduction: str = "mean",
) -> Tensor:
    """Contrast with the share of false negatives taken off (Chuang et al., 2020, eq. 8, M = 1).

    `first` and `second` are raw views `(N, d)`. Over the 2N rows, with `pos = exp(cos+ / tau)`, S
    the sum of `exp(cos / tau)` over the n = 2N - 2 other rows,
    `N_g = max((S - tau_plus n pos) / (1 - tau_plus), n exp(-1 / tau))`, and the loss is
    `-log(pos / (pos + N_g))`. Where the floor holds, negatives have no gradient. `tau_plus` 0 is
    NT-Xent. Not to be called DCL, which also names the decoupled contrastive loss.

    # Parameters

    tau_plus : how probable it is that two things belong together, in [0, 1).
    reduction : `"none"` gives the `(2N,)` terms, those of `first` before those of `second`. A
        single pair has no negatives and gives 0.
    """
    return hard_negative_loss(first, second, temperature, tau_plus, 0.0, reduction=reduction)


@full_precision
def hard_negative_loss(
    first: Tensor,
    second: Tensor,
    temperature: float = 0.5,
    tau_plus: float = 0.1,
    beta: float = 1.0,
    detach_weights: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`debiased_loss` with negatives weighted by their hardness (Robinson et al., 2021, eq. 4).

    S becomes `n sum_k w_k exp(cos_k / tau) / sum_k w_k` with `w_k = exp(beta cos_k / tau)`; the
    temperature in the weights is that of the public code. `beta` 0 is `debiased_loss`.

    # Parameters

    first, second : raw views `(N, d)`.
    beta : concentration on hard negatives, 0 or above.
    detach_weights : let no gradient flow through the weights (the public code lets it).
    """
    check_views(first, second)
    pairs = first.size(0)
    if pairs < 2:
        return reduced(nothing(first, second).expand(2 * pairs), reduction, first, second)
    rows = unit(torch.cat([first, second]))  # (2N, d)
    similarities = rows @ rows.T / temperature  # (2N, 2N)
    positive = torch.cat([similarities.diagonal(pairs), similarities.diagonal(-pairs)])  # (2N,)
    index = torch.arange(2 * pairs, device=rows.device)
    excluded = (index.unsqueeze(1) - index) % pairs == 0  # oneself and one's positive
    negatives = similarities.masked_fill(excluded, -math.inf)
    count = 2 * pairs - 2
    log_sum = negatives.logsumexp(dim=1)  # (2N,)
    if beta:
        weights = beta * (negatives.detach() if detach_weights else negatives)  # logarithms
        weighted = (negatives + weights).logsumexp(dim=1) - weights.logsumexp(dim=1)
        log_sum = math.log(count) + weighted
    log_negatives = _debiased(log_sum, positive, count, temperature, tau_plus)
    return reduced(softplus(log_negatives - positive), reduction)


def _debiased(
    log_sum: Tensor, positive: Tensor, count: int, temperature: float, tau_plus: float
) -> Tensor:
    """log N_g `(2N,)`, all in logarithms: `S - c pos = S (1 - exp(log c + positive - log S))`."""
    if not tau_plus:
        return log_sum  # never below the floor
    share = math.log(tau_plus * count) + positive - log_sum  # of S that is taken off
    floor = math.log(count) - 1 / temperature
    with torch.no_grad():
        left = (-torch.expm1(share)).clamp_min(0).log()  # -inf where nothing is left
        above = log_sum + left - math.log1p(-tau_plus) > floor
    share = share.masked_fill(~above, -1.0)  # a value whose gradient is finite, and unused
    corrected = log_sum + torch.log(-torch.expm1(share)) - math.log1p(-tau_plus)
    return torch.where(above, corrected, floor)


@Objective.register("debiased_contrastive")
class DebiasedContrastive(Objective):
    """`debiased_loss`.

    # Parameters

    temperature : tau, above 0.
    tau_plus : how probable it is that two things belong together, in [0, 1).
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
        self.temperature = above_zero("temperature", temperature)
        self.tau_plus = tau_plus
        self.reduction = scalar_reduction(reduction)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        return hard_negative_loss(
            anchors,
            positives,
            self.temperature,
            self.tau_plus,
            self.beta,
            self.detach_weights,
            self.reduction,
        )


@Objective.register("hard_negative")
class HardNegative(DebiasedContrastive):
    """`hard_negative_loss`.

    # Parameters

    beta : concentration on hard negatives, 0 or above.
    temperature, tau_plus, reduction : as for `debiased_contrastive`.
    detach_weights : let no gradient flow through the weights of negatives.
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
        self.beta = at_least_zero("beta", beta)
        self.detach_weights = detach_weights
