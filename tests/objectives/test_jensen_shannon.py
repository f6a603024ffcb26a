"""Tests of the Jensen-Shannon divergence against golden numbers and a loop in Python."""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives.distances import jensen_shannon
from tests.objectives import laws
from tests.objectives.oracles import Golden, assert_reductions, doubles, drawn, normal, views

GOLDEN = Golden("cutoff", "cutoff_js")
P, Q = GOLDEN.inputs("logits_original", "logits_augmented")


def naive_terms(p: Tensor, q: Tensor) -> list[float]:
    return [
        sum(
            a * math.log(2 * a / (a + b)) / 2 + b * math.log(2 * b / (a + b)) / 2
            for a, b in zip(row_p, row_q, strict=True)
        )
        for row_p, row_q in zip(p.softmax(1).tolist(), q.softmax(1).tolist(), strict=True)
    ]


def test_golden_numbers() -> None:
    value = jensen_shannon(P, Q)
    GOLDEN.check({"js_true": value})
    assert abs(value.item() - GOLDEN.values["js_reference_code_reversed"]) > 1e-4


@drawn(100, n=st.integers(0, 6), classes=st.integers(1, 5), scale=st.floats(0.1, 20))
def test_equals_a_loop_and_is_symmetric_bounded_and_shift_invariant(
    n: int, classes: int, seed: int, scale: float
) -> None:
    """Check that the bounds are [0, log 2], and that a constant added to logits has no effect."""
    p, q = scale * normal(n, classes, seed=seed), scale * normal(n, classes, seed=seed + 1)
    assert_reductions(lambda reduction: jensen_shannon(p, q, reduction), naive_terms(p, q))
    value = jensen_shannon(p, q).item()
    assert jensen_shannon(q, p).item() == pytest.approx(value, abs=1e-12)
    assert -1e-12 <= value <= math.log(2)
    assert jensen_shannon(p + 7, q - 3).item() == pytest.approx(value, abs=1e-9)
    assert jensen_shannon(p, p + 1).item() == pytest.approx(0, abs=1e-12)


def test_classes_that_are_ruled_out_give_finite_values() -> None:
    """Rule classes out in one or both predictions, which are log 2 apart if they share none."""
    inf = math.inf
    p = doubles([[0.0, -inf, -inf], [0.0, 0.0, -inf]]).requires_grad_()
    q = doubles([[-inf, 0.0, -inf], [0.0, -inf, -inf]]).requires_grad_()
    terms = jensen_shannon(p, q, "none")
    by_hand = (math.log(4 / 3) + 0.5 * math.log(2 / 3) + 0.5 * math.log(2)) / 2
    assert terms.tolist() == pytest.approx([math.log(2), by_hand], abs=1e-12)
    terms.sum().backward()
    assert p.grad is not None and p.grad.isfinite().all()
    assert q.grad is not None and q.grad.isfinite().all()


def test_gradients_and_precision() -> None:
    laws.assert_gradients(jensen_shannon, P, Q)
    laws.assert_full_precision(jensen_shannon, *views(6))
    laws.assert_finite(jensen_shannon)
    p, q = (torch.zeros(0, 3, requires_grad=True) for _ in range(2))
    laws.assert_zero_with_a_graph(jensen_shannon(p, q), p, q)


@pytest.mark.parametrize("other", [Q[:1], Q[:, :2], Q[0]])
def test_shapes_that_do_not_fit_raise(other: Tensor) -> None:
    with pytest.raises(ValueError, match=r"two predictions \(N, C\) of the same shape"):
        jensen_shannon(P, other)
    with pytest.raises(ValueError, match="expected one of mean, sum, none"):
        jensen_shannon(P, Q, "median")
