"""Supervised contrastive learning (Khosla et al., 2020)."""

import math

import torch

from declutr.objectives.distances import positive_pairs, same_label, unit
from declutr.objectives.full_precision import full_precision
from declutr.objectives.library.metric_learning import MetricLearningObjective
from declutr.objectives.objective import Objective
from declutr.objectives.reductions import reduced_where
from declutr.objectives.settings import above_zero, scalar_reduction


@full_precision
def sup_con_loss(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    temperature: float = 0.1,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of each row over all others, averaged over the rows of its label.

    `l_i = mean_{p in P(i)} [ -s_ip / tau + log sum_{k != i} exp(s_ik / tau) ]`, s the cosine and
    P(i) the other rows of the label (Khosla et al., 2020, equation 2). The authors' code multiplies
    by tau / 0.07, which is left out. Rows without a positive do not count, nor does anything where
    all labels are one. With one positive a row it is NT-Xent.

    # Parameters

    embeddings : `(M, d)`. labels : `(M,)`.
    temperature : tau.
    reduction : `"mean"`, `"sum"`, or `"none"`, the terms of the rows that count.

    # Raises

    `ValueError` : an unknown reduction.
    """
    rows = unit(embeddings)
    logits = rows @ rows.T / temperature  # (M, M)
    positive = positive_pairs(labels)
    counts = positive.any(dim=1) & ~same_label(labels).all()  # (M,)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # A row that does not count keeps itself, so that it is never a sum of nothing.
    others = logits.masked_fill(itself & counts.unsqueeze(1), -math.inf)
    own = logits.where(positive, 0).sum(dim=1) / positive.sum(dim=1).clamp_min(1)  # (M,)
    return reduced_where(counts, others.logsumexp(dim=1) - own, reduction)


@Objective.register("sup_con")
class SupCon(MetricLearningObjective):
    """Supervised contrastive loss over the 2N rows of both views; see `sup_con_loss`.

    # Parameters

    temperature : tau, above 0.
    reduction : `"mean"` or `"sum"`.
    """

    def __init__(self, temperature: float = 0.1, reduction: str = "mean") -> None:
        super().__init__()
        self.temperature = above_zero("temperature", temperature)
        self.reduction = scalar_reduction(reduction)

    def labelled_loss(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return sup_con_loss(embeddings, labels, self.temperature, self.reduction)
