"""X-MOD's adapters of languages, in mixed precision.

Its layers write what an adapter gives into a tensor like what the adapter got. Under autocast the
one is bfloat16, as linear layers give it, and the other float32, as layer norms do; torch does not
assign between them.
"""

from __future__ import annotations

from typing import Any

import torch


def keep_adapter_dtypes(transformer: torch.nn.Module) -> None:
    """Let adapters give vectors in the dtype of those that they get. Others stay as they are."""
    for module in transformer.modules():
        if type(module).__name__ == "XmodAdapter":
            module.register_forward_hook(_as_given)


def _as_given(_: torch.nn.Module, given: tuple[Any, ...], vectors: torch.Tensor) -> torch.Tensor:
    return vectors.to(given[0].dtype)
