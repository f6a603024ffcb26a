"""Normalised temperature-scaled cross entropy (NT-Xent), and its supervised form (SupCon)."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from declutr.objectives import numerics
from declutr.objectives.objective import LibraryObjective, MetricLearningObjective, Objective

_BLOCK = 2048  # the number of rows that are compared with all candidates at once


@numerics.full_precision
def nt_xent_loss(
    first: Tensor, second: Tensor, temperature: float = 0.05, reduction: str = "mean"
) -> Tensor:
    """Compute NT-Xent, the cross entropy of finding each row's partner among all other rows.

    Over the 2N rows of both views, the loss of row i is
    `l(i, j) = -s_ij / tau + log sum_{k != i} exp(s_ik / tau)`, where s is the cosine and j is the
    row of the other view that belongs to i (Giorgi et al., 2021, equations 1 and 2). A single pair
    has no negatives and gives 0.

    >>> round(nt_xent_loss(torch.eye(2), torch.eye(2), temperature=1.0).item(), 4)
    0.5514

    # Parameters

    first, second : raw views `(N, d)`; they are L2-normalised here.
    temperature : tau.
    reduction : `"mean"` or `"sum"` over the 2N rows, or `"none"` for the losses `(2N,)`.

    # Raises

    `ValueError` : if the views differ in shape or the reduction is unknown.
    """
    numerics.check_views(first, second)
    rows = numerics.unit(torch.cat([first, second]))  # (2N, d)
    own = torch.arange(len(rows), device=rows.device)
    return partner_loss(rows, rows, own, temperature, reduction)


def partner_loss(
    rows: Tensor, candidates: Tensor, own: Tensor, temperature: float, reduction: str
) -> Tensor:
    """Compute NT-Xent of rows against a matrix of candidates that contains the rows themselves.

    One matrix `(2N, K)` is kept for the backward pass. All other matrices of that kind are made for
    2,048 rows at a time.

    # Parameters

    rows : unit vectors `(2N, d)`, of which rows i and N + i belong together.
    candidates : unit vectors `(K, d)`.
    own : the index `(2N,)` of each row in `candidates`.
    temperature, reduction : see `nt_xent_loss`.

    # Returns

    A scalar, or the losses `(2N,)` for the reduction `"none"`.
    """
    scaled = rows / temperature
    partner = own.roll(len(rows) // 2)  # (2N,)
    terms = []
    for start in range(0, max(1, len(rows)), _BLOCK):
        block = slice(start, start + _BLOCK)
        logits = scaled[block] @ candidates.T  # (b, K)
        # A row is not its own candidate. Its logit adds nothing to the sum and has no gradient, so
        # autograd need not know that it is overwritten.
        with torch.no_grad():
            logits.scatter_(1, own[block].unsqueeze(1), -math.inf)
        terms.append(cross_entropy(logits, partner[block], reduction="none"))
    return numerics.reduced(torch.cat(terms), reduction, rows)


@numerics.full_precision
def sup_con_loss(
    embeddings: Tensor, labels: Tensor, temperature: float = 0.1, reduction: str = "mean"
) -> Tensor:
    """Compute the supervised contrastive loss, in which rows with the same label are positives.

    The loss of row i is `l_i = mean_{p in P(i)} [ -s_ip / tau + log sum_{k != i} exp(s_ik / tau) ]`
    where s is the cosine and P(i) are the other rows with the label of i (Khosla et al., 2020,
    equation 2). The authors' code multiplies by tau / 0.07, which is left out here. Rows without a
    positive are left out, and so are all rows if there is only one label. With one positive for
    each row this is NT-Xent.

    # Parameters

    embeddings : raw embeddings `(M, d)`; they are L2-normalised here.
    labels : their classes `(M,)`.
    temperature : tau.
    reduction : `"mean"` or `"sum"` over the rows that are not left out, or `"none"` for their
        losses.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    rows = numerics.unit(embeddings)
    logits = rows @ rows.T / temperature  # (M, M)
    positive = numerics.positive_pairs(labels)
    counts = positive.any(dim=1) & ~numerics.same_label(labels).all()  # (M,)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # A row that is left out keeps its own logit: the logarithm of an empty sum is not finite.
    others = logits.masked_fill(itself & counts.unsqueeze(1), -math.inf)
    own = logits.where(positive, 0).sum(dim=1) / positive.sum(dim=1).clamp_min(1)  # (M,)
    return numerics.reduced_where(counts, others.logsumexp(dim=1) - own, reduction)


@Objective.register("nt_xent")
class NTXent(LibraryObjective):
    """The normalised temperature-scaled cross entropy of two views; see `nt_xent_loss`.

    The loss is the mean over the 2N ordered positive pairs. With a miner it comes from `NTXentLoss`
    of pytorch-metric-learning: the mean over the mined positive pairs, each against the mined
    negatives of its row.

    # Parameters

    temperature : tau, above 0.
    reduction : `"mean"`, as in the original code, or `"sum"`, as printed in the paper.
    """

    takes_labels = False  # For labels that are classes there is `sup_con`.

    def __init__(self, temperature: float = 0.05, reduction: str = "mean") -> None:
        super().__init__()
        self.temperature = numerics.above_zero("temperature", temperature)
        self.reduction = numerics.scalar_reduction(reduction)
        # Losses of pytorch-metric-learning, with and without a miner. They have no state to save.
        self._losses: dict[bool, torch.nn.Module] = {}

    def forward(
        self, anchors: Tensor, positives: Tensor, *, labels: Tensor | None = None
    ) -> Tensor:
        if labels is None and self._miner is None:
            return nt_xent_loss(anchors, positives, self.temperature, self.reduction)
        return super().forward(anchors, positives, labels=labels)

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        """Return the equivalent loss of pytorch-metric-learning, for a miner or a memory of rows.

        # Parameters

        mined : whether a miner selects the pairs.

        # Returns

        `NTXentLoss` with a miner. Without one, `SupConLoss`, which is equal to NT-Xent where each
        row has one positive.
        """
        if mined not in self._losses:
            # The import is here because training on two views without a miner does not need the
            # library.
            from declutr.objectives.library.library_parts import losses, reducers

            loss = losses.NTXentLoss if mined else losses.SupConLoss
            reducer = reducers.SumReducer if self.reduction == "sum" else reducers.MeanReducer
            self._losses[mined] = loss(temperature=self.temperature, reducer=reducer())
        return self._losses[mined]


@Objective.register("sup_con")
class SupCon(MetricLearningObjective):
    """The supervised contrastive loss over the 2N rows of both views; see `sup_con_loss`.

    # Parameters

    temperature : tau, above 0.
    reduction : `"mean"` or `"sum"`.
    """

    def __init__(self, temperature: float = 0.1, reduction: str = "mean") -> None:
        super().__init__()
        self.temperature = numerics.above_zero("temperature", temperature)
        self.reduction = numerics.scalar_reduction(reduction)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return sup_con_loss(embeddings, labels, self.temperature, self.reduction)
