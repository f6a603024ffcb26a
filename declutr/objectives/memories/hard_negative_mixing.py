"""Hard negatives made up from the hardest ones (MoCHi; Kalantidis et al., 2020)."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.checks import (
    above_zero,
    at_least_zero,
    check_views,
    check_width,
    scalar_reduction,
)
from declutr.objectives.memories.momentum_contrast import KeyQueue
from declutr.objectives.numerics import HostCount, full_precision, nothing, reduced, unit
from declutr.objectives.objective import Objective
from declutr.system.host_memory import to_device

_ELEMENTS = 2**22  # of made-up vectors held at once


@full_precision
def mochi_loss(
    queries: Tensor,
    keys: Tensor,
    queue: Tensor | None = None,
    temperature: float = 0.2,
    hardest: int = 1024,
    mixed: int = 1024,
    mixed_with_query: int = 128,
    in_batch: bool = False,
    generator: torch.Generator | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`moco_loss` with made-up negatives beside the real ones (Kalantidis et al., 2020, section 4).

    Of each query's negatives the `hardest` nearest are the set H. Two kinds of vectors are added:
    `mixed` times `a n_i + (1 - a) n_j` with `n_i`, `n_j` drawn from H and a from U(0, 1) (equation
    3), and `mixed_with_query` times `b q + (1 - b) n_j` with b from U(0, 0.5), so that the query
    never dominates (equation 4); each is L2-normalised.

    The paper does not say whether gradients go through the query inside a made-up vector. Here they
    do not: made-up vectors are constants, as keys of a queue are. They are never built either; the
    similarity of a query with a mixture follows from those with its parts.

    # Parameters

    queries, keys : raw `(N, d)`, row i of both belonging together. Keys have a gradient, as
        positives and in-batch negatives, if they come with one.
    queue : raw `(K, d)`, negatives of every query, without gradient.
    in_batch : the other keys of the batch are negatives too.
    generator : of the draws, on the CPU; they are the same on every device.
    reduction : `"none"` gives `(N,)`. Without any negative the loss is 0.
    """
    check_views(queries, keys)
    queries, keys = unit(queries), unit(keys)
    rows = queries.size(0)
    parts = []
    if queue is not None:
        check_width(queries, queue)
        parts.append(unit(queue.detach().to(queries.dtype)))
    if in_batch:
        parts.append(keys)
    count = sum(part.size(0) for part in parts) - in_batch  # of each query
    if count < 1:
        return reduced(nothing(queries, keys).expand(rows), reduction, queries, keys)
    negatives = torch.cat(parts)  # (K + N, d)
    similarities = _without_own(queries @ negatives.T, in_batch)  # (N, K + N)
    positive = (queries * keys).sum(dim=-1, keepdim=True)  # (N, 1)
    logits = [positive, similarities]
    if mixed or mixed_with_query:
        fixed, to_fixed = negatives.detach(), similarities
        if negatives.requires_grad:
            to_fixed = _without_own(queries @ fixed.T, in_batch)
        near, where = to_fixed.topk(min(hardest, count), dim=1)  # (N, H)
        logits.append(_mixed(near, where, fixed, mixed, generator))
        logits.append(_mixed_with_query(near, mixed_with_query, generator))
    scores = torch.cat(logits, dim=1) / temperature
    return reduced(scores.logsumexp(dim=1) - scores[:, 0], reduction, queries)


def _without_own(similarities: Tensor, in_batch: bool) -> Tensor:
    """-inf where a query would meet its own key, which stands in the last N columns."""
    if not in_batch:
        return similarities
    others = similarities.clone()
    others.diagonal(others.size(1) - others.size(0)).fill_(-math.inf)
    return others


