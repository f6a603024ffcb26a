"""Replacement of a model's linear layers by prepared ones, joining layers where possible."""

import functools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Identity, Linear, Module

from declutr.system.kernel_choices import PLAIN, usual_defaults
from declutr.transformer.architectures import fused_name
from declutr.transformer.bfloat16_norms import round_norms
from declutr.transformer.prepared_linear import PreparedLinear
from declutr.transformer.training_products import plain_products, runs_compiled

logger = logging.getLogger(__name__)

_ON_SAME_INPUT = (("query", "key", "value"), ("q", "k", "v"), ("q_lin", "k_lin", "v_lin"))
"""Names of the projections of an attention module: BERT and its relatives, MPNet, DistilBERT."""

_BEFORE_ACTIVATION = (
    ("dense", "intermediate_act_fn"),
    ("lin1", "activation"),
    ("ffn", "activation"),
)
"""Names of a layer and of its activation: BERT and its relatives, DistilBERT, ALBERT."""

_AGREE = 1e-4  # tolerance, as a share of the largest value


@usual_defaults()
def prepare_linear_layers(module: Module, embed: Callable[[], Tensor], dtype: str) -> bool:
    """Replace the linear layers of a module by prepared ones, if its output stays the same.

    In bfloat16, the normalisations between them hand on bfloat16, too.

    # Parameters

    module : in evaluation mode, on a CPU. It is changed in place, and cannot be trained any more.
    embed : returns embeddings of a few texts, computed by the module in float32.
    dtype : `"float32"`, `"bfloat16"` or `"int8"`.

    # Returns

    Whether the module can compute in the dtype. If it cannot in int8, it stays as it is, and a
    warning is logged; bfloat16 is that of autocast, which every module can.
    """
    compiled = [part for part in module.modules() if runs_compiled(part)]
    if compiled and dtype != "int8":
        return True
    if not choose_products(module, dtype):
        return dtype != "int8" or _not_in_int8(module, "it has no linear layers of torch's own")
    for part in compiled:
        part._compiled_call_impl = None  # int8 products cannot be compiled, so it must run eagerly
    with torch.random.fork_rng(devices=[]):
        with plain_products():
            before = embed()
        for joined in (True, False):
            layers = LinearLayers(module, dtype, joined)
            apart = _apart(embed, before)
            # Unlike float32, int8 was requested by the user. Without joining layers it is used even
            # if the outputs differ, which happens for modules that draw random numbers.
            if apart <= _AGREE or (dtype == "int8" and not joined and apart < float("inf")):
                layers.prepare()
                if dtype == "bfloat16":
                    round_norms(module, embed, exact=before)
                return True
            layers.restore()
    if dtype == "int8":
        return _not_in_int8(module, "it uses the weights of its linear layers by itself")
    logger.warning(
        f"{type(module).__name__} does not compute the same with other linear layers in the place "
        "of torch's own: it keeps those, and embeds more slowly than it might."
    )
    return True


def _not_in_int8(module: Module, reason: str) -> bool:
    logger.warning(f"{type(module).__name__} computes in float32, not in int8: {reason}.")
    return False


@usual_defaults()
def choose_products(module: Module, dtype: str) -> bool:
    """Choose the quickest products for a module's linear layers, and return whether they pay off.

    The module is unchanged afterwards. The choices are kept (`declutr.system.kernel_choices`).
    """
    layers = LinearLayers(module, dtype)
    gain = layers.gain()
    layers.restore()
    return gain


class LinearLayers:
    """The linear layers of a module, replaced in place by prepared ones.

    An activation becomes part of the layer before it. In dtypes other than float32 the projections
    of an attention module become one layer. Whether this gives the same results depends on how the
    module calls them, so its outputs must be compared before `prepare` makes the change final.

    # Parameters

    module : the module whose layers are replaced.
    dtype : `"float32"`, `"bfloat16"` or `"int8"`.
    joined : whether to join layers with others and with activations; False replaces each by itself.
    """

    def __init__(self, module: Module, dtype: str, joined: bool = True) -> None:
        self._dtype = dtype
        self.prepared: list[PreparedLinear] = []
        self._replaced: list[tuple[Module, str, Any]] = []
        if joined:
            for parent in list(module.modules()):
                # Joining gains nothing in float32, and attention is slower on strided tensors.
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
        """Put the original layers back."""
        for parent, name, before in reversed(self._replaced):
            setattr(parent, name, before)
        self._replaced.clear()
        self.prepared.clear()

    def gain(self) -> bool:
        """Return whether the prepared layers are worth using.

        In float32 they are if some product is quicker than torch's own.
        """
        ways = [layer.way(self._dtype) for layer in self.prepared]
        return any(way != PLAIN for way in ways) if self._dtype == "float32" else bool(ways)

    def prepare(self) -> None:
        """Compute in the dtype from now on, and free the layers' own weights."""
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
    """Return the largest difference to earlier embeddings as a share of their largest value."""
    try:
        return float((embed() - before).abs().max() / before.abs().max().clamp_min(1e-12))
    except Exception as error:  # a model may raise anything for layers that are not torch's own
        logger.info("Linear layers of another kind do not work here: %s", error)
        return float("inf")


class OnSameInput:
    """A layer that keeps its last output, so that query, key and value share one product.

    # Parameters

    layer : the layer that computes all of its parts together.
    """

    def __init__(self, layer: PreparedLinear) -> None:
        self._layer = layer
        self._kept = _Kept()

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the layer's output, computed again only if the input is another tensor."""
        last = self._kept.last
        if last is not None and last[0]() is vectors:
            return last[1]
        output = self._layer(vectors)
        # Whichever thread frees the input last, the output of this one is what goes.
        self._kept.last = (
            weakref.ref(vectors, functools.partial(_forget, vars(self._kept))),
            output,
        )
        return output

    def __reduce__(self) -> tuple[Any, ...]:
        return OnSameInput, (self._layer,)


class _Kept(threading.local):
    """The last input and output of each thread."""

    last: tuple[weakref.ref, Tensor] | None = None


def _forget(kept: dict[str, Any], gone: weakref.ref) -> None:
    last = kept.get("last")
    if last is not None and last[0] is gone:
        kept["last"] = None


class PartOfLinear(torch.nn.Module):
    """One of several layers that are computed together on the same input.

    # Parameters

    shared : computes all of the layers.
    start, length : the columns of the shared output that belong to this layer.
    """

    def __init__(self, shared: OnSameInput, start: int, length: int) -> None:
        super().__init__()
        self._shared, self._start, self._length = shared, start, length

    def forward(self, vectors: Tensor) -> Tensor:
        """Return this layer's part of the shared output, `(..., length)`."""
        return self._shared(vectors).narrow(-1, self._start, self._length)
