"""Normalised temperature-scaled cross entropy, of two views and of classes (SupCon)."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from declutr.objectives.checks import above_zero, check_views, scalar_reduction
from declutr.objectives.numerics import (
    full_precision,
    positive_pairs,
    reduced,
    reduced_where,
    same_label,
    unit,
)
from declutr.objectives.objective import LibraryObjective, MetricLearningObjective, Objective

_BLOCK = 2048  # rows that are compared at once


@full_precision
def nt_xent_loss(
    first: Tensor, second: Tensor, temperature: float = 0.05, reduction: str = "mean"
) -> Tensor:
    """NT-Xent of two views: the cross entropy of finding each row's partner among the other 2N - 1
    (Giorgi et al., 2021, equations 1 and 2).

    For the 2N rows e of both views, with s the cosine,
    `l(i, j) = -s_ij / tau + log sum_{k != i} exp(s_ik / tau)`, j being the row that belongs to i.
    A single pair has no negatives and gives 0.

    # Parameters

    first, second : raw views `(N, d)`.
    temperature : tau.
    reduction : `"mean"` or `"sum"` over the 2N rows, or `"none"` `(2N,)`.

    # Raises

    `ValueError` : views of different shapes, an unknown reduction.
    """
    check_views(first, second)
    rows = unit(torch.cat([first, second]))  # (2N, d)
    own = torch.arange(len(rows), device=rows.device)
    return partner_loss(rows, rows, own, temperature, reduction)


def partner_loss(
    rows: Tensor, candidates: Tensor, own: Tensor, temperature: float, reduction: str
) -> Tensor:
    """NT-Xent of rows against candidates, among which they are themselves.

    One matrix `(2N, K)` is kept for the backward pass; what else there is of that kind is made for
    2,048 rows at a time.

    # Parameters

    rows : unit vectors `(2N, d)`, rows i and N + i belonging together.
    candidates : unit vectors `(K, d)`.
    own : `(2N,)`, where in `candidates` each row is.
    temperature, reduction : as in `nt_xent_loss`; a scalar, or `(2N,)` for "none", is returned.
    """
    scaled = rows / temperature
    partner = own.roll(len(rows) // 2)  # (2N,)
    terms = []
    for start in range(0, max(1, len(rows)), _BLOCK):
        block = slice(start, start + _BLOCK)
        logits = scaled[block] @ candidates.T  # (b, K)
        with torch.no_grad():  # what is left out has no share in the sum, and so no gradient
            logits.scatter_(1, own[block].unsqueeze(1), -math.inf)
        terms.append(cross_entropy(logits, partner[block], reduction="none"))
    return reduced(torch.cat(terms), reduction, rows)


@full_precision
def sup_con_loss(
    embeddings: Tensor, labels: Tensor, temperature: float = 0.1, reduction: str = "mean"
) -> Tensor:
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


@Objective.register("nt_xent")
class NTXent(LibraryObjective):
    """Normalised temperature-scaled cross entropy over the 2N rows of both views: `nt_xent_loss`.

    The loss is the mean over the 2N ordered positive pairs. With a miner the value comes from
    `NTXentLoss` of pytorch-metric-learning: the mean over the mined positive pairs, each against
    the mined negatives of its row.

    # Parameters

    temperature : tau, above 0.
    reduction : `"mean"`, as in the original code, or `"sum"`, as printed in the paper.
    """

    takes_labels = False  # `sup_con` is the loss of classes

    def __init__(self, temperature: float = 0.05, reduction: str = "mean") -> None:
        super().__init__()
        self.temperature = above_zero("temperature", temperature)
        self.reduction = scalar_reduction(reduction)
        self._losses: dict[bool, torch.nn.Module] = {}  # of the library, which hold no numbers

    def forward(
        self, anchors: Tensor, positives: Tensor, *, labels: Tensor | None = None
    ) -> Tensor:
        if labels is None and self._miner is None:
            return nt_xent_loss(anchors, positives, self.temperature, self.reduction)
        return super().forward(anchors, positives, labels=labels)

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        """What `cross_batch_memory` and miners take: `NTXentLoss` with a miner; without one
        `SupConLoss`, equal where each row has one positive."""
        if mined not in self._losses:
            # Only now: training on two views as they are needs none of the library.
            from declutr.objectives.library.library_parts import losses, reducers

            loss = losses.NTXentLoss if mined else losses.SupConLoss
            reducer = reducers.SumReducer if self.reduction == "sum" else reducers.MeanReducer
            self._losses[mined] = loss(temperature=self.temperature, reducer=reducer())
        return self._losses[mined]


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

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return sup_con_loss(embeddings, labels, self.temperature, self.reduction)
