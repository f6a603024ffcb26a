"""Prediction of the cluster assignments of the other view (SwAV; Caron et al., 2020)."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from declutr.bridge.adamw import own_part
from declutr.objectives import numerics
from declutr.objectives.memories.momentum_contrast import KeyQueue
from declutr.objectives.objective import Objective, with_positives


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
    settings, queues = (temperature, epsilon, iterations), (first_queue, second_queue)
    prototypes = numerics.unit(prototypes.to(first.dtype))
    return multi_crop_swav_loss((first, second), prototypes, 2, *settings, queues, reduction)


@numerics.full_precision
def multi_crop_swav_loss(
    views: Sequence[Tensor],
    prototypes: Tensor,
    assigned: int = 2,
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
    queues: Sequence[Tensor | None] | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the SwAV loss of V views, of which the first A are assigned (multi-crop).

    The loss of a row is `-mean_{i <= A} mean_{v != i} q_i log p_v`: every view predicts those
    assignments that are not its own (Caron et al., 2020, section 3.2; means as in its code).

    # Parameters

    views : V raw views `(N, d)`, the large crops first; they are L2-normalised here.
    prototypes : prototypes `(K, d)` of length 1, which get a gradient through p.
    assigned : A, from 1 to V.
    temperature, epsilon, iterations, reduction : see `swav_loss`.
    queues : raw earlier rows `(Q, d)`, or `None`, of each of the A views; see `swav_loss`.

    # Raises

    `ValueError` : if views or shapes do not fit, or the reduction is unknown.
    """
    if not 1 <= assigned <= len(views) or len(views) < 2:
        raise ValueError(
            f"Expected 2 or more views, of which {assigned} are assigned, got {len(views)}. Raise "
            "num_positives of the reader, or lower assigned_views."
        )
    numerics.check_width(views[0], prototypes)
    logs, assignments = [], []
    for number, view in enumerate(views):
        numerics.check_views(views[0], view)
        scores = numerics.unit(view) @ prototypes.T  # (N, K)
        logs.append(log_softmax(scores / temperature, dim=1))
        if number >= assigned:
            continue
        queue = queues[number] if queues else None
        if queue is not None:
            earlier = numerics.unit(queue.detach().to(view.dtype))
            scores = torch.cat([earlier @ prototypes.detach().T, scores])  # (Q + N, K)
        assignment = sinkhorn_assignments(scores, epsilon, iterations)
        assignments.append(assignment[assignment.size(0) - view.size(0) :])
    terms = [
        -(assignment * log).sum(dim=1)
        for own, assignment in enumerate(assignments)
        for other, log in enumerate(logs)
        if other != own
    ]
    return numerics.reduced(torch.stack(terms).mean(dim=0), reduction, *views)


