"""Which linear layers of a model belong together, and their replacement by prepared ones."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Identity, Linear, Module

from declutr.system.kernel_choices import PLAIN
from declutr.transformer.architectures import fused_name
from declutr.transformer.prepared_linear import PreparedLinear
from declutr.transformer.training_products import plain_products, runs_compiled

logger = logging.getLogger(__name__)

_ON_SAME_INPUT = (("query", "key", "value"), ("q", "k", "v"), ("q_lin", "k_lin", "v_lin"))
"""What the projections of an attention module are called: BERT and its kin, MPNet, DistilBERT."""

_BEFORE_ACTIVATION = (
    ("dense", "intermediate_act_fn"),
    ("lin1", "activation"),
    ("ffn", "activation"),
)
"""A layer, and what is applied to its output: BERT and its kin, DistilBERT, ALBERT."""

_AGREE = 1e-4  # of the largest value


def prepare_linear_layers(module: Module, embed: Callable[[], Tensor], dtype: str) -> None:
    """Replace the linear layers of a module by prepared ones, as far as its vectors stay the same.

    # Parameters

    module : in evaluation mode, on a CPU; it is changed, and cannot be trained any more.
    embed : makes vectors of a few texts by the module, in float32.
    dtype : `"float32"`, `"bfloat16"` or `"int8"`.
    """
    compiled = [part for part in module.modules() if runs_compiled(part)]
    if (compiled and dtype != "int8") or not choose_products(module, dtype):
        return
    for part in compiled:
        part._compiled_call_impl = None  # int8 products cannot be compiled: it runs eagerly
    with torch.random.fork_rng(devices=[]):
        with plain_products():
            before = embed()
        for joined in (True, False):
            layers = LinearLayers(module, dtype, joined)
            apart = _apart(embed, before)
            # int8 was asked for: layer by layer it is used even if vectors differ, as of a module
            # that draws random numbers.
            if apart <= _AGREE or (dtype == "int8" and not joined):
                layers.prepare()
                return
            layers.restore()
    logger.warning(
        "%s does not compute the same with other linear layers in the place of torch's own: it "
        "keeps those, and embeds more slowly than it might.",
        type(module).__name__,
    )


def choose_products(module: Module, dtype: str) -> bool:
    """Find out which products the module's linear layers would take, and whether that is a gain.

    The module is as it was afterwards; the answers are kept (`declutr.system.kernel_choices`).
    """
    layers = LinearLayers(module, dtype)
    gain = layers.gain()
    layers.restore()
    return gain


class LinearLayers:
    """The linear layers of a module, replaced by prepared ones that compute the same.

    An activation becomes part of the layer before it, and where their input is cast or rounded,
    the projections of an attention module become one layer. Whether that is right depends on how
    the module calls them, so its outputs are to be compared before `prepare` makes it final.

    # Parameters

    module : the layers of which are replaced; it is changed.
    dtype : `"float32"`, `"bfloat16"` or `"int8"`.
    joined : False replaces each layer by itself.
    """

    def __init__(self, module: Module, dtype: str, joined: bool = True) -> None:
        self._dtype = dtype
        self.prepared: list[PreparedLinear] = []
        self._replaced: list[tuple[Module, str, Any]] = []
        if joined:
            for parent in list(module.modules()):
                # float32 gains nothing by joining, and attention is slower on strided parts.
                if dtype != "float32":
                    self._join_projections(parent)
                self._join_activation(parent)
        taken = {id(layer) for prepared in self.prepared for layer in prepared.layers}
        for parent in list(module.modules()):
            if isinstance(parent, PreparedLinear):
                continue
            for name, child in list(parent.named_children()):
                if type(child) is Linear and id(child) not in taken:
                    self._replace(parent, name, self._one(child))

    def restore(self) -> None:
        """Put the layers back that were there before."""
        for parent, name, before in reversed(self._replaced):
            setattr(parent, name, before)
        self._replaced.clear()
        self.prepared.clear()

    def gain(self) -> bool:
        """Whether anything is gained by them: in float32, a product quicker than torch's own."""
        ways = [layer.way(self._dtype) for layer in self.prepared]
        return any(way != PLAIN for way in ways) if self._dtype == "float32" else bool(ways)

    def prepare(self) -> None:
        """Compute in the dtype from now on; the layers' own weights are freed."""
        self._replaced.clear()
        for layer in self.prepared:
            layer.prepare(self._dtype)

    def _one(self, *layers: Linear, activation: str | None = None) -> PreparedLinear:
        self.prepared.append(PreparedLinear(*layers, activation=activation))
        return self.prepared[-1]

    def _replace(self, parent: Module, name: str, other: Module) -> None:
        self._replaced.append((parent, name, getattr(parent, name)))
        setattr(parent, name, other)

    def _join_projections(self, parent: Module) -> None:
        for names in _ON_SAME_INPUT:
            layers: list[Any] = [getattr(parent, name, None) for name in names]
            if not all(type(layer) is Linear for layer in layers):
                continue
            if len({layer.in_features for layer in layers}) > 1:
                continue
            shared, start = OnSameInput(self._one(*layers)), 0
            for name, layer in zip(names, layers, strict=True):
                self._replace(parent, name, PartOfLinear(shared, start, layer.out_features))
                start += layer.out_features

    def _join_activation(self, parent: Module) -> None:
        for name, after in _BEFORE_ACTIVATION:
            layer, activation = getattr(parent, name, None), getattr(parent, after, None)
            fused = fused_name(activation)
            if type(layer) is Linear and isinstance(activation, Module) and fused is not None:
                self._replace(parent, name, self._one(layer, activation=fused))
                self._replace(parent, after, Identity())


def _apart(embed: Callable[[], Tensor], before: Tensor) -> float:
    """How far vectors are from what they were, as a share of the largest value."""
    try:
        return float((embed() - before).abs().max() / before.abs().max().clamp_min(1e-12))
    except Exception as error:  # whatever a model makes of layers that are not torch's
        logger.info("Linear layers of another kind do not work here: %s", error)
        return float("inf")


class OnSameInput:
    """The output of a layer for its last input, so that query, key and value share one product.

    # Parameters

    layer : of all parts.
    """

    def __init__(self, layer: PreparedLinear) -> None:
        self._layer = layer
        self._last: tuple[weakref.ref, Tensor] | None = None

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return what the layer makes of the vectors; it computes only if they are others."""
        last = self._last  # read once: other threads may set it
        if last is not None and last[0]() is vectors:
            return last[1]
        output = self._layer(vectors)
        self._last = (weakref.ref(vectors, self._forget), output)
        return output

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def _forget(self, gone: weakref.ref) -> None:
        last = self._last
        if last is not None and last[0] is gone:
            self._last = None


class PartOfLinear(torch.nn.Module):
    """One of several layers that are computed together, on the same input.

    # Parameters

    shared : all of them.
    start, length : its columns of what they give.
    """

    def __init__(self, shared: OnSameInput, start: int, length: int) -> None:
        super().__init__()
        self._shared, self._start, self._length = shared, start, length

    def forward(self, vectors: Tensor) -> Tensor:
        return self._shared(vectors).narrow(-1, self._start, self._length)
