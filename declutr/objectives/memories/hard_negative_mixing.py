"""Hard negatives made up from the hardest ones (MoCHi; Kalantidis et al., 2020)."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives.distances import unit
from declutr.objectives.full_precision import full_precision
from declutr.objectives.host_count import HostCount
from declutr.objectives.memories.momentum_contrast import KeyQueue
from declutr.objectives.objective import Objective
from declutr.objectives.reductions import nothing, reduced
from declutr.objectives.settings import above_zero, at_least_zero, scalar_reduction
from declutr.objectives.views import check_views, check_width
from declutr.system.host_memory import to_device

_ELEMENTS = 2**22  # of made-up vectors held at once


@full_precision
def mochi_loss(
    queries: torch.Tensor,
    keys: torch.Tensor,
    queue: Optional[torch.Tensor] = None,
    temperature: float = 0.2,
    hardest: int = 1024,
    mixed: int = 1024,
    mixed_with_query: int = 128,
    in_batch: bool = False,
    generator: Optional[torch.Generator] = None,
    reduction: str = "mean",
) -> torch.Tensor:
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
        fixed = negatives.detach()
        to_fixed = similarities
        if negatives.requires_grad:
            to_fixed = _without_own(queries @ fixed.T, in_batch)
        near, where = to_fixed.topk(min(hardest, count), dim=1)  # (N, H)
        draw = _Draws(rows, near.size(1), near, generator)
        logits.append(_mixed(near, where, fixed, draw, mixed))
        logits.append(_mixed_with_query(near, draw, mixed_with_query))
    scores = torch.cat(logits, dim=1) / temperature
    return reduced(scores.logsumexp(dim=1) - scores[:, 0], reduction, queries)


def _without_own(similarities: torch.Tensor, in_batch: bool) -> torch.Tensor:
    """-inf where a query would meet its own key, which stands in the last N columns."""
    if not in_batch:
        return similarities
    rows, columns = similarities.shape
    own = torch.eye(rows, dtype=torch.bool, device=similarities.device)
    queue = own.new_zeros(rows, columns - rows)
    return similarities.masked_fill(torch.cat([queue, own], dim=1), -math.inf)


class _Draws:
    """Random partners out of the hardest, and coefficients of mixtures, for each of the queries."""

    def __init__(
        self,
        rows: int,
        hardest: int,
        like: torch.Tensor,
        generator: Optional[torch.Generator],
    ) -> None:
        self._rows, self._hardest = rows, hardest
        self._like, self._generator = like, generator

    def partners(self, count: int) -> torch.Tensor:
        """Positions `(N, count)` within the hardest."""
        shape = (self._rows, count)
        drawn = torch.randint(self._hardest, shape, generator=self._generator)
        return to_device(drawn, self._like.device)

    def coefficients(self, count: int, most: float) -> torch.Tensor:
        """`(N, count)`, uniform in [0, most)."""
        drawn = torch.rand(self._rows, count, generator=self._generator, dtype=torch.float64)
        return to_device((drawn * most).to(self._like.dtype), self._like.device)


def _mixed(
    near: torch.Tensor, where: torch.Tensor, negatives: torch.Tensor, draw: _Draws, count: int
) -> torch.Tensor:
    """Similarities `(N, count)` of queries with normalised `a n_i + (1 - a) n_j`.

    `near` and `where` are `(N, H)`, similarities of the hardest and their rows in `negatives`.
    """
    first, second = draw.partners(count), draw.partners(count)
    a = draw.coefficients(count, 1.0)
    numerator = a * near.gather(1, first) + (1 - a) * near.gather(1, second)
    between = _products(negatives, where.gather(1, first), where.gather(1, second))
    return numerator / _length(a, 1 - a, between)


def _mixed_with_query(near: torch.Tensor, draw: _Draws, count: int) -> torch.Tensor:
    """Similarities `(N, count)` of queries q with normalised `b sg(q) + (1 - b) n_j`.

    `q sg(q)` is 1, and its gradient to the raw query is 0, for q has unit length.
    """
    near = near.gather(1, draw.partners(count))
    b = draw.coefficients(count, 0.5)
    return (b + (1 - b) * near) / _length(b, 1 - b, near.detach())


def _length(a: torch.Tensor, b: torch.Tensor, cosine: torch.Tensor) -> torch.Tensor:
    """Of `a x + b y` for unit vectors with that cosine; opposite ones may cancel."""
    return (a * a + b * b + 2 * a * b * cosine).clamp_min(1e-12).sqrt()


@torch.no_grad()
def _products(rows: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """`(N, s)`: dot products of `rows[first]` with `rows[second]`, a few at a time."""
    flat = zip(
        *(index.flatten().split(max(1, _ELEMENTS // rows.size(1))) for index in (first, second)),
        strict=True,
    )
    found = [(rows[i] * rows[j]).sum(dim=1) for i, j in flat]
    return torch.cat(found).view_as(first)


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

    steps: torch.Tensor

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
        above_zero("hardest", hardest)
        at_least_zero("queue_size", queue_size)
        at_least_zero("mixed", mixed)
        at_least_zero("mixed_with_query", mixed_with_query)
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
        self.hardest = hardest
        self.mixed, self.mixed_with_query = mixed, mixed_with_query
        self.start_after = at_least_zero("start_after", start_after)
        self.only_filled = only_filled
        self.reduction = scalar_reduction(reduction)
        self.seed = seed
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._steps_done = HostCount(self, "steps")

    def forward(  # type: ignore[override]
        self,
        anchors: torch.Tensor,
        keys: torch.Tensor,
        generator: Optional[torch.Generator] = None,
    ) -> torch.Tensor:
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