def _partners(near: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw places `(N, count)` within the hardest `near` `(N, H)`."""
    rows, hardest = near.shape
    return to_device(torch.randint(hardest, (rows, count), generator=generator), near.device)


def _coefficients(
    near: Tensor, count: int, most: float, generator: torch.Generator | None
) -> Tensor:
    """Draw `(N, count)` from a uniform distribution over [0, most)."""
    drawn = torch.rand(len(near), count, generator=generator, dtype=torch.float64)
    return to_device((drawn * most).to(near.dtype), near.device)


def _mixed(
    near: Tensor, where: Tensor, negatives: Tensor, count: int, generator: torch.Generator | None
) -> Tensor:
    """Return similarities `(N, count)` of queries with normalised `a n_i + (1 - a) n_j`.

    `near` and `where` are `(N, H)`, similarities of the hardest and their rows in `negatives`.
    """
    first, second = (_partners(near, count, generator) for _ in range(2))
    a = _coefficients(near, count, 1.0, generator)
    numerator = a * near.gather(1, first) + (1 - a) * near.gather(1, second)
    between = _products(negatives, where.gather(1, first), where.gather(1, second))
    return numerator / _length(a, 1 - a, between)


def _mixed_with_query(near: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return similarities `(N, count)` of queries q with normalised `b sg(q) + (1 - b) n_j`.

    `q sg(q)` is 1, and its gradient to the raw query is 0, for q has unit length.
    """
    near = near.gather(1, _partners(near, count, generator))
    b = _coefficients(near, count, 0.5, generator)
    return (b + (1 - b) * near) / _length(b, 1 - b, near.detach())


def _length(a: Tensor, b: Tensor, cosine: Tensor) -> Tensor:
    """Of `a x + b y` for unit vectors with that cosine; opposite ones may cancel."""
    return (a * a + b * b + 2 * a * b * cosine).clamp_min(1e-12).sqrt()


@torch.no_grad()
def _products(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """`(N, s)`: dot products of `rows[first]` with `rows[second]`, a few at a time."""
    size = max(1, _ELEMENTS // rows.size(1))
    blocks = zip(first.flatten().split(size), second.flatten().split(size), strict=True)
    return torch.cat([(rows[i] * rows[j]).sum(dim=1) for i, j in blocks]).view_as(first)


@Objective.register("mochi")
class HardNegativeMixing(Objective):
    """`mochi_loss`, with a queue of keys, the other keys of the batch, or both as negatives.

    With a queue, `forward(anchors, keys)` is as for `moco`: keys come from the momentum encoder and
    carry no gradient; the queue of before is used, and keys are put in during training. Draws
    depend on the seed and the number of training steps, both saved in checkpoints, and so are the
    same after resuming and in every process.

    # Parameters

    embedding_size : d; needed for a queue.
    queue_size : K; 0 for no queue.
    in_batch : the other keys of the batch are negatives too; must be set without a queue.
    temperature : tau, above 0.
    hardest, mixed, mixed_with_query : how many of the hardest negatives are mixed, into how many
        with each other, and how many with the query.
    start_after : training steps before the first mixing (the paper waits for some epochs).
    only_filled : leave out slots of the queue that no key was put into yet.
    reduction : `"mean"` or `"sum"` over the queries.
    seed : of the draws.
    """

    def __init__(
        self,
        embedding_size: Optional[int] = None,
        queue_size: int = 16384,
        in_batch: bool = False,
        temperature: float = 0.2,
        hardest: int = 1024,
        mixed: int = 1024,
        mixed_with_query: int = 128,
        start_after: int = 0,
        only_filled: bool = False,
        reduction: str = "mean",
        seed: int = 13370,
    ) -> None:
        super().__init__()
        at_least_zero("queue_size", queue_size)
        if queue_size and embedding_size is None:
            raise ConfigurationError(
                f"A queue of {queue_size} keys needs embedding_size, the width of keys. Set it, or "
                "set queue_size to 0 and in_batch to true."
            )
        if not queue_size and not in_batch:
            raise ConfigurationError(
                "There are no negatives to mix: queue_size is 0 and in_batch is false. Set one."
            )
        self.embedding_size = embedding_size
        self.queue = KeyQueue(queue_size, embedding_size or 0) if queue_size else None
        self.min_pairs = 1 if queue_size else 2
        self.in_batch = in_batch
        self.temperature = above_zero("temperature", temperature)
        self.hardest = above_zero("hardest", hardest)
        self.mixed = at_least_zero("mixed", mixed)
        self.mixed_with_query = at_least_zero("mixed_with_query", mixed_with_query)
        self.start_after = at_least_zero("start_after", start_after)
        self.only_filled = only_filled
        self.reduction = scalar_reduction(reduction)
        self.seed = seed
        self._steps_done = HostCount(self, "steps")

    def forward(  # type: ignore[override]
        self, anchors: Tensor, keys: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """`generator` replaces the draws of this step."""
        step = self._steps_done.value
        if generator is None:
            generator = torch.Generator().manual_seed(self.seed + step)
        mixing = step >= self.start_after
        loss = mochi_loss(
            anchors,
            keys if self.queue is None else keys.detach(),
            None if self.queue is None else self.queue.rows(self.only_filled),
            self.temperature,
            self.hardest,
            self.mixed if mixing else 0,
            self.mixed_with_query if mixing else 0,
            self.in_batch,
            generator,
            self.reduction,
        )
        if self.training:  # validation must not leave anything behind
            self._steps_done.advance()
            if self.queue is not None:
                self.queue.enqueue(keys)
        return loss
