"""Tests of Quick-Thoughts against golden numbers and loops in Python."""

import math

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective
from declutr.objectives.pairs.quick_thoughts import QuickThoughts, quick_thoughts_loss
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    doubles,
    golden,
    largest_saved,
    views,
)

GOLDEN = golden("quick_thoughts")["quick_thoughts"]
F, G = (doubles(GOLDEN["inputs"][key]) for key in ("f", "g"))


def naive_terms(
    f: Tensor, g: Tensor, documents: list[int], context: int, parity: bool
) -> list[float]:
    terms = []
    for i, row in enumerate(f.tolist()):
        scores = [sum(a * b for a, b in zip(row, other, strict=True)) for other in g.tolist()]
        if parity:
            scores[i] = 0.0
        candidates = [s for k, s in enumerate(scores) if parity or k != i]
        near = [
            k
            for k in range(len(scores))
            if k != i and abs(k - i) <= context and documents[k] == documents[i]
        ]
        if near:
            total = math.log(sum(math.exp(s) for s in candidates))
            terms.append(sum(total - scores[k] for k in near) / len(near))
    return terms


ROWS = {"ids": torch.arange(4), "documents": torch.zeros(4, dtype=torch.long)}


def test_golden_numbers() -> None:
    values = GOLDEN["values"]
    loss = quick_thoughts_loss(F, G).item()
    assert loss == pytest.approx(values["recommended_mean_masked_diag"], abs=1e-9)
    parity = QuickThoughts(parity=True)(F, G, **ROWS).item()
    assert parity == pytest.approx(values["reference_code_diag_logit_0"], abs=1e-9)
    printed = quick_thoughts_loss(F, G, average_context=False, reduction="sum").item()
    assert printed == pytest.approx(values["paper_sum_over_context_masked_diag"], abs=1e-9)
    assert abs(loss - values["diag_kept_as_candidate_WRONG"]) > 1e-4


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 8),
    seed=st.integers(0, 10**6),
    context=st.integers(1, 3),
    parity=st.booleans(),
    documents=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
def test_equals_the_formula_in_loops(
    n: int, seed: int, context: int, parity: bool, documents: list[int]
) -> None:
    f, g = views(n, 3, seed)
    ids = documents[:n]
    expected = naive_terms(f, g, ids, context, parity)
    terms = quick_thoughts_loss(f, g, torch.tensor(ids), context, parity, reduction="none")
    assert terms.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    for reduction, total in (
        ("sum", sum(expected)),
        ("mean", sum(expected) / (len(expected) or 1)),
    ):
        loss = quick_thoughts_loss(f, g, torch.tensor(ids), context, parity, reduction=reduction)
        assert loss.item() == pytest.approx(total, rel=1e-9, abs=1e-12)


def test_reversed_sentences_have_the_same_loss() -> None:
    f, g = views(6)
    documents = torch.tensor([0, 0, 0, 1, 1, 2])
    forwards = quick_thoughts_loss(f, g, documents)
    assert quick_thoughts_loss(f.flip(0), g.flip(0), documents.flip(0)).item() == pytest.approx(
        forwards.item()
    )


def test_the_order_of_documents_does_not_matter() -> None:
    f, g = views(5)
    documents = torch.tensor([0, 0, 0, 1, 1])
    order = [3, 4, 0, 1, 2]
    moved = quick_thoughts_loss(f[order], g[order], documents[order]).item()
    assert moved == pytest.approx(quick_thoughts_loss(f, g, documents).item())
    assert moved != pytest.approx(quick_thoughts_loss(f, g).item())


def test_two_sentences_have_one_candidate() -> None:
    assert quick_thoughts_loss(*views(2)).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_without_neighbours_the_loss_is_zero(reduction: str) -> None:
    f, g = (view.requires_grad_() for view in views(3))
    alone = torch.tensor([4, 2, 7])
    assert_zero_with_a_graph(quick_thoughts_loss(f, g, alone, reduction=reduction), f, g)
    one = QuickThoughts(reduction=reduction).eval()
    number = {"ids": torch.tensor([7]), "documents": torch.tensor([0])}
    assert_zero_with_a_graph(one(f[:1], g[:1], **number), f, g)
    assert quick_thoughts_loss(f, g, alone, reduction="none").shape == (0,)


def test_rows_without_neighbours_are_only_candidates() -> None:
    """Check that such rows have no gradient as sentences, but have one as contexts."""
    f, g = (view.requires_grad_() for view in views(4))
    ids = torch.tensor([0, 1, 7, 7])  # The last two rows are the same sentence.
    quick_thoughts_loss(f, g, ids=ids).backward()
    assert not f.grad[2:].any() and f.grad[:2].all() and g.grad.all()
    alone = [view.detach()[:1].requires_grad_() for view in views(4)]
    assert_zero_with_a_graph(quick_thoughts_loss(*alone), *alone)


@pytest.mark.parametrize("parity", [False, True])
def test_gradients_and_hard_batches(parity: bool) -> None:
    documents = torch.tensor([0, 0, 0, 1])
    assert_gradients(lambda f, g: quick_thoughts_loss(f, g, documents, 2, parity), *views(4))
    assert_finite_where_it_is_hard(lambda f, g: quick_thoughts_loss(f, g, parity=parity))


def test_full_precision_and_memory() -> None:
    assert_full_precision(quick_thoughts_loss, *views(16))
    assert largest_saved(quick_thoughts_loss, *views(512, dtype=torch.float32)) <= 512**2


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(Params({"type": "quick_thoughts", "context": 2}))
    assert isinstance(built, QuickThoughts)
    expected = naive_terms(F, G, [0, 0, 1, 1], 2, False)
    given = {"ids": torch.arange(4), "documents": torch.tensor([0, 0, 1, 1])}
    assert built(F, G, **given).item() == pytest.approx(sum(expected) / 4)
    assert built.last_metrics["with_neighbours"] == 1
    with pytest.raises(ConfigurationError, match="context must be at least 1 sentence, got 0"):
        QuickThoughts(context=0)
    with pytest.raises(ValueError, match=r"one document id for each of the 4 rows, got \(3,\)"):
        built(F, G, ids=torch.arange(4), documents=torch.zeros(3))
    far = {"ids": torch.tensor([0, 9, 20, 40]), "documents": torch.zeros(4)}
    with pytest.raises(
        ValueError, match=r"No sentence of the batch of 4 has a neighbour in it. Set 'consec"
    ):
        built.train()(F, G, **far)
    assert not built.eval()(F, G, **far)
