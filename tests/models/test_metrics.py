"""Running means against plain sums, retrieval accuracy against a loop."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.models.metrics import (
    READ_EVERY,
    RunningMeans,
    UnreadLosses,
    read_together,
    retrieval_accuracy,
)

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


def test_compute_gives_the_same_until_reset() -> None:
    """A name of weight zero has no mean: for example, the MLM loss without masked tokens."""
    means = RunningMeans()
    means.record("loss", torch.tensor(0.0), torch.tensor(0.0))
    assert means.compute() == {}
    means.record("loss", torch.tensor(2.0, requires_grad=True), 3.0)
    assert means.compute() == means.compute() == {"loss": 2.0}
    means.record("loss", torch.tensor(6.0))
    assert means.compute() == {"loss": 3.0}
    means.reset()
    assert means.compute() == {}


def test_many_small_values_add_up() -> None:
    means = RunningMeans()
    for _ in range(20_000):
        means.record("x", torch.tensor(0.1), 1000.0)
    assert means.compute()["x"] == pytest.approx(float(torch.tensor(0.1)), rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_values_that_are_kept_have_the_same_sums(values: list[tuple[float, float]]) -> None:
    """Values of any dtype are kept as on a device, with weights that are tensors or numbers."""
    at_once, kept = RunningMeans(), RunningMeans(keep=True)
    for number, (value, weight) in enumerate(values):
        for means in (at_once, kept):
            means.record("a", torch.tensor(value), weight)
            means.record("b", torch.tensor(value, dtype=torch.bfloat16), torch.tensor(weight))
            means.record("c", torch.tensor(number))
            if number == 2:
                means.compute()
    assert kept.state_dict() == at_once.state_dict()
    assert kept.compute() == at_once.compute()


def test_a_caller_that_asks_at_every_step_causes_few_reads() -> None:
    means = RunningMeans(keep=True)
    shown = []
    for step in range(2 * READ_EVERY + 1):
        means.record("x", torch.tensor(float(step)))
        shown.append(means.compute()["x"] if means.due() else means.last["x"])
    mean_of_steps = [number / 2 for number in range(2 * READ_EVERY + 1)]
    first, second, third = (mean_of_steps[i * READ_EVERY] for i in range(3))
    assert shown == [first] * READ_EVERY + [second] * READ_EVERY + [third]
    means.reset()
    assert means.last == {} and means.due()
    at_once = RunningMeans()
    assert all(at_once.due() for _ in range(3))


def test_unread_values_are_bounded() -> None:
    means, losses = RunningMeans(keep=True), UnreadLosses(keep=True)
    for _ in range(5000):
        means.record("x", torch.tensor(1.0))
        assert len(means._unread) < 1000
    assert means.state_dict() == {"x": [5000.0, 5000.0]}
    looks = [losses.add(torch.tensor(1.0)) for _ in range(10 * READ_EVERY)]
    assert looks == [False] * (10 * READ_EVERY - 1) + [True]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_the_first_loss_that_is_not_finite(broken: float) -> None:
    losses = UnreadLosses(keep=True)
    assert losses.first_broken() is None
    for loss in (1.0, 2.0):
        losses.add(torch.tensor(loss))
    assert losses.first_broken() is None
    for loss in (3.0, broken, 4.0):
        losses.add(torch.tensor(loss, requires_grad=True))
    found = losses.first_broken()
    assert found is not None and str(found[0]) == str(broken) and found[1:] == (4, 5)
    assert losses.first_broken() is None
    assert UnreadLosses().add(torch.tensor(1.0)) is True  # on the CPU there is nothing to wait for


def test_numbers_of_all_types_are_read_together() -> None:
    values = [(0.1, torch.float32), (7, torch.int64), (0.1, torch.float64), (0.1, torch.bfloat16)]
    scalars = [torch.tensor(value, dtype=dtype) for value, dtype in values * 3]
    scalars.append(torch.tensor([2.5]))
    assert read_together(scalars) == [scalar.item() for scalar in scalars]


def test_means_continue_from_a_state_dict() -> None:
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
    """One pair has nothing to be confused with."""
    generator = torch.Generator().manual_seed(seed)
    anchors, positives = torch.randn(2, pairs, width, generator=generator).unbind()
    hits = 0
    for i in range(pairs):
        similarities = [torch.cosine_similarity(positives[i], a, dim=0).item() for a in anchors]
        hits += similarities.index(max(similarities)) == i
    assert retrieval_accuracy(anchors, positives).item() == pytest.approx(hits / pairs)
    assert retrieval_accuracy(anchors * 7, positives * 0.1).item() == pytest.approx(hits / pairs)
