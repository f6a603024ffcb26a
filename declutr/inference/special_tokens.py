"""Special tokens around a text, and pooling that leaves out the tokens of a prompt."""

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
    """Return the special tokens that a Hugging Face tokenizer puts around every text.

    They are found by tokenising short texts with and without special tokens.

    # Raises

    `EncoderError` : the tokenizer does more than put the same tokens around every text.
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
    """Return the ids before and after a text, their types, and the type of the text.

    The result is `None` if the ids of the text alone are not a part of the ids of the whole.
    """
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
    """The token ids of a text that begins with a prompt, with the length and slices of the ids.

    # Parameters

    ids : the ids `(n,)`, without special tokens.
    prompt : the number of leading ids that belong to the prompt.
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
    """Return the ids of n pieces, and how many leading tokens of each, `(n,)`, are not pooled.

    The second is `None` if the pieces are plain ids, all of which are pooled.

    # Parameters

    pieces : arrays of ids, or all of them `PromptedTokens`.
    special_before : the number of special tokens before each piece; if a piece has tokens of the
        prompt, these special tokens are not pooled either.
    """
    if not pieces or not isinstance(pieces[0], PromptedTokens):
        return pieces, None
    left_out = [special_before + piece.prompt if piece.prompt else 0 for piece in pieces]
    return [piece.ids for piece in pieces], torch.tensor(left_out)


def pooled_after_prompts(
    vectors: torch.Tensor, mask: torch.Tensor, pooling: str, left_out: torch.Tensor
) -> torch.Tensor:
    """Pool token embeddings, without the leading tokens of each text.

    # Parameters

    vectors, mask, pooling : as for `declutr.transformer.pooling.pooled`.
    left_out : the number of leading tokens `(n,)` of each text that are not pooled.

    # Returns

    The embeddings `(n, d)` of n texts; zeros for a text that has no other tokens.
    """
    length = mask.size(1)
    shift = to_device(left_out, mask.device).unsqueeze(1)
    places = torch.arange(length, device=mask.device) + shift
    inside = places < length
    places = places.clamp(max=length - 1)  # (n, length)
    # The remaining tokens are moved to the left: `pooled` expects the padding at the end.
    vectors = vectors.gather(1, places.unsqueeze(-1).expand_as(vectors))
    mask = mask.bool().gather(1, places) & inside
    return pooled(vectors, mask, pooling).masked_fill(~mask.any(dim=1, keepdim=True), 0.0)
