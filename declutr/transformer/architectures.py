"""What differs between architectures: positions, embeddings, activations, heads and dropout."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu
from torch.nn.modules.dropout import _DropoutNd
from transformers import AutoModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

FUSED = {"gelu": ("gelu", "none"), "gelu tanh": ("gelu", "tanh"), "relu": ("relu", "")}
"""Activations that a product can apply, with oneDNN's names of operation and algorithm."""

_GELUS = {"none": "gelu", "tanh": "gelu tanh"}
_UNLIMITED = 1_000_000  # what tokenizers without a limit report is far above this


def first_position(transformer: torch.nn.Module) -> int:
    """Return the position of a text's first token.

    It is 0, or one after the padding id: RoBERTa and its kin count from there, and their table of
    positions has a row for padding.
    """
    paddings = [
        getattr(module, "padding_idx", None)
        for name, module in transformer.named_modules()
        if name.rpartition(".")[2] == "position_embeddings"
    ]
    return max((padding + 1 for padding in paddings if padding is not None), default=0)


def max_positions(transformer: torch.nn.Module) -> int | None:
    """Return the tokens it takes at once, special ones included; `None` if it does not say."""
    table = _table_size(getattr(transformer, "config", None))
    return None if table is None else table - first_position(transformer)


def configured_max_positions(config: Any, trust: bool = False) -> int | None:
    """Return `max_positions` of the transformer of a configuration, without memory for its weights.

    # Parameters

    config : of transformers.
    trust : run the Python code that it brings (transformers' `trust_remote_code`).
    """
    table = _table_size(config)
    if table is None:
        return None
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            transformer = AutoModel.from_config(config, trust_remote_code=trust)
    except Exception:  # nothing can be built, as whoever needs the transformer will be told
        return table
    return table - first_position(transformer)


def longest_text(tokenizer: Any, positions: int | None) -> int | None:
    """Return how many tokens a text may have, special ones included; `None` if there is no limit.

    # Parameters

    tokenizer : of transformers. Many name no limit, and some a wrong one.
    positions : `max_positions` of the transformer.
    """
    limits = (int(tokenizer.model_max_length), positions)
    return min((limit for limit in limits if limit and limit < _UNLIMITED), default=None)


def _table_size(config: Any) -> int | None:
    """Return the number of positions that are embedded; `None` if they are relative, or unknown."""
    size = getattr(config, "max_position_embeddings", None)
    return size if size is not None and size > 0 else None


def embedding_layer(transformer: torch.nn.Module) -> torch.nn.Module:
    """Return what turns ids into the vectors of the first layer of attention.

    Normalisation and dropout are part of it.

    # Raises

    `ValueError` : the transformer has no single part that does.
    """
    layer = getattr(transformer, "embeddings", None)
    if not isinstance(layer, torch.nn.Module):
        raise ValueError(
            f"{type(transformer).__name__} has no part 'embeddings' that makes the vectors of its "
            "first layer, so none of their features can be cut. Cut tokens or spans instead."
        )
    return layer


def embedding_width(transformer: torch.nn.Module) -> int:
    """Return the features of a vector of the embedding layer.

    They may be fewer than those of the layers above (ALBERT, ELECTRA). It raises what
    `embedding_layer` does.
    """
    embedding_layer(transformer)
    words: Any = transformer.get_input_embeddings()  # type: ignore[operator]
    return words.embedding_dim


@contextmanager
def features_zeroed(transformer: torch.nn.Module, zeroed: Tensor) -> Iterator[None]:
    """Within this context some features of the vectors of the embedding layer are 0.

    `zeroed` is a bool tensor that broadcasts to those vectors. A compiled transformer computes
    eagerly meanwhile: compiled code may remember what was zeroed before.

    # Raises

    `ValueError` : there is no embedding layer, or its vectors are of another width.
    """

    def zero(layer: torch.nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
        if vectors.size(-1) != zeroed.size(-1):
            raise ValueError(
                f"Expected {type(layer).__name__} to give vectors {zeroed.size(-1)} wide, as wide "
                f"as its word vectors, got {vectors.size(-1)}. Cut tokens or spans instead."
            )
        return vectors.masked_fill(zeroed, 0)

    hook = embedding_layer(transformer).register_forward_hook(zero)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        hook.remove()


def keep_adapter_dtypes(transformer: torch.nn.Module) -> None:
    """Let X-MOD's adapters of languages give vectors in the dtype of those that they get.

    Its layers write what an adapter gives into a tensor like what the adapter got. Under autocast
    the one is bfloat16, as linear layers give it, and the other float32, as layer norms do; torch
    does not assign between them.
    """
    for module in transformer.modules():
        if type(module).__name__ == "XmodAdapter":
            module.register_forward_hook(_as_given)


def _as_given(_: torch.nn.Module, given: tuple[Any, ...], vectors: Tensor) -> Tensor:
    return vectors.to(given[0].dtype)


def fused_name(activation: Any) -> str | None:
    """Return which of `FUSED` a module or function is, or `None` if it is none of them."""
    if isinstance(activation, torch.nn.ReLU):
        return "relu"
    if isinstance(activation, torch.nn.GELU):
        return _GELUS.get(activation.approximate)
    # transformers wraps the function, by a class whose name depends on the release.
    inside = getattr(activation, "act", activation)
    if inside is gelu:
        return "gelu"
    if isinstance(inside, functools.partial) and inside.func is gelu and not inside.args:
        return _GELUS.get(inside.keywords.get("approximate", "none"))
    return None


def activated(vectors: Tensor, name: str, out: Tensor | None = None) -> Tensor:
    """Apply one of `FUSED` by torch's own function, into `out` if that is given."""
    if name == "relu":
        return torch.relu(vectors) if out is None else out.copy_(vectors).relu_()
    algorithm = FUSED[name][1]
    if out is None:
        return gelu(vectors, approximate=algorithm)
    return torch.ops.aten.gelu.out(vectors, approximate=algorithm, out=out)


def masked_lm_logits(model: Any, hidden: Tensor) -> Tensor:
    """Return vocabulary logits `(M, V)` of hidden states `(M, d)`, by the head of any masked LM.

    The head of `AutoModelForMaskedLM` has another name and shape in every family, but its forward
    is always encoder, then head. So that forward runs on a shallow copy whose encoder returns what
    it is given; the copy shares every parameter.
    """
    prefix = model.base_model_prefix
    headed = copy.copy(model)
    headed._modules = dict(model._modules)
    headed._modules[prefix] = _Given(getattr(model, prefix), hidden.unsqueeze(0))
    return headed(return_dict=True).logits.squeeze(0)


class _Given(torch.nn.Module):
    """Stands in the encoder's place; everything but its forward is the encoder's."""

    def __init__(self, encoder: torch.nn.Module, hidden: Tensor) -> None:
        super().__init__()
        self.__dict__["_encoder"] = encoder  # not a submodule: nothing is to be registered twice
        self.__dict__["_hidden"] = hidden

    def forward(self, *args: Any, **kwargs: Any) -> BaseModelOutputWithPoolingAndCrossAttentions:
        return BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=self._hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_encoder"], name)


@contextmanager
def dropout_rate(module: torch.nn.Module, rate: float) -> Iterator[None]:
    """Within this context every dropout inside `module` has this rate, and afterwards its own.

    Dropout is in layers of torch, and in attention that takes the rate as a number: transformers
    keep that in attributes named after dropout. Only in training does it do anything, as ever. An
    architecture that leaves a layer out because its rate is 0 has none to set. Self-contrastive
    decorrelation (Klein & Nabi, 2022) embeds the same sentences under a low and a high rate.

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
