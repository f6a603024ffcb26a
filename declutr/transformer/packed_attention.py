"""Attention that stays within each text of a packed batch.

Transformers compute attention by `torch.nn.functional.scaled_dot_product_attention`. While
`PackedAttention` is active, calls of that function are replaced by variable-length attention. So
transformers of any release can be packed without a change to their code.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from declutr.transformer import text_by_text_attention
from declutr.transformer.packing import ALL, CannotPack, Packing, is_mask

if TYPE_CHECKING:  # at run time it is imported only for devices that have such kernels
    from declutr.transformer.variable_length_kernels import Kernels

_WITHOUT_KERNELS = ("cpu",)


class PackedAttention(TorchFunctionMode):
    """A context in which attention over one row `(1, H, T, D)` stays within each text.

    On a GPU this is one call of a variable-length kernel. On a CPU it is a loop over the texts,
    whose scores are not kept for the backward pass but computed again. `torch.compile` traces
    either as one operator, for texts of any lengths. Where torch's flash attention is switched off
    (`torch.backends.cuda.enable_flash_sdp`), it is not used here either. In compiled code an
    attention mask is ignored, so check without compilation that the transformer passes none.

    # Parameters

    packing : the packing of the texts in the row.
    asked : whether to answer on the host, without waiting for a device, if the transformer asks
        whether a mask of the row is true throughout. It always is.

    # Raises

    `CannotPack` : attention has a mask or bias, runs over something other than the packed row, or
        is in a dtype for which there is no such kernel.
    `NotImplementedError` : no kernel runs on this device in this dtype.
    """

    def __init__(self, packing: Packing, asked: bool = False) -> None:
        super().__init__()
        self.packing, self.asked = packing, asked
        self.calls = 0
        device = packing.cu_seqlens.device
        self._kernels: Kernels | None = None
        if device.type not in _WITHOUT_KERNELS:
            from declutr.transformer.variable_length_kernels import kernels_of

            self._kernels = kernels_of(device)
            if not torch.backends.cuda.flash_sdp_enabled():
                self._kernels = self._kernels._replace(flash=False)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func is scaled_dot_product_attention:
            return self._attend(*args, **named)
        if self.asked and func in ALL and is_mask((1, self.packing.num_tokens), *args, **named):
            return torch.tensor(True)
        if func is dropout and not torch.compiler.is_compiling():  # torch's is fast when compiled
            return _drop(*args, **named)
        return func(*args, **named)

    def __enter__(self) -> PackedAttention:
        self._around = getattr(_ACTIVE, "mode", None)
        _ACTIVE.mode = self
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _ACTIVE.mode = self._around
        super().__exit__(*error)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        row = (1, self.packing.num_tokens)
        # While being compiled, most releases of transformers make a mask even if it hides nothing.
        # A mask that hides something is also there without compilation.
        masked = attn_mask is not None and not torch.compiler.is_compiling()
        if masked or is_causal or enable_gqa:
            raise CannotPack(
                "its attention has a mask, a bias, or fewer heads of keys than of queries"
            )
        if any((t.size(0), t.size(2)) != row for t in (query, key, value)):
            raise CannotPack("its attention does not run over the tokens as they come in")
        self.calls += 1
        scale = query.size(-1) ** -0.5 if scale is None else scale
        device = query.device.type
        if torch.is_autocast_enabled(device):
            # Autocast does the same for torch's function. It is needed because rotary positions
            # make queries and keys float32, while values stay in bfloat16.
            dtype = torch.get_autocast_dtype(device)
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        texts = self.packing.cu_seqlens
        if self._kernels is None:
            return text_by_text_attention.attend(query, key, value, texts, dropout_p, scale)
        from declutr.transformer import variable_length_kernels

        if query.dtype not in variable_length_kernels.DTYPES:
            raise CannotPack(f"torch has no kernel for attention over packed {query.dtype}")
        others = (texts, self.packing.longest, dropout_p, scale, self._kernels)
        return variable_length_kernels.attend(query, key, value, *others)


_ACTIVE = threading.local()  # like torch's stack of modes


def recomputation_contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return contexts for `torch.utils.checkpoint` in which recomputed attention stays packed.

    Pass this function as `context_fn`. It is needed because recomputation happens in the backward
    pass, after the context `PackedAttention` has ended.
    """
    mode = getattr(_ACTIVE, "mode", None)
    again = contextlib.nullcontext() if mode is None else PackedAttention(mode.packing, mode.asked)
    return contextlib.nullcontext(), again


def _drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training or p == 0 or inplace or input.device.type != "cpu":
        return dropout(input, p, training, inplace)
    from declutr.transformer import repeatable_dropout  # needed in training only

    return repeatable_dropout.dropout(input, p)
