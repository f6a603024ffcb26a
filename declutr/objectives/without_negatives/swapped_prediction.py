"""Predicting the cluster of the other view (SwAV; Caron et al., 2020)."""

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from declutr.objectives.checks import (
    above_zero,
    at_least_zero,
    check_views,
    check_width,
    scalar_reduction,
)
from declutr.objectives.memories.momentum_contrast import KeyQueue
from declutr.objectives.numerics import full_precision, reduced, unit
from declutr.objectives.objective import Objective


@torch.no_grad()
@full_precision
def sinkhorn_assignments(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Soft assignments `(N, K)` of rows to prototypes that use all prototypes equally.

    `scores` `(N, K)` are cosines. `exp(scores / epsilon)` is scaled by turns so that all
    prototypes get the same and each row 1 (Sinkhorn-Knopp; Caron et al., 2020, equations 3 to 5),
    in logarithms. Rows come last: each sums to 1, and prototypes get N / K in the limit. No
    gradient.
    """
    logs = scores / epsilon
    for _ in range(iterations):
        logs = logs - logs.logsumexp(dim=0, keepdim=True)
        logs = logs - logs.logsumexp(dim=1, keepdim=True)
    return logs.softmax(dim=1)


@full_precision
def swav_loss(
    first: Tensor,
    second: Tensor,
    prototypes: Tensor,
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
    first_queue: Tensor | None = None,
    second_queue: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`-(q_second log p_first + q_first log p_second) / 2` (Caron et al., 2020, equations 1 and 2).

    p is the softmax of a row's cosines with the prototypes over `temperature`, q its
    `sinkhorn_assignments`, which is a constant. The paper adds both directions; its code averages
    them, and so does this.

    # Parameters

    first, second : raw views `(N, d)`.
    prototypes : raw `(K, d)`, with a gradient through p.
    first_queue, second_queue : raw earlier rows `(Q, d)` of each view, which take part in the
        assignment only: a batch smaller than K cannot use all prototypes equally.
    """
    check_views(first, second)
    check_width(first, prototypes)
    prototypes = unit(prototypes.to(first.dtype))
    logs, assignments = [], []
    for view, queue in ((first, first_queue), (second, second_queue)):
        scores = unit(view) @ prototypes.T  # (N, K)
        logs.append(log_softmax(scores / temperature, dim=1))
        together = scores.detach()
        if queue is not None:
            earlier = unit(queue.detach().to(view.dtype))
            together = torch.cat([earlier @ prototypes.detach().T, together])  # (Q + N, K)
        assigned = sinkhorn_assignments(together, epsilon, iterations)
        assignments.append(assigned[assigned.size(0) - view.size(0) :])
    terms = -(assignments[1] * logs[0] + assignments[0] * logs[1]).sum(dim=1) / 2
    return reduced(terms, reduction, first, second)


@Objective.register("swav")
class SwappedPrediction(Objective):
    """`swav_loss` with its prototypes and, optionally, a queue of earlier rows for each view.

    A queue serves only once it is full, as in the public code. Prototypes and queues are saved in
    checkpoints. Prototypes count by their direction only.

    # Parameters

    embedding_size : d.
    prototypes : K; the batch and the queue together should be several times as many.
    temperature : of the predictions, above 0.
    epsilon : entropy of the assignments, above 0; small is hard.
    iterations : of Sinkhorn-Knopp, 1 or more.
    queue_size : earlier rows a view; 0 for none.
    reduction : `"mean"` or `"sum"` over the rows.
    """

    def __init__(
        self,
        embedding_size: int,
        prototypes: int = 3000,
        temperature: float = 0.1,
        epsilon: float = 0.05,
        iterations: int = 3,
        queue_size: int = 0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.embedding_size = above_zero("embedding_size", embedding_size)
        at_least_zero("queue_size", queue_size)
        start = unit(torch.randn(above_zero("prototypes", prototypes), embedding_size))
        self.prototypes = torch.nn.Parameter(start)  # (K, d)
        self.first_queue = KeyQueue(queue_size, embedding_size) if queue_size else None
        self.second_queue = KeyQueue(queue_size, embedding_size) if queue_size else None
        self.temperature = above_zero("temperature", temperature)
        self.epsilon = above_zero("epsilon", epsilon)
        self.iterations = above_zero("iterations", iterations)
        self.reduction = scalar_reduction(reduction)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        loss = swav_loss(
            anchors,
            positives,
            self.prototypes,
            self.temperature,
            self.epsilon,
            self.iterations,
            _rows_if_full(self.first_queue),
            _rows_if_full(self.second_queue),
            self.reduction,
        )
        if self.training:  # validation must not leave rows behind
            for queue, view in ((self.first_queue, anchors), (self.second_queue, positives)):
                if queue is not None:
                    queue.enqueue(view)
        return loss


def _rows_if_full(queue: KeyQueue | None) -> Tensor | None:
    return queue.rows(only_valid=False) if queue is not None and queue.full else None
