"""What masks of texts say, and what transformers ask of them, from what the host knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
        if func in ALL and is_mask(self._shape, *args, **(kwargs or {})):
            return self._answer
        return func(*args, **(kwargs or {}))


ALL = (torch.all, torch.Tensor.all)
"""The functions by which transformers ask that."""


def is_mask(shape: tuple[int, ...], tensor: Tensor, *others: Any, **named: Any) -> bool:
    """Whether arguments of one of `ALL` ask for all of a mask of that shape."""
    return not others and not named and tensor.dtype == torch.bool and tensor.shape == shape


@contextlib.contextmanager
def padding_not_looked_for(transformer: torch.nn.Module) -> Iterator[None]:
    """Within this context a model of transformers does not look for padding among token ids.

    Given no mask, releases until 4 look at the ids of each text to warn of padding, and the host
    waits for them.
    """
    name = "warn_if_padding_and_no_attention_mask"
    if hasattr(transformer, name):
        transformer.__dict__[name] = lambda *args, **kwargs: None  # found before the method
    try:
        yield
    finally:
        transformer.__dict__.pop(name, None)


def begin_at_once(mask: Tensor) -> bool:
    """Return whether no text of a mask `(N, L)` has padding before its first token."""
    return bool((mask[:, 0] | ~mask.any(dim=1)).all())


def within_texts(mask: Tensor) -> Tensor:
    """Return `(N, L)`: the first to the last token of each text, with all that lies between."""
    begun = mask.cumsum(dim=1) > 0
    to_come = mask.flip(1).cumsum(dim=1).flip(1) > 0
    return begun & to_come
