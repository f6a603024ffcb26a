"""Tests of prompts that are not pooled, against plain loops."""

import numpy as np
import pytest
import torch

from declutr.inference.special_tokens import PromptedTokens, ids_of, pooled_after_prompts
from declutr.transformer.pooling import pooled


def test_slices_know_how_many_prompt_tokens_they_have() -> None:
    tokens = PromptedTokens(np.arange(8), 3)
    found = [tokens[:6], tokens[2:5], tokens[3:8], tokens[:2]]
    assert [part.prompt for part in found] == [3, 1, 0, 2]
    assert [part.ids.tolist() for part in found[:2]] == [[0, 1, 2, 3, 4, 5], [2, 3, 4]]
    assert len(tokens) == 8 and len(found[1]) == 3


def test_leading_special_tokens_are_left_out_with_a_prompt_only() -> None:
    tokens = PromptedTokens(np.arange(8), 3)
    ids, left_out = ids_of([tokens[:6], tokens[6:]], special_before=1)
    assert [len(piece) for piece in ids] == [6, 2]
    assert left_out is not None and left_out.tolist() == [4, 0]
    plain = [np.arange(3)]
    assert ids_of(plain, 1) == (plain, None)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean-sqrt-length", "last"])
def test_pooling_after_prompts_equals_pooling_the_other_tokens(pooling: str) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(4, 6, 3)
    lengths, left_out = [6, 4, 3, 5], [2, 3, 0, 5]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    found = pooled_after_prompts(vectors, mask, pooling, torch.tensor(left_out))
    for row, (length, out) in enumerate(zip(lengths, left_out, strict=True)):
        others = vectors[row : row + 1, out:length]
        ones = torch.ones(others.shape[:2], dtype=torch.bool)
        expected = pooled(others, ones, pooling) if length > out else torch.zeros(1, 3)
        torch.testing.assert_close(found[row : row + 1], expected)
