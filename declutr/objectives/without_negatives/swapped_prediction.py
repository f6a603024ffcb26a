"""Prediction of the cluster assignments of the other view (SwAV; Caron et al., 2020)."""

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from declutr.objectives import numerics
from declutr.objectives.memories.momentum_contrast import KeyQueue
from declutr.objectives.objective import Objective


@torch.no_grad()
@numerics.full_precision
def sinkhorn_assignments(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign rows to prototypes so that all prototypes are used equally.

    `exp(scores / epsilon)` is scaled in turns so that all columns have the same sum and each row
    sums to 1 (Sinkhorn-Knopp; Caron et al., 2020, equations 3 to 5). Rows are scaled last, so each
    row sums to 1 exactly, and each column sums to N / K in the limit. Everything is computed in
    logarithms, which cannot overflow.

    # Parameters

    scores : cosines `(N, K)` of rows and prototypes.
    epsilon : the entropy of the assignments; the smaller it is, the harder they are.
    iterations : the number of times that columns and rows are scaled.

    # Returns

    Soft assignments `(N, K)` without gradient.
    """
    logs = scores / epsilon
    for _ in range(iterations):
        logs = logs - logs.logsumexp(dim=0, keepdim=True)
        logs = logs - logs.logsumexp(dim=1, keepdim=True)
    return logs.softmax(dim=1)


@numerics.full_precision
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
    """Compute the SwAV loss, the cross entropy of predicting the assignments of the other view.

    The loss of a row is `-(q_second log p_first + q_first log p_second) / 2`, where p is the
    softmax of its cosines with the prototypes divided by `temperature`, and q is its row of
    `sinkhorn_assignments`, a constant (Caron et al., 2020, equations 1 and 2). The paper adds both
    directions; here they are averaged, as in its code.

    # Parameters

    first, second : raw views `(N, d)`; they are L2-normalised here.
    prototypes : raw prototypes `(K, d)`, which get a gradient through p.
    temperature : the temperature of the predictions p.
    epsilon, iterations : see `sinkhorn_assignments`.
    first_queue, second_queue : raw earlier rows `(Q, d)` of each view. They take part in the
        assignments only, because a batch smaller than K cannot use all prototypes equally.
    reduction : `"mean"` or `"sum"` over the N rows, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes do not fit or the reduction is unknown.
    """
    numerics.check_views(first, second)
    numerics.check_width(first, prototypes)
    prototypes = numerics.unit(prototypes.to(first.dtype))
    logs, assignments = [], []
    for view, queue in ((first, first_queue), (second, second_queue)):
        scores = numerics.unit(view) @ prototypes.T  # (N, K)
        logs.append(log_softmax(scores / temperature, dim=1))
        together = scores.detach()
        if queue is not None:
            earlier = numerics.unit(queue.detach().to(view.dtype))
            together = torch.cat([earlier @ prototypes.detach().T, together])  # (Q + N, K)
        assigned = sinkhorn_assignments(together, epsilon, iterations)
        assignments.append(assigned[assigned.size(0) - view.size(0) :])
    terms = -(assignments[1] * logs[0] + assignments[0] * logs[1]).sum(dim=1) / 2
    return numerics.reduced(terms, reduction, first, second)


@Objective.register("swav")
class SwappedPrediction(Objective):
    """The SwAV loss with learnt prototypes and, optionally, a queue of earlier rows of each view.

    The function is `swav_loss`. A queue is only used once it is full, as in the public code.
    Prototypes and queues are saved in checkpoints. Only the directions of prototypes matter.

    # Parameters

    embedding_size : the width d of the views.
    prototypes : the number K of prototypes. The batch and the queue together should have several
        times as many rows.
    temperature : the temperature of the predictions, above 0.
    epsilon : the entropy of the assignments, above 0; the smaller it is, the harder they are.
    iterations : the number of iterations of Sinkhorn-Knopp, 1 or more.
    queue_size : the number of earlier rows of each view; 0 for no queue.
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
        self.embedding_size = numerics.above_zero("embedding_size", embedding_size)
        numerics.at_least_zero("queue_size", queue_size)
        start = torch.randn(numerics.above_zero("prototypes", prototypes), embedding_size)
        self.prototypes = torch.nn.Parameter(numerics.unit(start))  # (K, d)
        self.first_queue = KeyQueue(queue_size, embedding_size) if queue_size else None
        self.second_queue = KeyQueue(queue_size, embedding_size) if queue_size else None
        self.temperature = numerics.above_zero("temperature", temperature)
        self.epsilon = numerics.above_zero("epsilon", epsilon)
        self.iterations = numerics.above_zero("iterations", iterations)
        self.reduction = numerics.scalar_reduction(reduction)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        settings = (self.temperature, self.epsilon, self.iterations)
        queues = (_rows_if_full(self.first_queue), _rows_if_full(self.second_queue))
        loss = swav_loss(anchors, positives, self.prototypes, *settings, *queues, self.reduction)
        if self.training:  # Validation must not change the queues.
            for queue, view in ((self.first_queue, anchors), (self.second_queue, positives)):
                if queue is not None:
                    queue.enqueue(view)
        return loss


def _rows_if_full(queue: KeyQueue | None) -> Tensor | None:
    return queue.rows(only_valid=False) if queue is not None and queue.full else None
