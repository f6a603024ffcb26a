"""Synthetic hard negatives, mixed from the hardest ones (MoCHi; Kalantidis et al., 2020)."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.memories.momentum_contrast import KeyQueue
from declutr.objectives.objective import Objective
from declutr.system.host_memory import to_device

_ELEMENTS = 2**22  # the number of elements of negatives that are multiplied at once


@numerics.full_precision
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
    """Compute the MoCHi loss: `moco_loss` with synthetic negatives beside the real ones.

    The nearest `hardest` negatives of a query are its set H. Two kinds of L2-normalised vectors are
    added to its negatives: `mixed` vectors `a n_i + (1 - a) n_j` with `n_i` and `n_j` drawn from H
    and a from U(0, 1) (Kalantidis et al., 2020, equation 3), and `mixed_with_query` vectors
    `b q + (1 - b) n_j` with b from U(0, 0.5), so that the query never dominates (equation 4).

    The paper does not say whether the query inside a synthetic vector has a gradient. Here it has
    none: synthetic vectors are constants, as the keys of a queue are. They are never built; their
    similarity with the query is computed from the similarities of the vectors that they mix.
    Without any negative the loss is 0.

    # Parameters

    queries, keys : raw rows `(N, d)`, of which row i of both belongs together. Keys get a gradient
        if they require one, both as positives and as in-batch negatives.
    queue : raw rows `(K, d)`, negatives of every query, which get no gradient.
    temperature : tau.
    hardest : the number of negatives in H.
    mixed, mixed_with_query : the numbers of synthetic vectors of both kinds for each query.
    in_batch : whether the other keys of the batch are negatives too.
    generator : the source of random numbers, on the CPU, so that they are the same on every device.
    reduction : `"mean"` or `"sum"` over the N queries, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes do not fit or the reduction is unknown.
    """
    numerics.check_views(queries, keys)
    queries, keys = numerics.unit(queries), numerics.unit(keys)
    rows = queries.size(0)
    parts = []
    if queue is not None:
        numerics.check_width(queries, queue)
        parts.append(numerics.unit(queue.detach().to(queries.dtype)))
    if in_batch:
        parts.append(keys)
    count = sum(part.size(0) for part in parts) - in_batch  # the number of negatives of a query
    if count < 1:
        nothing = numerics.nothing(queries, keys).expand(rows)
        return numerics.reduced(nothing, reduction, queries, keys)
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
    return numerics.reduced(scores.logsumexp(dim=1) - scores[:, 0], reduction, queries)


def _without_own(similarities: Tensor, in_batch: bool) -> Tensor:
    """Replace the similarity of each query with its own key, in the last N columns, by -inf."""
    if not in_batch:
        return similarities
    others = similarities.clone()
    others.diagonal(others.size(1) - others.size(0)).fill_(-math.inf)
    return others


def _partners(near: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw indices `(N, count)` of columns of `near` `(N, H)`."""
    rows, hardest = near.shape
    return to_device(torch.randint(hardest, (rows, count), generator=generator), near.device)


def _coefficients(
    near: Tensor, count: int, most: float, generator: torch.Generator | None
) -> Tensor:
    """Draw coefficients `(N, count)` uniformly from [0, most)."""
    drawn = torch.rand(len(near), count, generator=generator, dtype=torch.float64)
    return to_device((drawn * most).to(near.dtype), near.device)


def _mixed(
    near: Tensor, where: Tensor, negatives: Tensor, count: int, generator: torch.Generator | None
) -> Tensor:
    """Return similarities `(N, count)` of queries with normalised mixtures `a n_i + (1 - a) n_j`.

    `near` `(N, H)` are the similarities with the hardest negatives, and `where` `(N, H)` are their
    rows in `negatives`.
    """
    first, second = (_partners(near, count, generator) for _ in range(2))
    a = _coefficients(near, count, 1.0, generator)
    numerator = a * near.gather(1, first) + (1 - a) * near.gather(1, second)
    between = _products(negatives, where.gather(1, first), where.gather(1, second))
    return numerator / _length(a, 1 - a, between)


