"""What a tokenizer puts around the tokens of a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from declutr.data.collation import Frame
from declutr.inference.errors import EncoderError

_PROBES = ("a", "1", "b c")


def special_tokens_of(tokenizer: Any, place: str) -> Frame:
    """The frame of a Hugging Face tokenizer, found by what it does with short texts.

    # Raises

    `EncoderError` : it does more than put the same tokens around every text.
    """
    frames = [_frame(tokenizer, probe) for probe in _PROBES]
    first = frames[0]
    if first is None or any(frame is None or not _same(frame, first) for frame in frames):
        raise EncoderError(
            f"The tokenizer of '{place}' does not put the same special tokens around every text. "
            f"Open it by its own package: st:{place}"
        )
    return first


def _frame(tokenizer: Any, probe: str) -> Frame | None:
    inside = tokenizer(probe, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    around = tokenizer(probe, return_attention_mask=False, return_token_type_ids=True)
    ids = around["input_ids"]
    types = around.get("token_type_ids") or [0] * len(ids)
    for start in range(len(ids) - len(inside) + 1):
        end = start + len(inside)
        if inside and ids[start:end] == inside and len(set(types[start:end])) == 1:
            return Frame(
                start=np.array(ids[:start], dtype=np.int64),
                end=np.array(ids[end:], dtype=np.int64),
                start_types=np.array(types[:start], dtype=np.int64),
                end_types=np.array(types[end:], dtype=np.int64),
                type_id=types[start],
                padding_id=tokenizer.pad_token_id or 0,
                name="tokens",
            )
    return None


def _same(one: Frame, other: Frame) -> bool:
    return one.type_id == other.type_id and all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("start", "end", "start_types", "end_types")
    )
