"""Tests of IS-BERT against golden numbers and loops in Python."""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives.without_negatives.mutual_information import (
    ISBert,
    jsd_mutual_information_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import Golden, dot, drawn, mean, normal, softplus

GOLDEN = Golden("mutual_information", "isbert_jsd")
GLOBAL, TOKENS = GOLDEN.inputs("global", "local")
LOCAL = torch.stack([TOKENS[:2], torch.stack([TOKENS[2], torch.full((3,), 9.0)])])
MASK = torch.tensor([[True, True], [True, False]])


def lengths_mask(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)


def naive_loss(local: Tensor, lengths: list[int], global_vectors: Tensor) -> float:
    positive, negative = [], []
    used = [i for i, length in enumerate(lengths) if length]
    for i in used:
        for token in local[i][: lengths[i]]:
            for j in used:
                t = dot(token, global_vectors[j])
                if i == j:
                    positive.append(math.log(2) - softplus(-t))
                else:
                    negative.append(softplus(t) - math.log(2))
    return mean(negative) - mean(positive)


def test_golden_numbers() -> None:
    values, loss = GOLDEN.values, jsd_mutual_information_loss(LOCAL, MASK, GLOBAL)
    without = jsd_mutual_information_loss(LOCAL, MASK, GLOBAL, offsets=False)
    found = {"loss_reference": loss, "mi_lower_bound": -loss, "loss_no_log2": without}
    GOLDEN.check(found)
    assert loss.item() == pytest.approx(values["E_neg"] - values["E_pos"], abs=1e-9)


@drawn(40, lengths=st.lists(st.integers(0, 4), min_size=2, max_size=6))
def test_equals_the_formula_in_loops(lengths: list[int], seed: int) -> None:
    local = normal(len(lengths), 4, 3, seed=seed).requires_grad_()
    global_vectors = normal(len(lengths), 3, seed=seed + 1).requires_grad_()
    loss = jsd_mutual_information_loss(local, lengths_mask(lengths, 4), global_vectors)
    if sum(length > 0 for length in lengths) < 2:
        laws.assert_zero_with_a_graph(loss, local, global_vectors)
    else:
        assert loss.item() == pytest.approx(naive_loss(local, lengths, global_vectors), abs=1e-9)


def test_the_loss_of_chance_is_zero() -> None:
    zeros, mask = torch.zeros(3, 2, 4), torch.ones(3, 2)
    loss = jsd_mutual_information_loss(zeros, mask, zeros[:, 0])
    assert loss.item() == pytest.approx(0, abs=1e-6)
    without = jsd_mutual_information_loss(zeros, mask, zeros[:, 0], offsets=False)
    assert without.item() == pytest.approx(2 * math.log(2))


def test_gradients() -> None:
    for loss in (jsd_mutual_information_loss, ISBert()):
        laws.assert_gradients(lambda x, y, loss=loss: loss(x, MASK, y), LOCAL, GLOBAL)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_of_hard_batches_are_finite(scale: float, dtype: torch.dtype) -> None:
    local = (normal(3, 2, 4) * scale).to(dtype).requires_grad_()
    for tokens in (local, local[:1].expand(3, 2, 4)):
        loss = jsd_mutual_information_loss(tokens, torch.ones(3, 2), tokens.mean(dim=1))
        (gradient,) = torch.autograd.grad(loss, local)
        assert loss.isfinite() and gradient.isfinite().all()


def test_values_at_padding_do_not_matter() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    local, global_vectors = normal(3, 2, 3), normal(3, 3, seed=1)
    results = []
    for padding in (0.0, math.nan, math.inf):
        inputs = [
            local.masked_fill(~mask.unsqueeze(-1), padding).requires_grad_(),
            global_vectors.masked_fill(~mask.any(dim=1, keepdim=True), padding).requires_grad_(),
        ]
        loss = jsd_mutual_information_loss(inputs[0], mask, inputs[1])
        results.append([loss, *torch.autograd.grad(loss, inputs)])
    for result in results[1:]:
        assert all(map(torch.equal, results[0], result))
    assert not results[0][1][~mask].any() and results[0][1][mask].all()


def test_full_precision_and_memory() -> None:
    mask = lengths_mask([5, 3, 1, 5], 5)
    laws.assert_full_precision(
        lambda x, y: jsd_mutual_information_loss(x, mask, y), normal(4, 5, 8), normal(4, 8, seed=1)
    )
    loss = lambda x: jsd_mutual_information_loss(x, torch.ones(256, 4), normal(256, 8))  # noqa: E731
    assert laws.largest_saved(loss, normal(256, 4, 8)) <= 256 * 4 * 256
