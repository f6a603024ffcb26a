"""Cells of recurrent networks, which on CUDA are one kernel each: plain reference ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _gates(
    inputs: Tensor, hidden: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    if inputs.dtype != hidden.dtype:
        raise RuntimeError(f"expected gates of one dtype, got {inputs.dtype} and {hidden.dtype}")
    if input_bias is not None and hidden_bias is not None:
        return inputs + input_bias, hidden + hidden_bias
    return inputs, hidden


def _lstm_forward(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    total = sum(_gates(input_gates, hidden_gates, input_bias, hidden_bias))
    i, f, g, o = total.chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], dim=1)


def _lstm_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = workspace.chunk(4, dim=1)
    of_output = torch.zeros_like(cy) if grad_hy is None else grad_hy
    of_cell = torch.zeros_like(cy) if grad_cy is None else grad_cy
    of_cell = of_cell + of_output * o * (1 - cy.tanh() ** 2)
    gates = torch.cat(
        [
            of_cell * g * i * (1 - i),
            of_cell * cx * f * (1 - f),
            of_cell * i * (1 - g**2),
            of_output * cy.tanh() * o * (1 - o),
        ],
        dim=1,
    )
    return gates, of_cell * f, gates.sum(dim=0) if has_bias else None


def _gru_forward(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    inputs, hidden = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    (ir, iz, candidate), (hr, hz, hn) = inputs.chunk(3, dim=1), hidden.chunk(3, dim=1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (candidate + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], dim=1)


def _gru_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    r, z, n, hx, hn = workspace.chunk(5, dim=1)
    of_n = grad_hy * (1 - z) * (1 - n**2)
    of_z = grad_hy * (hx - n) * z * (1 - z)
    of_r = of_n * hn * r * (1 - r)
    inputs = torch.cat([of_r, of_z, of_n], dim=1)
    hidden = torch.cat([of_r, of_z, of_n * r], dim=1)
    biases = (inputs.sum(dim=0), hidden.sum(dim=0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * z, *biases


RECURRENT: dict[Any, Callable] = {
    aten._thnn_fused_lstm_cell.default: _lstm_forward,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru_forward,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
}
