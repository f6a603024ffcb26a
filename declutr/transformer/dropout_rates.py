"""Another rate of dropout for one pass, in every layer, fused attention included.

Self-contrastive decorrelation (Klein & Nabi, 2022) embeds the same sentences twice, under a low and
a high rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.dropout import _DropoutNd


@contextmanager
def dropout_rate(module: torch.nn.Module, rate: float) -> Iterator[None]:
    """Every dropout inside `module` has this rate within the block, and its own again afterwards.

    Dropout is in layers of torch, and in attention that takes the rate as a number: transformers
    keep that in attributes named after dropout. Only in training does it do anything, as ever. An
    architecture that leaves a layer out because its rate is 0 has none to set.

    # Raises

    `ValueError` : a rate outside [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"A rate of dropout lies in [0, 1), got {rate}.")
    before = [(part, name, value) for part in module.modules() for name, value in _rates_of(part)]
    try:
        for part, name, _ in before:
            setattr(part, name, rate)
        yield
    finally:
        for part, name, value in before:
            setattr(part, name, value)


def _rates_of(part: torch.nn.Module) -> Iterator[tuple[str, float]]:
    if isinstance(part, _DropoutNd):
        yield "p", part.p
        return
    for name, value in vars(part).items():
        if "dropout" in name and isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, value
