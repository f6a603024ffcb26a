"""Tests of MoCHi against mixtures that are really built, and against MoCo."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.memories.hard_negative_mixing import HardNegativeMixing, mochi_loss
from declutr.objectives.memories.momentum_contrast import moco_loss
from declutr.objectives.pairs.info_nce import info_nce
from tests.objectives import laws
from tests.objectives.oracles import normal, rescaled, views

QUEUE = normal(6, 4, seed=8)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def built_loss(
    queries: Tensor,
    keys: Tensor,
    queue: Tensor | None,
    temperature: float,
    hardest: int,
    mixed: int,
    mixed_with_query: int,
    in_batch: bool,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Compute the loss by building every synthetic vector, and return these `(N, s + s', d)`."""
    queries, keys = normalize(queries), normalize(keys)
    hard, negatives = [], []
    for i, query in enumerate(queries):
        rows = [] if queue is None else list(normalize(queue))
        rows += [key for j, key in enumerate(keys) if j != i] if in_batch else []
        negatives.append(torch.stack(rows))
        near = sorted(rows, key=lambda row: -float((row * query).sum().detach()))[:hardest]
        hard.append(torch.stack(near).detach())

    def draw(count: int) -> Tensor:
        return torch.randint(len(hard[0]), (len(queries), count), generator=generator)

    def coefficients(count: int) -> Tensor:
        drawn = torch.rand(len(queries), count, generator=generator, dtype=torch.float64)
        return drawn.unsqueeze(-1)

    first, second, a = draw(mixed), draw(mixed), coefficients(mixed)
    partner, b = draw(mixed_with_query), coefficients(mixed_with_query) / 2
    terms, made = [], []
    for i, query in enumerate(queries):
        among = normalize(a[i] * hard[i][first[i]] + (1 - a[i]) * hard[i][second[i]], dim=-1)
        with_query = normalize(b[i] * query.detach() + (1 - b[i]) * hard[i][partner[i]], dim=-1)
        made.append(torch.cat([among, with_query]))
        scores = torch.cat([keys[i : i + 1], negatives[i], made[i]]) @ query / temperature
        terms.append(scores.logsumexp(dim=0) - scores[0])
    return torch.stack(terms).mean(), torch.stack(made)


@pytest.mark.parametrize(
    "queue, in_batch, hardest", [(QUEUE, False, 3), (QUEUE, True, 100), (None, True, 2)]
)
@pytest.mark.parametrize("mixed, mixed_with_query", [(7, 5), (0, 4), (6, 0), (0, 0)])
@pytest.mark.parametrize("keys_train", [False, True])
def test_equals_a_loss_with_built_mixtures(
    queue: Tensor | None,
    in_batch: bool,
    hardest: int,
    mixed: int,
    mixed_with_query: int,
    keys_train: bool,
) -> None:
    """Compare values, and gradients with mixtures as constants."""
    settings = (queue, 0.2, hardest, mixed, mixed_with_query, in_batch)
    queries, keys = (view.requires_grad_() for view in views(5))
    given = keys if keys_train else keys.detach()
    value = mochi_loss(queries, given, *settings, seeded())
    expected, _ = built_loss(queries, given, *settings, seeded())
    laws.assert_same_gradients(value, expected, queries, *([keys] if keys_train else []))
    terms = mochi_loss(queries, given, *settings, seeded(), "none")
    assert terms.shape == (5,) and terms.mean().item() == pytest.approx(value.item())
    moved = mochi_loss(*rescaled(2, queries, given), *settings, seeded()).item()
    assert moved == pytest.approx(value.item())


def test_the_query_never_dominates_a_mixture() -> None:
    """Check that a mixture is nearer to the query than its negative, and nearest to the latter."""
    queries, keys = views(3)
    _, made = built_loss(queries, keys, QUEUE, 0.2, 1, 0, 50, False, seeded())
    hardest = (normalize(queries) @ normalize(QUEUE).T).max(dim=1)
    to_query = (made * normalize(queries).unsqueeze(1)).sum(dim=-1)
    to_hard = (made * normalize(QUEUE)[hardest.indices].unsqueeze(1)).sum(dim=-1)
    assert (to_query >= hardest.values.unsqueeze(1)).all() and (to_hard >= to_query).all()


def test_without_mixing_it_is_moco_or_info_nce() -> None:
    queries, keys = views(5)
    plain = mochi_loss(queries, keys, QUEUE, mixed=0, mixed_with_query=0)
    assert plain.item() == pytest.approx(moco_loss(queries, keys, QUEUE, 0.2).item())
    batch = mochi_loss(queries, keys, mixed=0, mixed_with_query=0, in_batch=True)
    expected = info_nce(queries, keys, similarity="cosine", temperature=0.2)
    assert batch.item() == pytest.approx(expected.item())


def test_draws_come_from_the_generator() -> None:
    values = [mochi_loss(*views(5), QUEUE, generator=seeded(seed)).item() for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_gradients_and_hard_batches_with_a_queue() -> None:
    options: dict[str, Any] = {"mixed": 5, "mixed_with_query": 0}
    keys, opposite = views(4)[1], torch.cat([QUEUE, -QUEUE])  # Opposite vectors may cancel.
    laws.assert_gradients(
        lambda q: mochi_loss(q, keys, QUEUE, generator=seeded(), **options), views(4)[0]
    )
    laws.assert_finite(lambda x, y: mochi_loss(x, y, opposite, generator=seeded()))


def test_without_negatives_the_loss_is_zero() -> None:
    batch = [view.requires_grad_() for view in views(1)]
    laws.assert_zero_with_a_graph(mochi_loss(*batch, in_batch=True), *batch)
    laws.assert_zero_with_a_graph(mochi_loss(*batch, torch.ones(0, 4)), *batch)


def test_synthetic_vectors_are_never_built() -> None:
    queries, keys = views(64, 128, dtype=torch.float32)
    queue = normal(512, 128, dtype=torch.float32)
    saved = laws.largest_saved(lambda q: mochi_loss(q, keys, queue, hardest=256), queries)
    assert saved <= 64 * (1 + 512 + 1024 + 128)  # The vectors would have 64 * 1152 * 128.


def test_mixing_may_start_later() -> None:
    objective = HardNegativeMixing(queue_size=0, in_batch=True, start_after=2).double().train()
    batch = views(4)
    plain = mochi_loss(*batch, in_batch=True, mixed=0, mixed_with_query=0).item()
    values = [objective(*batch).item() for _ in range(4)]
    assert values[:2] == pytest.approx([plain, plain])
    assert min(values[2:]) > plain and values[2] != values[3]
    assert int(objective.steps) == 4


def test_both_views_are_trained_without_a_queue() -> None:
    queries, keys = (view.requires_grad_() for view in views(4))
    settings = {"queue_size": 0, "in_batch": True, "mixed": 3, "hardest": 2}
    loss = HardNegativeMixing(**settings).double()(queries, keys, seeded())
    expected = mochi_loss(queries, keys, None, 0.2, 2, 3, 128, True, seeded())
    assert loss.item() == pytest.approx(expected.item())
    loss.backward()
    assert keys.grad is not None and keys.grad.any()
    keys.grad = None
    HardNegativeMixing(4, 8, in_batch=True).double()(queries, keys).backward()
    assert keys.grad is None
