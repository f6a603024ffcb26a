"""Tests of contrastive predictive coding against loops over floats."""

import math

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import PredictiveCoding, cpc_loss
from tests.objectives import laws
from tests.objectives.oracles import assert_reductions, drawn, log_sum_exp, mean, normal

Rows = list[list[float]]


def times(matrix: Rows, vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def naive_state(cell: torch.nn.GRUCell, x: list[float], h: list[float]) -> list[float]:
    """The next state of a gated recurrent unit (Cho et al., 2014), as torch documents it."""
    inner, outer = (
        [a + b for a, b in zip(times(weight.tolist(), vector), bias.tolist(), strict=True)]
        for weight, bias, vector in (
            (cell.weight_ih, cell.bias_ih, x),
            (cell.weight_hh, cell.bias_hh, h),
        )
    )
    m, state = len(h), []
    for i in range(m):
        reset = sigmoid(inner[i] + outer[i])
        update = sigmoid(inner[m + i] + outer[m + i])
        new = math.tanh(inner[2 * m + i] + reset * outer[2 * m + i])
        state.append((1 - update) * new + update * h[i])
    return state


def naive_terms(z: Rows, c: Rows, matrices: list[Rows], runs: list[int]) -> list[float]:
    """The terms by step ahead and by sentence, every sentence of the batch a candidate."""
    terms = []
    for k, matrix in enumerate(matrices, start=1):
        for t in range(len(z) - k):
            if runs[t + k] == runs[t]:
                scores = times(z, times(matrix, c[t]))
                terms.append(log_sum_exp(scores) - scores[t + k])
    return terms


def naive_objective(one: PredictiveCoding, z: Tensor, ids: Tensor, documents: Tensor) -> list:
    """The terms of a batch, sentence by sentence in their order."""
    contexts: Rows = []
    runs: list[int] = []
    order = sorted(range(len(z)), key=lambda row: ids[row].item())
    before: tuple[int, int] | None = None
    state: list[float] = []
    for row in order:
        here = (int(ids[row]), int(documents[row]))
        follows = before is not None and here == (before[0] + 1, before[1])
        if not follows or len(runs) % one.max_context == 0:
            state = [0.0] * one.recurrence.hidden_size
        runs.append(runs[-1] + (not follows) if runs else 0)
        state = naive_state(one.recurrence, z[row].tolist(), state)
        contexts.append(state)
        before = here
    return naive_terms(z[order].tolist(), contexts, one.matrices.tolist(), runs)


def built(steps: int = 3, max_context: int = 32) -> PredictiveCoding:
    torch.manual_seed(0)
    return PredictiveCoding(4, 3, steps, max_context).double()


@drawn(30, n=st.integers(1, 7), k=st.integers(1, 3), runs=st.lists(st.integers(0, 2), min_size=7))
def test_loss_equals_the_formula_in_loops(n: int, k: int, runs: list[int], seed: int) -> None:
    z, c, matrices = (
        normal(n, 4, seed=seed),
        normal(n, 3, seed=seed + 1),
        normal(k, 4, 3, seed=seed),
    )
    runs = sorted(runs[:n])
    terms = naive_terms(z.tolist(), c.tolist(), matrices.tolist(), runs)
    assert_reductions(lambda r: cpc_loss(z, c, matrices, torch.tensor(runs), r), terms)


@drawn(
    30,
    order=st.permutations(range(6)),
    ids=st.sets(st.integers(0, 9), min_size=6, max_size=6),
    cut=st.integers(0, 9),
    most=st.sampled_from([1, 2, 4, 32]),
)
def test_objective_equals_loops(
    order: list[int], ids: set[int], cut: int, most: int, seed: int
) -> None:
    """Of sentences in any order, with gaps between them and two documents."""
    one, z = built(max_context=most), normal(6, 4, seed=seed)
    numbers = torch.tensor(sorted(ids))[order]
    documents = (numbers >= cut).long()
    terms = naive_objective(one, z, numbers, documents)
    assert one(z, numbers, documents).item() == pytest.approx(mean(terms), abs=1e-10)
    assert one.last_metrics["with_next"].item() == pytest.approx(len(terms) / 18)


def test_golden_number_of_four_sentences() -> None:
    """By hand: W_1 turns each sentence into the one that comes, three axes in turn."""
    z = torch.eye(4, dtype=torch.float64)[[0, 1, 2, 0]]
    one_ahead = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0]]).double()  # e_i to e_i+1
    contexts = z[:, :3]
    loss = cpc_loss(z, contexts, one_ahead.unsqueeze(0), reduction="none")
    # Sentence 2 is followed by sentence 0 again, which stands twice among the candidates.
    e = math.e
    once, twice = math.log((e + 3) / e), math.log((2 * e + 2) / e)
    assert loss.tolist() == pytest.approx([once, once, twice], abs=1e-12)


def test_sentences_apart_have_no_loss_and_gradients_of_zero() -> None:
    one, z = built(), normal(4, 4).requires_grad_()
    given = {"ids": torch.tensor([1, 3, 5, 6]), "documents": torch.tensor([0, 0, 0, 1])}
    laws.assert_zero_with_a_graph(one(z, **given), z, *one.parameters())
    assert one.last_metrics == {"with_next": 0, "prediction_accuracy": 0}
    followed = {"ids": torch.arange(4), "documents": torch.tensor([0, 0, 1, 1])}
    one(z, **followed).backward()
    assert all(p.grad is not None for p in one.parameters())
    assert one.matrices.grad[0].any() and not one.matrices.grad[1:].any()


def test_gradients_reach_the_recurrence_and_every_matrix() -> None:
    one, z = built(steps=2), normal(5, 4)
    given = {"ids": torch.arange(5), "documents": torch.tensor([0, 0, 0, 1, 1])}
    names = [name for name, _ in one.named_parameters()]

    def loss(z: Tensor, *values: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True))
        return torch.func.functional_call(one, state, (z,), given)

    laws.assert_gradients(loss, z, *one.parameters())


def test_what_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="steps must be above 0, got 0"):
        PredictiveCoding(4, steps=0)
    with pytest.raises(ConfigurationError, match="max_context must be above 0, got 0"):
        PredictiveCoding(4, max_context=0)
    with pytest.raises(ConfigurationError, match="context_size must be above 0, got 0"):
        PredictiveCoding(4, context_size=0)
    with pytest.raises(ValueError, match=r"a document for each of the 3 rows, got \(2,\)"):
        built()(normal(3, 4), torch.arange(2), torch.arange(3))
    with pytest.raises(ValueError, match=r"rows of width 4 \(embedding_size\), got \(3, 5\)"):
        built()(normal(3, 5), torch.arange(3), torch.arange(3))
    with pytest.raises(ValueError, match=r"matrices \(K, d, m\), got \(3, 4\), \(2, 3\)"):
        cpc_loss(normal(3, 4), normal(2, 3), normal(1, 4, 3))
    assert (PredictiveCoding(5).recurrence.hidden_size, PredictiveCoding(5).min_pairs) == (5, 4)
