"""Compare stacked cross attention with naive loops over images, captions, regions and words."""

import math
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import normalize

from declutr.task_models.image_text.cross_attention import (
    AGG_FUNCS,
    CROSS_ATTN,
    RAW_FEATURE_NORMS,
    StackedCrossAttention,
)

LENGTHS = [4, 1, 3, 5]


def features(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Three images of three regions, and four captions whose padding is not zero."""
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(*shape, 6, generator=generator).double() for shape in ((3, 3), (4, 5))]
    regions, words = (normalize(part, dim=-1) for part in parts)
    return regions, words, torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)


def normed(values: list[float], norm: str) -> list[float]:
    if "clipped" in norm:
        values = [value if value > 0 else 0.1 * value for value in values]
    if norm == "softmax":
        return [math.exp(value) / sum(map(math.exp, values)) for value in values]
    length = 1.0
    if "l2" in norm:
        length = math.sqrt(sum(value**2 for value in values)) + 1e-8
    if "l1" in norm:
        length = sum(map(abs, values)) + 1e-8
    return [value / length for value in values]


def naive(contexts: Tensor, queries: Tensor, attention: StackedCrossAttention) -> float:
    """The similarity of one image and one caption: contexts `(s, d)`, queries `(q, d)`."""
    raw = [normed([float(x @ y) for y in queries], attention.raw_feature_norm) for x in contexts]
    relevances = []
    for place, query in enumerate(queries):
        logits = [math.exp(attention.lambda_softmax * row[place]) for row in raw]
        mean = sum(w / sum(logits) * x for w, x in zip(logits, contexts, strict=True))
        relevances.append(float(query @ mean / (query.norm() * mean.norm())))
    if attention.agg_func == "LogSumExp":
        total = sum(math.exp(attention.lambda_lse * each) for each in relevances)
        return math.log(total) / attention.lambda_lse
    found = max(relevances) if attention.agg_func == "Max" else sum(relevances)
    return found / len(relevances) if attention.agg_func == "Mean" else found


@pytest.mark.parametrize("norm", RAW_FEATURE_NORMS)
@pytest.mark.parametrize("direction", CROSS_ATTN)
def test_similarities_equal_a_naive_loop(direction: str, norm: str) -> None:
    regions, words, mask = features()
    for agg_func in AGG_FUNCS:
        attention = StackedCrossAttention(direction, norm, agg_func, 4.0, 5.0)
        found = attention.similarities(regions, words, mask)
        for i, image in enumerate(regions):
            for j, length in enumerate(LENGTHS):
                both = (image, words[j, :length])
                expected = naive(*(both if direction == "t2i" else both[::-1]), attention)
                assert float(found[i, j]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("direction", CROSS_ATTN)
def test_blocks_and_padding_change_nothing(direction: str) -> None:
    attention = StackedCrossAttention(direction)
    regions, words, mask = features()
    whole, inputs = attention.similarities(regions, words, mask), []
    for block, padding in ((1, 0.0), (2 * 3 * 3 * 5, 7.0)):
        inputs.append([regions.clone().requires_grad_(), words.clone()])
        inputs[-1][1][~mask] = padding
        inputs[-1][1].requires_grad_()
        found = attention.similarities(*inputs[-1], mask, block)
        assert torch.allclose(found, whole, atol=1e-12, rtol=0)
        found.square().sum().backward()
    for one, other in zip(*inputs, strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-12)
    assert inputs[0][1].grad[~mask].abs().max() == 0


@pytest.mark.parametrize("direction", CROSS_ATTN)
@pytest.mark.parametrize("agg_func", AGG_FUNCS)
def test_gradcheck(direction: str, agg_func: str) -> None:
    attention = StackedCrossAttention(direction, agg_func=agg_func)
    regions, words, mask = features(1)
    inputs = regions[:2].clone().requires_grad_(), words[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda u, v: attention.similarities(u, v, mask[:2]), inputs, fast_mode=True
    )


def test_vectors_of_length_0_have_a_finite_gradient() -> None:
    regions, words, mask = features()
    inputs = [regions.clone(), words.clone()]
    inputs[0][0], inputs[1][0] = 0, 0
    found = StackedCrossAttention().similarities(*(x.requires_grad_() for x in inputs), mask)
    found.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"cross_attn": "both"}, "Unknown cross_attn 'both': expected one of t2i, i2t"),
        ({"raw_feature_norm": "l3"}, "Unknown raw_feature_norm 'l3'"),
        ({"agg_func": "Min"}, "Unknown agg_func 'Min': expected one of LogSumExp, Mean, Sum, Max"),
        ({"lambda_lse": 0}, "lambda_lse must be above 0, got 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        StackedCrossAttention(**settings)
