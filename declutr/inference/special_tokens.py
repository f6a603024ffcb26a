"""Tokens that are not of a text: special ones around it, and a prompt that is not pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from declutr.data.collation import Frame
from declutr.inference import EncoderError
from declutr.system.host_memory import to_device
from declutr.transformer.pooling import pooled

_PROBES = ("a", "1", "b c")
_Around = tuple[list[int], list[int], list[int], list[int], int]


def special_tokens_of(tokenizer: Any, place: str) -> Frame:
    """Return the frame of a Hugging Face tokenizer, found by what it does with short texts.

    # Raises

    `EncoderError` : it does more than put the same tokens around every text.
    """
    first, *others = (_around(tokenizer, probe) for probe in _PROBES)
    if first is None or any(other != first for other in others):
        raise EncoderError(
            f"The tokenizer of '{place}' does not put the same special tokens around every text. "
            f"Open it by its own package: st:{place}"
        )
    *lists, type_id = first
    start, end, start_types, end_types = (np.array(each, dtype=np.int64) for each in lists)
    padding_id = tokenizer.pad_token_id or 0
    return Frame(start, end, start_types, end_types, type_id, padding_id, name="tokens")


def _around(tokenizer: Any, probe: str) -> _Around | None:
    """Return ids before and after a text, their types, and the type of the text."""
    inside = tokenizer(probe, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    around = tokenizer(probe, return_attention_mask=False, return_token_type_ids=True)
    ids = around["input_ids"]
    types = around.get("token_type_ids") or [0] * len(ids)
    for start in range(len(ids) - len(inside) + 1):
        end = start + len(inside)
        if inside and ids[start:end] == inside and len(set(types[start:end])) == 1:
            return ids[:start], ids[end:], types[:start], types[end:], types[start]
    return None


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
    shift = to_device(left_out, mask.device).unsqueeze(1)
    places = torch.arange(length, device=mask.device) + shift
    inside = places < length
    places = places.clamp(max=length - 1)  # (n, length)
    # The rest moves to the left, so that padding comes last again.
    vectors = vectors.gather(1, places.unsqueeze(-1).expand_as(vectors))
    mask = mask.bool().gather(1, places) & inside
    return pooled(vectors, mask, pooling).masked_fill(~mask.any(dim=1, keepdim=True), 0.0)
