"""Running means against plain sums, retrieval accuracy against a loop."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.metrics import RunningMeans, retrieval_accuracy

VALUES = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.5, 100)), min_size=1, max_size=20)


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_weighted_means(values: list[tuple[float, float]]) -> None:
    means = RunningMeans()
    for value, weight in values:
        tensor = torch.tensor(value, dtype=torch.float64)
        means.record("a", tensor, weight)
        means.record("b", tensor)
        means.record("c", tensor, torch.tensor(weight, dtype=torch.float64))
    computed = means.compute()
    weights = sum(weight for _, weight in values)
    expected = sum(value * weight for value, weight in values) / weights
    assert list(computed) == ["a", "b", "c"]
    assert computed["a"] == pytest.approx(expected, abs=1e-9)
    assert computed["c"] == computed["a"]
    assert computed["b"] == pytest.approx(sum(v for v, _ in values) / len(values), abs=1e-9)


def test_compute_can_be_repeated_until_reset() -> None:
    means = RunningMeans()
    assert means.compute() == {}
    means.record("loss", torch.tensor(2.0, requires_grad=True), 3.0)
    assert means.compute() == means.compute() == {"loss": 2.0}
    means.record("loss", torch.tensor(6.0))
    assert means.compute() == {"loss": 3.0}
    means.reset()
    assert means.compute() == {}


def test_a_weight_of_zero_says_nothing() -> None:
    """Such as the MLM loss of batches in which nothing was masked."""
    means = RunningMeans()
    means.record("mlm_loss", torch.tensor(0.0), torch.tensor(0.0))
    assert means.compute() == {}
    means.record("mlm_loss", torch.tensor(4.0), torch.tensor(2.0))
    assert means.compute() == {"mlm_loss": 4.0}


def test_many_small_values_are_not_lost() -> None:
    means = RunningMeans()
    for _ in range(20_000):
        means.record("x", torch.tensor(0.1), 1000.0)
    assert means.compute()["x"] == pytest.approx(float(torch.tensor(0.1)), rel=1e-12)


def test_continues_from_its_state() -> None:
    one, other = RunningMeans(), RunningMeans()
    for i in range(5):
        one.record("x", torch.tensor(i / 3), i + 0.5)
        one.record("y", torch.tensor(i / 7))
    other.record("z", torch.tensor(1.0))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for means in (one, other):
        means.record("x", torch.tensor(0.123), 0.7)
        means.record("w", torch.tensor(9.0))
    assert one.compute() == other.compute()
    assert one.state_dict() == other.state_dict()


@settings(max_examples=40, deadline=None)
@given(pairs=st.integers(1, 9), width=st.integers(2, 5), seed=st.integers(0, 10**6))
def test_retrieval_accuracy_equals_a_loop(pairs: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    anchors, positives = torch.randn(2, pairs, width, generator=generator).unbind()
    hits = 0
    for i in range(pairs):
        similarities = [torch.cosine_similarity(positives[i], a, dim=0).item() for a in anchors]
        hits += similarities.index(max(similarities)) == i
    assert retrieval_accuracy(anchors, positives).item() == pytest.approx(hits / pairs)
    assert retrieval_accuracy(anchors * 7, positives * 0.1).item() == pytest.approx(hits / pairs)


def test_retrieval_accuracy_at_its_extremes() -> None:
    rows = torch.eye(4)
    assert retrieval_accuracy(rows, rows).item() == 1
    assert retrieval_accuracy(rows, rows.roll(1, 0)).item() == 0
    assert retrieval_accuracy(rows[:1], -rows[:1]).item() == 1  # nothing to confuse it with
