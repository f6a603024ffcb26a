"""Contrast with a queue of earlier keys (MoCo; He et al., 2020)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from declutr.objectives.checks import above_zero, check_views, check_width, scalar_reduction
from declutr.objectives.numerics import full_precision, reduced, unit
from declutr.objectives.objective import Objective


@full_precision
def moco_loss(
    queries: Tensor, keys: Tensor, queue: Tensor, temperature: float = 0.07, reduction: str = "mean"
) -> Tensor:
    """`-q k+ / tau + log sum exp({q k+} u {q queue_j} / tau)` (He et al., 2020, equation 1).

    `queries` and `keys` are raw `(N, d)`, `queue` raw `(K, d)`; all are L2-normalised here. Keys
    and queue get no gradient. An empty queue gives 0.
    """
    check_views(queries, keys)
    check_width(queries, queue)
    queries, keys = unit(queries), unit(keys.detach())
    positive = (queries * keys).sum(dim=-1, keepdim=True)  # (N, 1)
    negatives = queries @ unit(queue.detach().to(queries.dtype)).T  # (N, K)
    logits = torch.cat([positive, negatives], dim=1) / temperature
    return reduced(logits.logsumexp(dim=1) - logits[:, 0], reduction, queries)


@torch.no_grad()
def momentum_update(targets: Iterable[Tensor], sources: Iterable[Tensor], momentum: float) -> None:
    """`target <- m target + (1 - m) source`, in place (He et al., 2020, equation 2).

    1 freezes the targets, 0 copies the sources. Meant for parameters: buffers are not averaged.
    """
    pairs = list(zip(targets, sources, strict=True))
    if not pairs:
        return
    # Of all tensors at once: on a GPU a few launches in place of two for each.
    targets = [target for target, _ in pairs]
    torch._foreach_mul_(targets, momentum)
    sources = [source.to(target.dtype) for target, source in pairs]
    torch._foreach_add_(targets, sources, alpha=1 - momentum)


class KeyQueue(torch.nn.Module):
    """The last unit vectors that were put in, oldest overwritten first. Saved with the model.

    # Parameters

    size : K, how many are held.
    width : d.
    """

    keys: Tensor
    valid: Tensor
    position: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        above_zero("queue_size", size)
        above_zero("embedding_size", width)
        self.register_buffer("keys", unit(torch.randn(size, width)))  # (K, d)
        self.register_buffer("valid", torch.zeros(size, dtype=torch.bool))  # (K,): ever written
        self.register_buffer("position", torch.zeros((), dtype=torch.long))  # of the next key
        # Slots are filled in order. The host knows how many are, and which is next: it need not
        # wait for a device to tell.
        self._filled, self._next = 0, 0
        self.register_load_state_dict_post_hook(_read)

    def rows(self, only_valid: bool) -> Tensor:
        """A copy `(K, d)`, random unit vectors where nothing was put yet, or without those.

        It is a copy because a backward pass may need it after the queue has moved on.
        """
        return (self.keys[: self._filled] if only_valid else self.keys).clone()

    @property
    def full(self) -> bool:
        """Whether something was put into every slot."""
        return self._filled == len(self.keys)

    @torch.no_grad()
    def enqueue(self, rows: Tensor) -> None:
        """Put in raw rows `(N, d)` in order; of more than K only the last K stay.

        # Raises

        `ValueError` : rows of another width.
        """
        check_width(rows, self.keys)
        size, count = self.keys.size(0), rows.size(0)
        kept = rows[-size:]
        first = self._next + (count - kept.size(0))
        slots = torch.arange(first, first + kept.size(0), device=self.keys.device) % size
        self.keys.index_copy_(0, slots, unit(kept.to(self.keys.dtype)))
        self._filled, self._next = min(size, self._filled + count), (self._next + count) % size
        self.valid[: self._filled].fill_(True)
        self.position.fill_(self._next)


def _read(queue: KeyQueue, incompatible: object) -> None:
    """Take from a checkpoint how full a queue is; `incompatible` are keys that do not fit."""
    queue._filled, queue._next = int(queue.valid.sum()), int(queue.position)


@Objective.register("moco")
class MomentumContrast(Objective):
    """`moco_loss` with its queue, which is saved in checkpoints.

    `forward(anchors, keys)`: keys come from the momentum encoder. Logits are taken against the
    queue as it was; then, in training only, the keys of this batch are put in, wrapping around.

    # Parameters

    embedding_size : d, the width of queries and keys.
    queue_size : K.
    temperature : tau, above 0.
    only_filled : leave out slots that no key was put into yet. Otherwise, as in the public code,
        random unit vectors stand there; with it, the first batch has no negatives and a loss of 0.
    reduction : `"mean"` or `"sum"` over the queries.
    """

    min_pairs = 1  # the negatives are in the queue

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
        self.temperature = above_zero("temperature", temperature)
        self.only_filled = only_filled
        self.reduction = scalar_reduction(reduction)

    def forward(  # type: ignore[override]
        self, anchors: Tensor, keys: Tensor
    ) -> Tensor:
        queue = self.queue.rows(self.only_filled)
        loss = moco_loss(anchors, keys, queue, self.temperature, self.reduction)
        if self.training:  # validation must not leave keys behind
            self.queue.enqueue(keys)
        return loss
