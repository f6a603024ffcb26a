"""Texts whose prompt is read but not pooled (`include_prompt` of sentence-transformers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from declutr.system.host_memory import to_device
from declutr.transformer.pooling import pooled


class PromptedTokens:
    """The ids of a text, of which the first are its prompt; as long, and cut, as its ids are.

    # Parameters

    ids : `(n,)`, without special tokens.
    prompt : how many of them are the prompt.
    """

    def __init__(self, ids: np.ndarray, prompt: int) -> None:
        self.ids, self.prompt = ids, min(prompt, len(ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> PromptedTokens:
        start, _, _ = part.indices(len(self))
        return PromptedTokens(self.ids[part], max(self.prompt - start, 0))


def ids_of(
    pieces: Sequence[Any], special_before: int
) -> tuple[Sequence[np.ndarray], torch.Tensor | None]:
    """The ids of each piece, and how many of its first tokens, `(n,)`, are not to be pooled.

    The second is `None` where all are: pieces are plain ids.

    # Parameters

    special_before : special tokens before each piece; before a prompt, they go with it.
    """
    if not pieces or not isinstance(pieces[0], PromptedTokens):
        return pieces, None
    left_out = [special_before + piece.prompt if piece.prompt else 0 for piece in pieces]
    return [piece.ids for piece in pieces], torch.tensor(left_out)


def pooled_after_prompts(
    vectors: torch.Tensor, mask: torch.Tensor, pooling: str, left_out: torch.Tensor
) -> torch.Tensor:
    """The vectors `(n, d)` of n texts without the first tokens of each; zeros if it has no others.

    # Parameters

    vectors, mask, pooling : as for `declutr.transformer.pooling.pooled`.
    left_out : how many tokens of each row, `(n,)`.
    """
    length = mask.size(1)
    places = torch.arange(length, device=mask.device) + to_device(left_out, mask.device).unsqueeze(
        1
    )
    inside = places < length
    places = places.clamp(max=length - 1)  # (n, length)
    # The rest moves to the left, so that padding comes last again.
    vectors = vectors.gather(1, places.unsqueeze(-1).expand_as(vectors))
    mask = mask.bool().gather(1, places) & inside
    return pooled(vectors, mask, pooling).masked_fill(~mask.any(dim=1, keepdim=True), 0.0)
