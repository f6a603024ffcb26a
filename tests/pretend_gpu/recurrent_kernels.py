"""Cells of recurrent networks, which on CUDA are one kernel each: plain reference ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention_formulas import arguments

aten = torch.ops.aten


def _gates(a: Any) -> tuple[Tensor, Tensor]:
    inputs, hidden = a.input_gates, a.hidden_gates
    if inputs.dtype != hidden.dtype:
        raise RuntimeError(f"expected gates of one dtype, got {inputs.dtype} and {hidden.dtype}")
    if a.input_bias is not None and a.hidden_bias is not None:
        return inputs + a.input_bias, hidden + a.hidden_bias
    return inputs, hidden


@arguments("input_gates hidden_gates cx input_bias hidden_bias")
def _lstm_forward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    i, f, g, o = sum(_gates(a)).chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * a.cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], dim=1)


@arguments("grad_hy grad_cy cx cy workspace has_bias")
def _lstm_backward(a: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = a.workspace.chunk(4, dim=1)
    of_output = torch.zeros_like(a.cy) if a.grad_hy is None else a.grad_hy
    of_cell = torch.zeros_like(a.cy) if a.grad_cy is None else a.grad_cy
    of_cell = of_cell + of_output * o * (1 - a.cy.tanh() ** 2)
    of_i, of_f = of_cell * g * i * (1 - i), of_cell * a.cx * f * (1 - f)
    of_g, of_o = of_cell * i * (1 - g**2), of_output * a.cy.tanh() * o * (1 - o)
    gates = torch.cat([of_i, of_f, of_g, of_o], dim=1)
    return gates, of_cell * f, gates.sum(dim=0) if a.has_bias else None


@arguments("input_gates hidden_gates hx input_bias hidden_bias")
def _gru_forward(a: Any) -> tuple[Tensor, Tensor]:
    inputs, hidden = _gates(a)
    (ir, iz, candidate), (hr, hz, hn) = inputs.chunk(3, dim=1), hidden.chunk(3, dim=1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (candidate + r * hn).tanh()
    return n + z * (a.hx - n), torch.cat([r, z, n, a.hx, hn], dim=1)


@arguments("grad_hy workspace has_bias")
def _gru_backward(a: Any) -> tuple[Tensor | None, ...]:
    r, z, n, hx, hn = a.workspace.chunk(5, dim=1)
    of_n = a.grad_hy * (1 - z) * (1 - n**2)
    of_z = a.grad_hy * (hx - n) * z * (1 - z)
    of_r = of_n * hn * r * (1 - r)
    inputs = torch.cat([of_r, of_z, of_n], dim=1)
    hidden = torch.cat([of_r, of_z, of_n * r], dim=1)
    biases = (inputs.sum(dim=0), hidden.sum(dim=0)) if a.has_bias else (None, None)
    return inputs, hidden, a.grad_hy * z, *biases


RECURRENT: dict[Any, Callable] = {
    aten._thnn_fused_lstm_cell.default: _lstm_forward,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru_forward,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
}