@Objective.register("swav")
class SwappedPrediction(Objective):
    """The SwAV loss with learnt prototypes and, optionally, a queue of earlier rows of each view.

    The function is `multi_crop_swav_loss`. A queue is only used once it is full, as in the public
    code, which begins to fill it in epoch 15. Prototypes and queues are saved in checkpoints.
    `renormalise` and `frozen_steps` work through `follow_optimizer`, which the model calls. The
    gradient of frozen prototypes is zero, so that processes can exchange it and clipping does not
    count it. It is removed before the update, as in the public code: the optimizer neither decays
    them nor keeps moments of them.

    # Parameters

    embedding_size : the width d of the views.
    prototypes : the number K of prototypes. The batch and the queue together should have several
        times as many rows.
    temperature : the temperature of the predictions, above 0.
    epsilon : the entropy of the assignments, above 0; the smaller it is, the harder they are.
    iterations : the number of iterations of Sinkhorn-Knopp, 1 or more.
    queue_size : the number of earlier rows of each view that is assigned; 0 for no queue.
    reduction : `"mean"` or `"sum"` over the rows.
    assigned_views : `None` for two views, the anchor and the mean of its positives. A number A
        makes each positive a view of its own after the anchor, and assigns the first A views; the
        others only predict, as the small crops of the paper.
    renormalise : True scales prototypes to length 1 after every update, and does not take the part
        along them out of their gradient, as in the public code. With False their length does not
        matter to the loss, but grows, and the longer they are, the less an update turns them.
    frozen_steps : the number of updates from the first on that leave the prototypes as they are.
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
        assigned_views: Optional[int] = None,
        renormalise: bool = False,
        frozen_steps: int = 0,
    ) -> None:
        super().__init__()
        self.embedding_size = numerics.above_zero("embedding_size", embedding_size)
        numerics.at_least_zero("queue_size", queue_size)
        start = torch.randn(numerics.above_zero("prototypes", prototypes), embedding_size)
        self.prototypes = torch.nn.Parameter(numerics.unit(start))  # (K, d)
        self.assigned_views = assigned_views
        self._assigned = 2 if assigned_views is None else assigned_views
        more = range(3, numerics.above_zero("assigned_views", self._assigned) + 1)
        # Checkpoints of earlier releases have the first two.
        self._queues = ["first_queue", "second_queue", *(f"queue_{n}" for n in more)]
        for name in self._queues[: self._assigned]:
            setattr(self, name, KeyQueue(queue_size, embedding_size) if queue_size else None)
        self.temperature = numerics.above_zero("temperature", temperature)
        self.epsilon = numerics.above_zero("epsilon", epsilon)
        self.iterations = numerics.above_zero("iterations", iterations)
        self.reduction = numerics.scalar_reduction(reduction)
        self.renormalise = renormalise
        self.frozen_steps = numerics.at_least_zero("frozen_steps", frozen_steps)
        self._updates = numerics.HostCount(self, "updates") if frozen_steps else None
        self._follows = False

    @property
    def inputs(self) -> dict[str, bool]:
        """The names of the tensors that `forward` takes: positives as one view or as several."""
        return with_positives(super().inputs, several=self.assigned_views is not None)

    @numerics.full_precision
    def forward(
        self,
        anchors: Tensor,
        positives: Tensor | None = None,
        positive_views: Tensor | None = None,
    ) -> Tensor:
        others = [positives] if positive_views is None else positive_views.unbind(dim=1)
        views = [anchors, *(view for view in others if view is not None)]
        queues: list[Any] = [getattr(self, name) for name in self._queues[: self._assigned]]
        full = [queue.rows(False) if queue and queue.full else None for queue in queues]
        settings = (self.temperature, self.epsilon, self.iterations)
        prototypes = self.prototypes.to(anchors.dtype)
        lengths = torch.linalg.vector_norm(prototypes, dim=1, keepdim=True).clamp_min(1e-12)
        prototypes = prototypes / (lengths.detach() if self.renormalise else lengths)
        prototypes = prototypes.detach() if self._frozen else prototypes
        arguments = views, prototypes, self._assigned, *settings, full, self.reduction
        loss = multi_crop_swav_loss(*arguments)
        if self.training:  # Validation must not change the queues.
            for queue, view in zip(filter(None, queues), views, strict=False):
                queue.enqueue(view)
        return loss + numerics.nothing(self.prototypes) if self._frozen else loss

    def follow_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Freeze and renormalise the prototypes at the updates of an optimizer."""
        self._follows = True
        optimizer.register_step_pre_hook(self._before_update)
        optimizer.register_step_post_hook(self._after_update)

    def _before_update(self, *_: Any) -> None:
        if self._frozen:
            self.prototypes.grad = None

    @torch.no_grad()
    def _after_update(self, *_: Any) -> None:
        if self.renormalise and not self._frozen:
            rows = own_part(self.prototypes)
            rows.copy_(numerics.unit(rows))
        if self._updates is not None:
            self._updates.advance()

    @property
    def _frozen(self) -> bool:
        """Whether the next update leaves the prototypes as they are."""
        count = self._updates
        return self._follows and count is not None and count.value < self.frozen_steps
