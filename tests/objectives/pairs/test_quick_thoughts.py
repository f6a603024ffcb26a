"""Tests of Quick-Thoughts against golden numbers and loops in Python."""

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives.pairs.quick_thoughts import QuickThoughts, quick_thoughts_loss
from tests.objectives import laws
from tests.objectives.oracles import Golden, assert_reductions, dot, drawn, log_sum_exp, mean, views

GOLDEN = Golden("quick_thoughts", "quick_thoughts")
F, G = GOLDEN.inputs("f", "g")


def naive_terms(
    f: Tensor, g: Tensor, documents: list[int], context: int, parity: bool
) -> list[float]:
    terms = []
    for i, row in enumerate(f):
        scores = [dot(row, other) for other in g]
        if parity:
            scores[i] = 0.0
        candidates = [s for k, s in enumerate(scores) if parity or k != i]
        near = [
            k
            for k in range(len(scores))
            if k != i and abs(k - i) <= context and documents[k] == documents[i]
        ]
        if near:
            terms.append(log_sum_exp(candidates) - mean([scores[k] for k in near]))
    return terms


def test_golden_numbers() -> None:
    rows = {"ids": torch.arange(4), "documents": torch.zeros(4, dtype=torch.long)}
    loss = quick_thoughts_loss(F, G)
    printed = quick_thoughts_loss(F, G, average_context=False, reduction="sum")
    found = {
        "recommended_mean_masked_diag": loss,
        "reference_code_diag_logit_0": QuickThoughts(parity=True)(F, G, **rows),
        "paper_sum_over_context_masked_diag": printed,
    }
    GOLDEN.check(found)
    assert abs(loss.item() - GOLDEN.values["diag_kept_as_candidate_WRONG"]) > 1e-4


@drawn(
    40,
    n=st.integers(2, 8),
    context=st.integers(1, 3),
    parity=st.booleans(),
    documents=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
def test_equals_the_formula_in_loops(
    n: int, seed: int, context: int, parity: bool, documents: list[int]
) -> None:
    """Include batches of two sentences, with one candidate, and without any neighbours."""
    f, g = views(n, 3, seed)
    of_rows = torch.tensor(documents[:n])
    terms = naive_terms(f, g, documents[:n], context, parity)
    assert_reductions(
        lambda r: quick_thoughts_loss(f, g, of_rows, context, parity, reduction=r), terms
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_without_neighbours_the_loss_is_zero_with_a_graph(reduction: str) -> None:
    f, g = (view.requires_grad_() for view in views(3))
    alone = torch.tensor([4, 2, 7])
    laws.assert_zero_with_a_graph(quick_thoughts_loss(f, g, alone, reduction=reduction), f, g)
    laws.assert_zero_with_a_graph(quick_thoughts_loss(f[:1], g[:1], reduction=reduction), f, g)
    one = QuickThoughts(reduction=reduction).eval()
    far = {"ids": torch.tensor([7, 9, 0]), "documents": torch.zeros(3, dtype=torch.long)}
    for n in (1, 3):
        number = {name: ids[:n] for name, ids in far.items()}
        laws.assert_zero_with_a_graph(one(f[:n], g[:n], **number), f, g)


def test_rows_without_neighbours_are_only_candidates() -> None:
    """Check that such rows have no gradient as sentences, but have one as contexts."""
    f, g = (view.requires_grad_() for view in views(4))
    ids = torch.tensor([0, 1, 7, 7])  # The last two rows are the same sentence.
    quick_thoughts_loss(f, g, ids=ids).backward()
    assert not f.grad[2:].any() and f.grad[:2].all() and g.grad.all()


def test_the_objective_takes_sentences_of_documents() -> None:
    objective = QuickThoughts(context=2)
    given = {"ids": torch.arange(4), "documents": torch.tensor([0, 0, 1, 1])}
    expected = mean(naive_terms(F, G, [0, 0, 1, 1], 2, False))
    assert objective(F, G, **given).item() == pytest.approx(expected)
    assert objective.last_metrics["with_neighbours"] == 1
