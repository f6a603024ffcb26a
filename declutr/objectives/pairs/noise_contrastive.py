"""Noise contrastive estimation: a binary classification of matching and other pairs."""

import math
from typing import Optional

import torch
from torch import Tensor
from torch.nn.functional import softplus

from declutr.objectives import numerics
from declutr.objectives.distances import off_diagonal
from declutr.objectives.objective import Objective

SIMILARITIES: tuple[str, ...] = ("cosine", "dot")


@numerics.full_precision
def nce_loss(
    positive_logits: Tensor,
    negative_logits: Tensor,
    gamma: Optional[float] = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the logistic loss of positive and negative pairs (Gutmann & Hyvarinen, 2010).

    The loss is `mean softplus(-T+) + gamma * mean softplus(T-)`, which is to be minimised; RECLAIM
    prints its negative, which is to be maximised (equation 3). In the original noise contrastive
    estimation T is log p - log(gamma q) with a known noise density q; here T is any logit. Without
    negatives their term is 0, and without positives the loss is 0.

    # Parameters

    positive_logits : the logits T+ `(n1,)` of positive pairs.
    negative_logits : the logits T- `(n2,)` of negative pairs.
    gamma : the weight of the mean over negatives. `None` means n2 / n1, with which every logit has
        the same weight.
    reduction : `"mean"` for the loss as above, or `"sum"` for n1 times this loss.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    numerics.one_of("reduction", reduction, ("mean", "sum"), ValueError)
    n1, n2 = positive_logits.numel(), negative_logits.numel()
    if n1 == 0:
        return numerics.nothing(positive_logits, negative_logits)
    loss = softplus(-positive_logits).mean()
    if n2:
        loss = loss + (n2 / n1 if gamma is None else gamma) * softplus(negative_logits).mean()
    return n1 * loss if reduction == "sum" else loss


@Objective.register("nce")
class NoiseContrastive(Objective):
    """The logistic loss of the N matching pairs of a batch against the N (N - 1) other pairs.

    The logits are `scale * similarity + bias`, and the loss is `nce_loss`. With cosines, scale 10
    and bias -10, both learnt, and gamma `None` this is the sigmoid loss of SigLIP (Zhai et al.,
    2023). A single pair gives 0.

    # Parameters

    similarity : `"cosine"` or `"dot"`.
    scale : the scale, above 0, or its initial value if it is learnt. Its logarithm is learnt, so
        that the scale stays above 0.
    bias : the bias, or its initial value if it is learnt. With gamma `None` there are N - 1
        negatives for each positive, and -log(N - 1) is the best logit before anything is learnt.
    learn_scale, learn_bias : whether to train the scale and the bias with the model.
    gamma : the weight of the mean over negatives; `None` means N - 1.
    reduction : `"mean"` or `"sum"` over the N positives.
    """

    log_scale: Tensor
    bias: Tensor

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
        self.similarity = numerics.one_of("similarity", similarity, SIMILARITIES)
        self.gamma = None if gamma is None else numerics.above_zero("gamma", gamma)
        self.reduction = numerics.scalar_reduction(reduction)
        log_scale = torch.tensor(math.log(numerics.above_zero("scale", scale)))
        # What is not learnt are buffers, under the same names: torch shards no scalar parameters.
        for name, value, learnt in (
            ("log_scale", log_scale, learn_scale),
            ("bias", torch.tensor(float(bias)), learn_bias),
        ):
            if learnt:
                self.register_parameter(name, torch.nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    @numerics.full_precision
    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        if self.similarity == "cosine":
            anchors, positives = numerics.unit(anchors), numerics.unit(positives)
        logits = self.log_scale.exp() * (anchors @ positives.T) + self.bias  # (N, N)
        if len(logits) == 1:  # A single pair has no negatives.
            return numerics.nothing(logits)
        return nce_loss(logits.diagonal(), off_diagonal(logits), self.gamma, self.reduction)
