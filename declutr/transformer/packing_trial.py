"""What packing is tried on: a few short texts, and a transformer without dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from declutr.transformer.positions import max_positions


def texts_to_try(
    transformer: torch.nn.Module, padding_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Token ids and mask of a few short texts, together longer than one text may be."""
    longest = max_positions(transformer)
    width = max(1, min(64, longest or 64))
    lengths = [width, width - width // 2]
    while sum(lengths) <= min(longest or 0, 1024):  # more would take long on a CPU
        lengths.append(width - len(lengths) % (width // 2 + 1))
    texts = len(lengths)
    embeddings: Any = transformer.get_input_embeddings()  # type: ignore[operator]
    vocabulary = embeddings.num_embeddings
    token_ids = torch.arange(texts * width, device=device).view(texts, width) % vocabulary
    token_ids[token_ids == padding_id] = (padding_id + 1) % vocabulary
    ends = torch.tensor(lengths, device=device)
    return token_ids, torch.arange(width, device=device) < ends[:, None]


class evaluating:
    """Evaluation mode inside the block; afterwards every module is in the mode it was in."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modes = [(part, part.training) for part in module.modules()]

    def __enter__(self) -> None:
        for part, _ in self._modes:
            part.training = False

    def __exit__(self, *error: Any) -> None:
        for part, training in self._modes:
            part.training = training
