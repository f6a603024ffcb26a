"""Noise contrastive estimation: pairs against non-pairs, each decided on its own."""

import math
from typing import Optional

import torch
from torch import Tensor
from torch.nn.functional import softplus

from declutr.objectives.checks import above_zero, one_of, scalar_reduction
from declutr.objectives.numerics import full_precision, nothing, off_diagonal, unit
from declutr.objectives.objective import Objective

SIMILARITIES = ("cosine", "dot")


@full_precision
def nce_loss(
    positive_logits: Tensor,
    negative_logits: Tensor,
    gamma: Optional[float] = None,
    reduction: str = "mean",
) -> Tensor:
    """Logistic regression of pairs against non-pairs (Gutmann & Hyvarinen, 2010).

    `mean softplus(-T+) + gamma * mean softplus(T-)`, to be minimised. RECLAIM prints what is to be
    maximised, this with the sign turned (equation 3). NCE proper has T = log p - log(gamma q) with
    a known noise density q; here T is free. No negatives: their term is 0. No positives: 0.

    # Parameters

    positive_logits : `(n1,)`. negative_logits : `(n2,)`.
    gamma : weight of the negatives' mean; `None` is n2 / n1, where every logit weighs the same.
    reduction : `"mean"` as above, or `"sum"`: n1 times that.

    # Raises

    `ValueError` : an unknown reduction.
    """
    one_of("reduction", reduction, ("mean", "sum"), ValueError)
    n1, n2 = positive_logits.numel(), negative_logits.numel()
    if n1 == 0:
        return nothing(positive_logits, negative_logits)
    loss = softplus(-positive_logits).mean()
    if n2:
        loss = loss + (n2 / n1 if gamma is None else gamma) * softplus(negative_logits).mean()
    return n1 * loss if reduction == "sum" else loss


@Objective.register("nce")
class NoiseContrastive(Objective):
    """NCE over a batch: the N matching pairs against the N (N - 1) others; see `nce_loss`.

    The logits are `scale * similarity + bias`. With cosine, both learnt, gamma `None`, scale 10 and
    bias -10 this is the sigmoid loss of SigLIP (Zhai et al., 2023). One pair alone gives 0.

    # Parameters

    similarity : `"cosine"` or `"dot"`.
    scale : above 0; where it begins, if it is learnt (in the logarithm, so it stays above 0).
    bias : where it begins, if it is learnt. With gamma `None` there are N - 1 negatives to a
        positive, and -log(N - 1) is the logit of a pair that nothing is known about.
    learn_scale, learn_bias : train them with the model.
    gamma : weight of the negatives' mean; `None` is N - 1.
    reduction : `"mean"` or `"sum"` over the N positives.
    """

    def __init__(
        self,
        similarity: str = "cosine",
        scale: float = 10.0,
        bias: float = 0.0,
        learn_scale: bool = False,
        learn_bias: bool = False,
        gamma: Optional[float] = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.similarity = one_of("similarity", similarity, SIMILARITIES)
        self.gamma = None if gamma is None else above_zero("gamma", gamma)
        self.reduction = scalar_reduction(reduction)
        log_scale = torch.tensor(math.log(above_zero("scale", scale)))
        self.log_scale = torch.nn.Parameter(log_scale, requires_grad=learn_scale)
        self.bias = torch.nn.Parameter(torch.tensor(float(bias)), requires_grad=learn_bias)

    @full_precision
    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        if self.similarity == "cosine":
            anchors, positives = unit(anchors), unit(positives)
        logits = self.log_scale.exp() * (anchors @ positives.T) + self.bias  # (N, N)
        if len(logits) == 1:  # nothing to tell the pair from
            return nothing(logits)
        return nce_loss(logits.diagonal(), off_diagonal(logits), self.gamma, self.reduction)
