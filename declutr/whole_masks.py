"""Answers `mask.all()` inside transformers from what the host knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class KnownWhole(TorchFunctionMode):
    """Within this context it is known on the host whether a mask `(N, L)` is true throughout.

    transformers asks this to drop masks that hide nothing. Of a mask on a GPU the answer would lie
    there, and the host would wait for it in every pass. It is for models of that library alone:
    code of others may ask something else of such a tensor.

    # Parameters

    shape : `(N, L)`; what is asked of a tensor of another shape is computed.
    whole : the answer.
    """

    def __init__(self, shape: torch.Size, whole: bool) -> None:
        super().__init__()
        self._shape, self._answer = shape, torch.tensor(whole)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ALL and len(args) == 1 and not kwargs and self._is_mask(args[0]):
            return self._answer
        return func(*args, **(kwargs or {}))

    def _is_mask(self, tensor: Tensor) -> bool:
        return tensor.dtype == torch.bool and tensor.shape == self._shape


_ALL = (torch.all, torch.Tensor.all)
