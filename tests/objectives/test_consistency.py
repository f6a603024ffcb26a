"""Tests of the losses of UDA, and of the divergence of several views, against loops over floats."""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives.consistency import (
    annealed_cross_entropy,
    annealing_threshold,
    logits_of,
    sharpened_divergence,
)
from declutr.objectives.distances import jensen_shannon
from tests.objectives import laws
from tests.objectives.oracles import assert_reductions, drawn, normal, some_labels, views


def naive_softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    top = max(row)
    shares = [math.exp((value - top) / temperature) for value in row]
    return [share / sum(shares) for share in shares]


def naive_divergences(p: Tensor, q: Tensor, temperature: float, confidence: float) -> list[float]:
    terms = []
    for whole, view in zip(p.tolist(), q.tolist(), strict=True):
        counts = max(naive_softmax(whole)) > confidence
        pairs = zip(naive_softmax(whole, temperature), naive_softmax(view), strict=True)
        terms.append(sum(a * math.log(a / b) for a, b in pairs) if counts else 0.0)
    return terms


@drawn(
    40,
    n=st.integers(0, 6),
    classes=st.integers(1, 4),
    temperature=st.sampled_from([0.4, 0.85, 1.0]),
    confidence=st.sampled_from([0.0, 0.5, 0.8]),
)
def test_sharpened_divergence_equals_a_loop(
    n: int, classes: int, temperature: float, confidence: float, seed: int
) -> None:
    p, q = normal(n, classes, seed=seed), normal(n, classes, seed=seed + 1)
    terms = naive_divergences(p, q, temperature, confidence)
    assert_reductions(lambda r: sharpened_divergence(p, q, temperature, confidence, r), terms)


def test_the_sharpened_side_is_a_target_without_gradient() -> None:
    p, q = (view.requires_grad_() for view in views(3))
    sharpened_divergence(p, q, 0.5).backward()
    assert p.grad is None and q.grad is not None and q.grad.abs().sum() > 0
    laws.assert_gradients(lambda q: sharpened_divergence(p, q, 0.5, 0.3), q)
    laws.assert_full_precision(
        lambda q: sharpened_divergence(p.float(), q.float()), views(6)[0][:3]
    )
    nothing = sharpened_divergence(p, q, confidence=0.999)
    laws.assert_zero_with_a_graph(nothing, q)


@drawn(40, n=st.integers(1, 6), threshold=st.floats(0, 1))
def test_annealed_cross_entropy_equals_a_loop(n: int, threshold: float, seed: int) -> None:
    logits, labels = normal(n, 3, seed=seed), some_labels(n, seed=seed)
    of_labels = [
        naive_softmax(row)[label]
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True)
    ]
    counted = [p for p in of_labels if p <= threshold]
    total, count = annealed_cross_entropy(logits, labels, threshold)
    assert count.item() == len(counted)
    assert total.item() == pytest.approx(-sum(map(math.log, counted)), abs=1e-10)


def test_thresholds_by_hand() -> None:
    """Of two classes: from 1/2, what a coin says, to 1."""
    assert [annealing_threshold("linear", t, 2) for t in (0, 0.5, 1)] == [0.5, 0.75, 1]
    log, exp = ([annealing_threshold(kind, t, 2) for t in (0, 0.2, 1)] for kind in ("log", "exp"))
    assert log == pytest.approx([0.5, 0.5 + (1 - 1 / math.e) / 2, 1 - math.exp(-5) / 2])
    assert exp == pytest.approx([0.5 + math.exp(-5) / 2, 0.5 + math.exp(-4) / 2, 1])
    with pytest.raises(ValueError, match="Unknown schedule 'cosine': expected one of linear, log"):
        annealing_threshold("cosine", 0.5, 2)


@drawn(40, n=st.integers(0, 5), number=st.integers(2, 5))
def test_divergence_of_several_views_equals_a_loop(n: int, number: int, seed: int) -> None:
    logits = [normal(n, 3, seed=seed + view) for view in range(number)]
    terms = []
    for row in range(n):
        each = [naive_softmax(view[row].tolist()) for view in logits]
        middle = [sum(column) / number for column in zip(*each, strict=True)]
        terms.append(
            sum(a * math.log(a / m) for p in each for a, m in zip(p, middle, strict=True)) / number
        )
    first, second, *more = logits
    assert_reductions(lambda r: jensen_shannon(first, second, r, more), terms)


def test_scores_are_the_logits_of_outputs_or_the_logarithms_of_probabilities() -> None:
    logits = normal(2, 3)
    both = {"logits": logits, "probs": logits.softmax(1)}
    assert logits_of(both, "it") is logits
    found = logits_of({"probs": logits.softmax(1)}, "it")
    assert torch.allclose(found.softmax(1), logits.softmax(1))
    assert logits_of({"probs": torch.eye(2)}, "it").isfinite().all()
    with pytest.raises(
        ValueError, match=r"'logits' or 'probs' \(N, C\) of it.*got none among loss"
    ):
        logits_of({"loss": logits.sum()}, "it")
    with pytest.raises(ValueError, match=r"one row for each text, got \(2, 1, 3\) among logits"):
        logits_of({"logits": logits.unsqueeze(1)}, "it")
    with pytest.raises(ValueError, match=r"two predictions \(N, C\).* got \(2, 3\) and \(1, 3\)"):
        sharpened_divergence(logits, logits[:1])
