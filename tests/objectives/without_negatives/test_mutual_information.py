"""Tests of IS-BERT against golden numbers and loops in Python."""

import math

import pytest
import torch
from allennlp.common import Params
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective
from declutr.objectives.without_negatives.mutual_information import (
    ISBert,
    jsd_mutual_information_loss,
)
from tests.objectives.laws import (
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    doubles,
    golden,
    largest_saved,
    normal,
)

GOLDEN = golden("mutual_information")["isbert_jsd"]
GLOBAL = doubles(GOLDEN["inputs"]["global"])
TOKENS = doubles(GOLDEN["inputs"]["local"])
LOCAL = torch.stack([TOKENS[:2], torch.stack([TOKENS[2], torch.full((3,), 9.0)])])
MASK = torch.tensor([[True, True], [True, False]])


def lengths_mask(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)


def naive_loss(local: Tensor, lengths: list[int], global_vectors: Tensor) -> float:
    def softplus(x: float) -> float:
        return max(x, 0) + math.log1p(math.exp(-abs(x)))

    positive, negative = [], []
    used = [i for i, length in enumerate(lengths) if length]
    for i in used:
        for token in local[i][: lengths[i]].tolist():
            for j in used:
                t = sum(a * b for a, b in zip(token, global_vectors[j].tolist(), strict=True))
                if i == j:
                    positive.append(math.log(2) - softplus(-t))
                else:
                    negative.append(softplus(t) - math.log(2))
    return sum(negative) / len(negative) - sum(positive) / len(positive)


def test_golden_numbers() -> None:
    values = GOLDEN["values"]
    loss = jsd_mutual_information_loss(LOCAL, MASK, GLOBAL).item()
    assert loss == pytest.approx(values["loss_reference"], abs=1e-9)
    assert loss == pytest.approx(-values["mi_lower_bound"], abs=1e-9)
    assert loss == pytest.approx(values["E_neg"] - values["E_pos"], abs=1e-9)
    without = jsd_mutual_information_loss(LOCAL, MASK, GLOBAL, offsets=False).item()
    assert without == pytest.approx(values["loss_no_log2"], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=2, max_size=6), seed=st.integers(0, 10**6))
def test_equals_the_formula_in_loops(lengths: list[int], seed: int) -> None:
    local = normal(len(lengths), 4, 3, seed=seed)
    global_vectors = normal(len(lengths), 3, seed=seed + 1)
    mask = lengths_mask(lengths, 4)
    loss = jsd_mutual_information_loss(local, mask, global_vectors)
    if sum(length > 0 for length in lengths) < 2:
        assert loss.item() == 0
        return
    assert loss.item() == pytest.approx(naive_loss(local, lengths, global_vectors), abs=1e-9)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    moved = jsd_mutual_information_loss(local[order], mask[order], global_vectors[order])
    assert moved.item() == pytest.approx(loss.item(), abs=1e-9)


def test_the_loss_of_chance_is_zero() -> None:
    zeros = torch.zeros(3, 2, 4)
    mask = torch.ones(3, 2)
    assert jsd_mutual_information_loss(zeros, mask, zeros[:, 0]).item() == pytest.approx(
        0, abs=1e-6
    )
    without = jsd_mutual_information_loss(zeros, mask, zeros[:, 0], offsets=False)
    assert without.item() == pytest.approx(2 * math.log(2))


def test_gradients() -> None:
    assert_gradients(lambda x, y: jsd_mutual_information_loss(x, MASK, y), LOCAL, GLOBAL)
    assert_gradients(lambda x, y: ISBert()(x, MASK, y), LOCAL, GLOBAL)


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


def test_one_sentence_with_tokens_gives_zero() -> None:
    local, global_vectors = (x.clone().requires_grad_() for x in (LOCAL, GLOBAL))
    mask = torch.tensor([[True, True], [False, False]])
    loss = jsd_mutual_information_loss(local, mask, global_vectors)
    assert_zero_with_a_graph(loss, local, global_vectors)


def test_full_precision_and_memory() -> None:
    mask = lengths_mask([5, 3, 1, 5], 5)
    assert_full_precision(
        lambda x, y: jsd_mutual_information_loss(x, mask, y), normal(4, 5, 8), normal(4, 8, seed=1)
    )
    local, global_vectors = normal(256, 4, 8), normal(256, 8)
    saved = largest_saved(
        lambda x: jsd_mutual_information_loss(x, torch.ones(256, 4), global_vectors), local
    )
    assert saved <= 256 * 4 * 256


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(Params({"type": "is_bert"}))
    assert isinstance(built, ISBert)
    assert list(built.inputs) == ["token_vectors", "token_mask", "anchors"]
    with pytest.raises(ValueError, match="at least two sentences, got 1"):
        built(torch.ones(1, 3, 4), torch.ones(1, 3), torch.ones(1, 4))
    with pytest.raises(ValueError, match=r"mask \(N, T\), got \(2, 2, 3\) and \(2, 3\)"):
        jsd_mutual_information_loss(LOCAL, torch.ones(2, 3), GLOBAL)
    with pytest.raises(ValueError, match=r"global vectors \(2, 3\).*got \(3, 3\)"):
        jsd_mutual_information_loss(LOCAL, MASK, torch.ones(3, 3))
