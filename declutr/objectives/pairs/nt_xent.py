"""Normalised temperature-scaled cross entropy, of the two views of a batch."""

import math
from typing import Optional

import torch
from torch.nn.functional import cross_entropy

from declutr.objectives.distances import unit
from declutr.objectives.full_precision import full_precision
from declutr.objectives.library.metric_learning import LibraryObjective, without_labels
from declutr.objectives.objective import Objective
from declutr.objectives.reductions import reduced
from declutr.objectives.settings import above_zero, scalar_reduction
from declutr.objectives.views import check_views

_BLOCK = 2048  # rows that are compared at once


@full_precision
def nt_xent_loss(
    first: torch.Tensor,
    second: torch.Tensor,
    temperature: float = 0.05,
    reduction: str = "mean",
) -> torch.Tensor:
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
    rows: torch.Tensor,
    candidates: torch.Tensor,
    own: torch.Tensor,
    temperature: float,
    reduction: str,
) -> torch.Tensor:
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

    def __init__(self, temperature: float = 0.05, reduction: str = "mean") -> None:
        super().__init__()
        self.temperature = above_zero("temperature", temperature)
        self.reduction = scalar_reduction(reduction)
        self._losses: dict[bool, torch.nn.Module] = {}  # of the library, which hold no numbers

    @property
    def inputs(self) -> dict[str, bool]:
        return without_labels(super().inputs)  # `sup_con` is the loss of classes

    def forward(
        self,
        anchors: torch.Tensor,
        positives: torch.Tensor,
        *,
        labels: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
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