def _mixed_with_query(near: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return similarities `(N, count)` of queries q with normalised mixtures `b q + (1 - b) n_j`.

    The q inside the mixture is a constant. Its product with the query is 1, and the gradient of
    that to the raw query is 0, because q has length 1.
    """
    near = near.gather(1, _partners(near, count, generator))
    b = _coefficients(near, count, 0.5, generator)
    return (b + (1 - b) * near) / _length(b, 1 - b, near.detach())


def _length(a: Tensor, b: Tensor, cosine: Tensor) -> Tensor:
    """Return the length of `a x + b y`, never 0, for unit vectors x and y with the given cosine."""
    return (a * a + b * b + 2 * a * b * cosine).clamp_min(1e-12).sqrt()  # opposite ones may cancel


@torch.no_grad()
def _products(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the dot products `(N, s)` of `rows[first]` and `rows[second]`, computed in blocks."""
    size = max(1, _ELEMENTS // rows.size(1))
    blocks = zip(first.flatten().split(size), second.flatten().split(size), strict=True)
    return torch.cat([(rows[i] * rows[j]).sum(dim=1) for i, j in blocks]).view_as(first)


@Objective.register("mochi")
class HardNegativeMixing(Objective):
    """The MoCHi loss with negatives from a queue, from the batch, or from both; see `mochi_loss`.

    With a queue, `forward(anchors, keys)` works as for `moco`: keys come from the momentum encoder
    and have no gradient; they are compared with the queue as it was, and are put into it in
    training only. What is drawn depends on the seed and the number of training steps, which is
    saved in checkpoints, so that it is the same after a resume and in every process.

    # Parameters

    embedding_size : the width d of keys; required with a queue.
    queue_size : the number K of keys in the queue; 0 for no queue.
    in_batch : whether the other keys of the batch are negatives too; required without a queue.
    temperature : tau, above 0.
    hardest : the number of hardest negatives that are mixed.
    mixed, mixed_with_query : the number of mixtures of two negatives, and of mixtures of a negative
        with the query.
    start_after : the number of training batches before the first mixing, of which a step has as
        many as `num_gradient_accumulation_steps` says. (The paper waits for some epochs.)
    only_filled : whether to leave out slots of the queue that no key was put into yet.
    reduction : `"mean"` or `"sum"` over the queries.
    seed : the seed of what is drawn.

    # Raises

    `ConfigurationError` : if there are no negatives, or a queue without `embedding_size`.
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
        numerics.at_least_zero("queue_size", queue_size)
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
        self.temperature = numerics.above_zero("temperature", temperature)
        self.hardest = numerics.above_zero("hardest", hardest)
        self.mixed = numerics.at_least_zero("mixed", mixed)
        self.mixed_with_query = numerics.at_least_zero("mixed_with_query", mixed_with_query)
        self.start_after = numerics.at_least_zero("start_after", start_after)
        self.only_filled = only_filled
        self.reduction = numerics.scalar_reduction(reduction)
        self.seed = seed
        self._steps_done = numerics.HostCount(self, "steps")

    def forward(  # type: ignore[override]
        self, anchors: Tensor, keys: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Compute the loss of anchors `(N, d)` and their keys `(N, d)`.

        `generator`, if given, is the source of random numbers in this step.
        """
        step = self._steps_done.value
        if generator is None:
            generator = torch.Generator().manual_seed(self.seed + step)
        mixed = (self.mixed, self.mixed_with_query) if step >= self.start_after else (0, 0)
        settings = (self.temperature, self.hardest, *mixed, self.in_batch)
        queue = None if self.queue is None else self.queue.rows(self.only_filled)
        fixed = keys if self.queue is None else keys.detach()
        loss = mochi_loss(anchors, fixed, queue, *settings, generator, self.reduction)
        if self.training:  # Validation must change neither the queue nor the number of steps.
            self._steps_done.advance()
            if self.queue is not None:
                self.queue.enqueue(keys)
        return loss
