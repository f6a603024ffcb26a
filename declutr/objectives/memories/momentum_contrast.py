"""Momentum contrast, with a queue of earlier keys as negatives (MoCo; He et al., 2020)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.objective import Objective


@numerics.full_precision
def moco_loss(
    queries: Tensor, keys: Tensor, queue: Tensor, temperature: float = 0.07, reduction: str = "mean"
) -> Tensor:
    """Compute the MoCo loss, the cross entropy of finding the key of each query in a queue of keys.

    The loss of a query q with the key k+ is
    `-q k+ / tau + log (exp(q k+ / tau) + sum_j exp(q queue_j / tau))` (He et al., 2020, equation
    1). An empty queue gives 0.

    # Parameters

    queries, keys : raw rows `(N, d)`, of which row i of both belongs together.
    queue : raw earlier keys `(K, d)`, the negatives. Like all rows, they are L2-normalised here.
        Neither keys nor queue get a gradient.
    temperature : tau.
    reduction : `"mean"` or `"sum"` over the N queries, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes do not fit or the reduction is unknown.
    """
    numerics.check_views(queries, keys)
    numerics.check_width(queries, queue)
    queries, keys = numerics.unit(queries), numerics.unit(keys.detach())
    positive = (queries * keys).sum(dim=-1, keepdim=True)  # (N, 1)
    negatives = queries @ numerics.unit(queue.detach().to(queries.dtype)).T  # (N, K)
    logits = torch.cat([positive, negatives], dim=1) / temperature
    return numerics.reduced(logits.logsumexp(dim=1) - logits[:, 0], reduction, queries)


@torch.no_grad()
def momentum_update(targets: Iterable[Tensor], sources: Iterable[Tensor], momentum: float) -> None:
    """Move the targets towards the sources in place: `target <- m target + (1 - m) source`.

    This is equation 2 of He et al. (2020). It is meant for parameters, as buffers are not averaged.

    # Parameters

    targets, sources : equally many tensors, each target of the shape of its source.
    momentum : m. With 1 the targets stay as they are, with 0 they become copies of the sources.

    # Raises

    `ValueError` : if there are not as many targets as sources.
    """
    pairs = list(zip(targets, sources, strict=True))
    if not pairs:
        return
    # All tensors are updated together, which takes a few kernel launches on a GPU in place of two
    # for each tensor.
    targets = [target for target, _ in pairs]
    torch._foreach_mul_(targets, momentum)
    sources = [source.to(target.dtype) for target, source in pairs]
    torch._foreach_add_(targets, sources, alpha=1 - momentum)


class KeyQueue(torch.nn.Module):
    """A queue of unit vectors, in which new ones overwrite the oldest ones.

    It is saved with the model.

    # Parameters

    size : the number K of vectors.
    width : the width d of vectors.

    # Raises

    `ConfigurationError` : if size or width is not above 0.
    """

    keys: Tensor
    valid: Tensor
    position: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        numerics.above_zero("queue_size", size)
        numerics.above_zero("embedding_size", width)
        self.register_buffer("keys", numerics.unit(torch.randn(size, width)))  # (K, d)
        # `valid` (K,) is true for slots that a key was ever put into. `position` is the next slot.
        self.register_buffer("valid", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))
        # Slots are filled in order. The host keeps the number of filled slots and the next slot
        # itself, so that it need not wait for a device to read the buffers.
        self._filled, self._next = 0, 0
        self.register_load_state_dict_post_hook(_read)

    def rows(self, only_valid: bool) -> Tensor:
        """Return a copy `(K, d)` of the vectors in the queue.

        It is a copy because a backward pass may need it after the queue has changed.

        # Parameters

        only_valid : whether to leave out slots that no vector was put into yet, which have random
            unit vectors.
        """
        return (self.keys[: self._filled] if only_valid else self.keys).clone()

    @property
    def full(self) -> bool:
        """A flag that is true once a vector was put into every slot."""
        return self._filled == len(self.keys)

    @torch.no_grad()
    def enqueue(self, rows: Tensor) -> None:
        """Put raw rows `(N, d)` into the queue in order; if N is above K, only the last K stay.

        # Raises

        `ValueError` : if the rows have another width than the queue.
        """
        numerics.check_width(rows, self.keys)
        size, count = self.keys.size(0), rows.size(0)
        kept = rows[-size:]
        first = self._next + (count - kept.size(0))
        slots = torch.arange(first, first + kept.size(0), device=self.keys.device) % size
        self.keys.index_copy_(0, slots, numerics.unit(kept.to(self.keys.dtype)))
        self._filled, self._next = min(size, self._filled + count), (self._next + count) % size
        self.valid[: self._filled].fill_(True)
        self.position.fill_(self._next)


def _read(queue: KeyQueue, incompatible: object) -> None:
    """Read on the host how full a queue is after a state was loaded; torch calls this hook.

    `incompatible` are keys of the state that do not fit, which torch passes to every such hook.
    """
    queue._filled, queue._next = int(queue.valid.sum()), int(queue.position)


@Objective.register("moco")
class MomentumContrast(Objective):
    """The MoCo loss with a queue of keys, which is saved in checkpoints; see `moco_loss`.

    `forward(anchors, keys)` takes keys from the momentum encoder. Anchors are compared with the
    queue as it was before the step. After that, in training only, the keys of the batch are put
    into the queue.

    # Parameters

    embedding_size : the width d of queries and keys.
    queue_size : the number K of keys in the queue.
    temperature : tau, above 0.
    only_filled : whether to leave out slots that no key was put into yet, so that the first batch
        has no negatives and a loss of 0. Otherwise such slots have random unit vectors, as in the
        public code.
    reduction : `"mean"` or `"sum"` over the queries.
    """

    min_pairs = 1  # The negatives come from the queue.

    def __init__(
        self,
        embedding_size: int,
        queue_size: int = 16384,
        temperature: float = 0.07,
        only_filled: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.queue = KeyQueue(queue_size, embedding_size)
        self.temperature = numerics.above_zero("temperature", temperature)
        self.only_filled = only_filled
        self.reduction = numerics.scalar_reduction(reduction)

    def forward(  # type: ignore[override]
        self, anchors: Tensor, keys: Tensor
    ) -> Tensor:
        queue = self.queue.rows(self.only_filled)
        loss = moco_loss(anchors, keys, queue, self.temperature, self.reduction)
        if self.training:  # Validation must not change the queue.
            self.queue.enqueue(keys)
        return loss
