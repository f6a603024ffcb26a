"""Tests of MoCHi against mixtures that are really built, MoCo, and its invariances."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import Objective
from declutr.objectives.memories.hard_negative_mixing import HardNegativeMixing, mochi_loss
from declutr.objectives.memories.momentum_contrast import moco_loss
from declutr.objectives.pairs.info_nce import info_nce
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    largest_saved,
    normal,
    rescaled,
    views,
)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


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
    queries, keys = unit(queries), unit(keys)
    hard, negatives = [], []
    for i, query in enumerate(queries):
        rows = [] if queue is None else list(unit(queue))
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
        among = unit(a[i] * hard[i][first[i]] + (1 - a[i]) * hard[i][second[i]])
        with_query = unit(b[i] * query.detach() + (1 - b[i]) * hard[i][partner[i]])
        made.append(torch.cat([among, with_query]))
        scores = torch.cat([keys[i : i + 1], negatives[i], made[i]]) @ query / temperature
        terms.append(scores.logsumexp(dim=0) - scores[0])
    return torch.stack(terms).mean(), torch.stack(made)


CASES: list[dict[str, Any]] = [
    {"queue": True, "in_batch": False, "hardest": 3},
    {"queue": True, "in_batch": True, "hardest": 100},
    {"queue": False, "in_batch": True, "hardest": 2},
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mixed, mixed_with_query", [(7, 5), (0, 4), (6, 0), (0, 0)])
@pytest.mark.parametrize("keys_train", [False, True])
def test_equals_a_loss_with_built_mixtures(
    case: dict[str, Any], mixed: int, mixed_with_query: int, keys_train: bool
) -> None:
    """Compare values, and gradients with mixtures as constants."""
    queue = normal(6, 4, seed=8) if case["queue"] else None
    results = []
    for loss in (mochi_loss, lambda *arguments: built_loss(*arguments)[0]):
        queries, keys = (view.requires_grad_() for view in views(5))
        value = loss(
            queries,
            keys if keys_train else keys.detach(),
            queue,
            0.2,
            case["hardest"],
            mixed,
            mixed_with_query,
            case["in_batch"],
            seeded(),
        )
        value.backward()
        results.append((value, queries.grad, keys.grad))
    for mine, other in zip(*results, strict=True):
        assert (mine is None) is (other is None)
        assert mine is None or torch.allclose(mine, other, rtol=1e-9, atol=1e-12)


def test_the_query_never_dominates_a_mixture() -> None:
    """Check that a mixture is nearer to the query than its negative, and nearest to the latter."""
    queries, keys = views(3)
    queue = normal(6, 4, seed=8)
    _, made = built_loss(queries, keys, queue, 0.2, 1, 0, 50, False, seeded())
    hardest = (unit(queries) @ unit(queue).T).max(dim=1)
    to_query = (made * unit(queries).unsqueeze(1)).sum(dim=-1)
    to_hard = (made * unit(queue)[hardest.indices].unsqueeze(1)).sum(dim=-1)
    assert (to_query >= hardest.values.unsqueeze(1)).all() and (to_hard >= to_query).all()


def test_without_mixing_it_is_moco_or_info_nce() -> None:
    queries, keys = views(5)
    queue = normal(6, 4, seed=8)
    plain = mochi_loss(queries, keys, queue, mixed=0, mixed_with_query=0)
    assert plain.item() == pytest.approx(moco_loss(queries, keys, queue, 0.2).item())
    batch = mochi_loss(queries, keys, mixed=0, mixed_with_query=0, in_batch=True)
    expected = info_nce(queries, keys, similarity="cosine", temperature=0.2)
    assert batch.item() == pytest.approx(expected.item())


def test_more_synthetic_negatives_raise_the_loss() -> None:
    queries, keys = views(5)
    queue = normal(6, 4, seed=8)
    losses = [
        mochi_loss(queries, keys, queue, mixed=s, mixed_with_query=t, generator=seeded()).item()
        for s, t in ((0, 0), (4, 0), (4, 4))
    ]
    assert losses[0] < losses[1] < losses[2]


def test_the_length_of_rows_does_not_matter() -> None:
    queries, keys = views(5)
    queue = normal(6, 4, seed=8)
    expected = mochi_loss(queries, keys, queue, generator=seeded()).item()
    changed = rescaled(2, queries, keys, queue)
    assert mochi_loss(*changed, generator=seeded()).item() == pytest.approx(expected)
    terms = mochi_loss(queries, keys, queue, generator=seeded(), reduction="none")
    assert terms.shape == (5,) and terms.mean().item() == pytest.approx(expected)


def test_draws_come_from_the_generator() -> None:
    batch = [*views(5), normal(6, 4, seed=8)]
    values = [mochi_loss(*batch, generator=seeded(seed)).item() for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_gradients_and_hard_batches() -> None:
    queue = normal(6, 4, seed=8)
    options: dict[str, Any] = {"mixed": 5, "mixed_with_query": 0}
    assert_gradients(
        lambda q: mochi_loss(q, views(4)[1], queue, generator=seeded(), **options), views(4)[0]
    )
    assert_finite_where_it_is_hard(
        lambda x, y: mochi_loss(x, y, queue, in_batch=True, generator=seeded())
    )
    opposite = torch.cat([queue, -queue])  # Mixtures of opposite vectors may cancel.
    assert_finite_where_it_is_hard(lambda x, y: mochi_loss(x, y, opposite, generator=seeded()))
    assert_full_precision(lambda x, y: mochi_loss(x, y, queue, generator=seeded()), *views(16))


def test_without_negatives_the_loss_is_zero() -> None:
    batch = [view.requires_grad_() for view in views(1)]
    assert_zero_with_a_graph(mochi_loss(*batch, in_batch=True), *batch)
    assert_zero_with_a_graph(mochi_loss(*batch, torch.ones(0, 4)), *batch)


def test_synthetic_vectors_are_never_built() -> None:
    queries, keys = views(64, 128, dtype=torch.float32)
    queue = normal(512, 128, dtype=torch.float32)
    saved = largest_saved(lambda q: mochi_loss(q, keys, queue, hardest=256), queries)
    assert saved <= 64 * (1 + 512 + 1024 + 128)  # The vectors would have 64 * 1152 * 128.


@pytest.mark.parametrize("steps", [0, 2])
def test_a_resumed_run_continues_exactly(tmp_path: Path, steps: int) -> None:
    def fresh() -> HardNegativeMixing:
        return HardNegativeMixing(4, 10, hardest=6, mixed=5, mixed_with_query=3).train()

    one = fresh()
    for step in range(steps):
        one(*views(4, seed=step, dtype=torch.float32))
    torch.save(one.state_dict(), tmp_path / "state.th")
    other = fresh()
    other(*views(3, seed=99, dtype=torch.float32))
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    for step in range(steps, steps + 3):
        torch.manual_seed(step)  # the global state must not matter
        batch = views(4, seed=step, dtype=torch.float32)
        mine = one(*batch)
        torch.rand(7)
        assert torch.equal(mine, other(*batch))
    assert int(one.steps) == steps + 3


def test_validation_changes_no_state() -> None:
    objective = HardNegativeMixing(4, 8).train()
    objective(*views(3, dtype=torch.float32))
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    objective.eval()
    batch = views(3, seed=5, dtype=torch.float32)
    assert torch.equal(objective(*batch), objective(*batch))
    assert all(torch.equal(value, before[key]) for key, value in objective.state_dict().items())


def test_mixing_may_start_later() -> None:
    objective = HardNegativeMixing(queue_size=0, in_batch=True, start_after=2).double().train()
    batch = views(4)
    plain = mochi_loss(*batch, in_batch=True, mixed=0, mixed_with_query=0).item()
    values = [objective(*batch).item() for _ in range(4)]
    assert values[:2] == pytest.approx([plain, plain])
    assert min(values[2:]) > plain and values[2] != values[3]


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(
        Params({"type": "mochi", "queue_size": 0, "in_batch": True, "mixed": 3, "hardest": 2})
    ).double()
    assert isinstance(built, HardNegativeMixing) and built.min_pairs == 2
    queries, keys = (view.requires_grad_() for view in views(4))
    loss = built(queries, keys, seeded())
    assert loss.item() == pytest.approx(
        mochi_loss(queries, keys, None, 0.2, 2, 3, 128, True, seeded()).item()
    )
    loss.backward()
    assert keys.grad is not None and keys.grad.any()  # without a queue both views are trained
    keys.grad = None
    with_queue = HardNegativeMixing(4, 8, in_batch=True).double()
    with_queue(queries, keys).backward()
    assert keys.grad is None and with_queue.min_pairs == 1  # keys of a momentum encoder
    with pytest.raises(ConfigurationError, match="queue of 16384 keys needs embedding_size"):
        HardNegativeMixing()
    with pytest.raises(ConfigurationError, match="no negatives to mix"):
        HardNegativeMixing(queue_size=0)
    with pytest.raises(ConfigurationError, match="hardest must be above 0, got 0"):
        HardNegativeMixing(4, hardest=0)
    with pytest.raises(ValueError, match=r"rows of width 5 \(embedding_size\), got \(4, 4\)"):
        HardNegativeMixing(5, 8)(queries, keys)
    assert math.isfinite(HardNegativeMixing(4, 8, only_filled=True).double()(queries, keys).item())
