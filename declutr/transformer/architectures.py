"""Uniform access to parts that differ between architectures of transformers.

These are positions, the embedding layer, activations, the masked LM head and dropout rates.
"""

import copy
import functools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode
from transformers import AutoModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from declutr.system import free_after_fork

FUSED = {"gelu": ("gelu", "none"), "gelu tanh": ("gelu", "tanh"), "relu": ("relu", "")}
"""Activations that a linear layer can apply, with oneDNN's names of operation and algorithm."""

_GELUS = {"none": "gelu", "tanh": "gelu tanh"}
# By model type, the modules and parameters that take no part in embedding or language modelling: no
# token attends globally, contacts are not predicted, and nothing is replaced by XLNet's mask.
_NEVER_USED = {
    "longformer": {"query_global", "key_global", "value_global"},
    "esm": {"contact_head"},
    "xlnet": {"mask_emb"},
}
# By model type, the setting that is the width of token embeddings, if not the hidden size.
_WIDTHS = {"opt": "word_embed_proj_dim", "embedding_gemma2_text": "embedding_dim"}
_CALL_POOLER = ("squeezebert", "layoutlm")  # without asking whether there is one
# Encoders with a decoder whose input they make from that of the encoder, by themselves.
_DECODE_ALONE = {"bart", "bigbird_pegasus", "led", "mbart", "mvp", "plbart"}
_BIGBIRD_PEGASUS = "BigBirdPegasusEncoder"
# Of threads, with models that change for the length of a batch.
_TURNS = free_after_fork(threading.RLock())
_UNLIMITED = 1_000_000  # tokenizers without a limit report a number far above this


def first_position(transformer: torch.nn.Module) -> int:
    """Return the position id of the first token of a text.

    It is 0, or the padding id plus one in RoBERTa and related models, whose table of positions has
    a row for padding.
    """
    paddings = [
        getattr(module, "padding_idx", None)
        for name, module in transformer.named_modules()
        if name.rpartition(".")[2] == "position_embeddings"
    ]
    return max((padding + 1 for padding in paddings if padding is not None), default=0)


def max_positions(transformer: torch.nn.Module) -> int | None:
    """Return how many tokens a transformer takes at once, including special tokens.

    `None` means that its configuration does not limit them.
    """
    table = _table_size(getattr(transformer, "config", None))
    return None if table is None else table - first_position(transformer)


def configured_max_positions(config: Any, trust: bool = False) -> int | None:
    """Return `max_positions` of a configuration's transformer, without allocating its weights.

    # Parameters

    config : a configuration of transformers.
    trust : whether to run the Python code that it brings (transformers' `trust_remote_code`).
    """
    table = _table_size(config)
    if table is None:
        return None
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            # Without a dtype, transformers makes that of the checkpoint torch's default meanwhile.
            how = {"dtype": torch.float32, "trust_remote_code": trust}
            transformer = AutoModel.from_config(config, **how)
    except Exception:  # code that needs the transformer itself will raise the same error
        return table
    return table - first_position(transformer)


def longest_text(tokenizer: Any, positions: int | None) -> int | None:
    """Return how many tokens a text may have, including special tokens; `None` without a limit.

    # Parameters

    tokenizer : a tokenizer of transformers. Many report no limit, and some one that is too large.
    positions : `max_positions` of the transformer, `None` if it has no limit.

    # Returns

    The smaller of the two limits.
    """
    limits = (int(tokenizer.model_max_length), positions)
    return min((limit for limit in limits if limit and limit < _UNLIMITED), default=None)


def _table_size(config: Any) -> int | None:
    """Return the size of the position table; `None` if positions are relative or unknown."""
    config = text_config(config)
    names = "max_position_embeddings", "max_seq_len"  # the second is MPT's
    size = next((getattr(config, name) for name in names if hasattr(config, name)), None)
    return size if size is not None and size > 0 else None


def output_width(config: Any) -> int:
    """Return the width of the token embeddings that the transformer of a configuration gives.

    It is the hidden size, but for those that project their last layer (OPT of 350 million
    parameters), or have two streams (Reformer).

    # Raises

    `ValueError` : the transformer gives no embeddings of tokens (Perceiver).
    """
    config = text_config(config)
    if config.model_type == "reformer":
        return 2 * config.hidden_size
    name = _WIDTHS.get(config.model_type, "hidden_size")
    if not hasattr(config, name):
        raise ValueError(
            f"A transformer of the type '{config.model_type}' gives no embeddings of tokens whose "
            f"width is known (it has no '{name}'). Use another one."
        )
    return getattr(config, name)


def num_layers(config: Any) -> int:
    """Return the number of layers whose outputs the transformer of a configuration gives."""
    config = text_config(config)
    whole = config.model_type in _DECODE_ALONE  # the layers of its decoder
    layers: int = config.decoder_layers if whole else config.num_hidden_layers
    return layers


def text_config(config: Any) -> Any:
    """Return the part of a configuration that is about text; others have images or sound."""
    return getattr(config, "text_config", None) or config


def attends_nearby(config: Any) -> bool:
    """Return whether some layers of a configuration's transformer attend to neighbours only."""
    windows = ("local_attention", "sliding_window")
    return any(getattr(text_config(config), window, None) for window in windows)


def turning_length(config: Any) -> int:
    """Return the length beyond which a transformer computes texts otherwise; 0 if there is none.

    BigBird attends sparsely to longer texts, and rotary positions of the type "longrope" (Phi-3)
    turn more slowly in them.
    """
    config = text_config(config)
    if getattr(config, "attention_type", None) == "block_sparse":
        return (5 + 2 * config.num_random_blocks) * config.block_size
    rotary: Any = (
        getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    )
    if "longrope" not in (rotary.get("rope_type"), rotary.get("type")):
        return 0
    name = "original_max_position_embeddings"
    found: int = rotary.get(name) or getattr(config, name, 0)
    return found


def embedding_layer(transformer: torch.nn.Module) -> torch.nn.Module:
    """Return the module that turns token ids into the input of the first attention layer.

    Its normalization and dropout are included.

    # Raises

    `ValueError` : the transformer has no single module that does this.
    """
    layer = getattr(transformer, "embeddings", None)
    if not isinstance(layer, torch.nn.Module):
        raise ValueError(
            f"{type(transformer).__name__} has no part 'embeddings' that makes the vectors of its "
            "first layer, so none of their features can be cut. Cut tokens or spans instead."
        )
    return layer


def embedding_width(transformer: torch.nn.Module) -> int:
    """Return the number of features in the output of the embedding layer.

    It may be smaller than the hidden size of the layers above (ALBERT, ELECTRA).

    # Raises

    `ValueError` : the transformer has no single embedding layer.
    """
    embedding_layer(transformer)
    words: Any = transformer.get_input_embeddings()  # type: ignore[operator]
    return words.embedding_dim


@contextmanager
def features_zeroed(transformer: torch.nn.Module, zeroed: Tensor) -> Iterator[None]:
    """Set features in the output of the embedding layer to 0 within this context.

    A compiled transformer runs eagerly meanwhile, because compiled code may reuse an earlier mask.

    # Parameters

    transformer : the transformer whose embedding layer is changed.
    zeroed : bool, broadcasts to the output `(N, L, d)`; True where a feature becomes 0.

    # Raises

    `ValueError` : there is no single embedding layer, or its output has another width.
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


def mend(transformer: torch.nn.Module) -> None:
    """Repair what some transformers do wrong.

    BigBird attends fully from the first short batch on, to longer texts as well, which it would
    attend sparsely to before. It goes by the length of each batch then, and threads take turns.

    Rotary positions of the type "longrope" write the frequencies for the length of a batch into the
    model, where other threads read them. Each call has its own.

    CANINE joins every few tokens (`downsampling_rate`, 4) to one, and takes no text of fewer. Such
    a text is padded.

    Reformer draws at random which tokens attend to each other. In evaluation, it draws the same in
    each pass, so that a text has one embedding.

    The language adapters of X-MOD and the attentions of DeBERTa and BigBird do not work under
    autocast.
    X-MOD writes the output of an adapter into a tensor with the dtype of the adapter's input. Under
    autocast the output is bfloat16, because it comes from a linear layer, and the input float32,
    because it comes from a layer norm. torch does not assign one to the other by index. The first
    DeBERTa masks scores, which are bfloat16, by the lowest number of its queries, which are float32
    because their bias is. BigBird scatters probabilities in float32 into a tensor in bfloat16.
    """
    for module in transformer.modules():
        kind = type(module).__name__
        if kind == "XmodAdapter":
            module.register_forward_hook(_as_given)
        if kind == "DisentangledSelfAttention" and hasattr(module, "q_bias"):
            module.forward = functools.partial(_masked_in_range, module.forward)
        if _turns(module):
            module.forward = _with_its_signature(_attended_by_length, module)
        if getattr(module, "rope_type", None) == "longrope":
            module.forward = _with_its_signature(_turned_alone, module)
        if kind == "CanineModel":
            module.forward = _with_its_signature(_long_enough, module)
        if kind == "LSHSelfAttention":
            module.forward = _with_its_signature(_drawn_alike, module)


def _as_given(_: torch.nn.Module, given: tuple[Any, ...], vectors: Tensor) -> Tensor:
    return vectors.to(given[0].dtype)


def _masked_in_range(forward: Any, *args: Any, **kwargs: Any) -> Any:
    with _InItsDtype():
        return forward(*args, **kwargs)


def _with_its_signature(call: Any, module: torch.nn.Module) -> Any:
    """Return `call` with a module and its forward pass as first arguments, to take its place."""
    return functools.update_wrapper(functools.partial(call, module, module.forward), module.forward)


def _attended_by_length(module: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
    most = turning_length(module.config)
    tokens = kwargs.get("input_ids", args[0] if args else None)
    if not most or tokens is None:
        return forward(*args, **kwargs)
    wanted = "original_full" if tokens.size(1) <= most else "block_sparse"
    with _TURNS, AttendingAsNow(module, wanted):
        return forward(*args, **kwargs)


class AttendingAsNow(ExitStack):
    """A context in which layers of BigBird that are recomputed attend as when it was made.

    # Parameters

    transformer : any transformer; it does nothing for others than BigBird.
    kind : how to attend, if not as now.
    """

    def __init__(self, transformer: torch.nn.Module, kind: str | None = None) -> None:
        super().__init__()
        turning = hasattr(getattr(transformer, "config", None), "attention_type")
        parts: list[Any] = [*filter(_turns, transformer.modules())] if turning else []
        self._kinds = [(one, kind or one.attention_type) for one in parts]

    def __enter__(self) -> "AttendingAsNow":
        for part, kind in self._kinds:
            if part.attention_type != kind:
                with torch.random.fork_rng(devices=[]):  # new layers draw weights, get the old ones
                    part.set_attention_type(kind)
        if self._kinds:
            self.enter_context(_InItsDtype())
        return super().__enter__()


def _turns(module: Any) -> bool:
    return type(module).__name__ in ("BigBirdModel", _BIGBIRD_PEGASUS)


def _turned_alone(module: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_compiling():  # where nothing can be copied
        return forward(*args, **kwargs)
    alone = copy.copy(module)
    alone._buffers = {name: buffer.clone() for name, buffer in module._buffers.items()}
    return type(module).forward(alone, *args, **kwargs)


def _long_enough(module: Any, forward: Any, input_ids: Tensor, **inputs: Any) -> Any:
    length = input_ids.size(1)
    missing = module.config.downsampling_rate - length
    if missing <= 0:
        return forward(input_ids, **inputs)
    for name in ("attention_mask", "token_type_ids"):
        if inputs.get(name) is not None:
            inputs[name] = torch.nn.functional.pad(inputs[name], (0, missing))
    output = forward(torch.nn.functional.pad(input_ids, (0, missing)), **inputs)
    output.last_hidden_state = output.last_hidden_state[:, :length]
    return output


def _drawn_alike(module: Any, forward: Any, hidden_states: Tensor, **kwargs: Any) -> Any:
    if module.training:
        return forward(hidden_states, **kwargs)
    if module.hash_seed is not None:  # it seeds the generator of all threads, at each draw
        device = hidden_states.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            return forward(hidden_states, **kwargs)
    with _DrawnFrom(torch.Generator(hidden_states.device).manual_seed(0)):
        return forward(hidden_states, **kwargs)


class _DrawnFrom(TorchFunctionMode):
    """A context in which `torch.randn` draws from a generator of this thread, not of all."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.randn:
            return func(*args, **{"generator": self._generator, **(kwargs or {})})
        return func(*args, **(kwargs or {}))


class _InItsDtype(TorchFunctionMode):
    """A context in which a tensor gets numbers of its dtype only.

    None that it is filled with is below the lowest, and those scattered into it are rounded.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.masked_fill and isinstance(args[-1], float):
            tensor, mask, value = args
            args = tensor, mask, max(value, torch.finfo(tensor.dtype).min)
        if func is torch.Tensor.scatter_ and len(args) == 4 and isinstance(args[3], Tensor):
            args = *args[:3], args[3].to(args[0].dtype)
        return func(*args, **(kwargs or {}))


def fused_name(activation: Any) -> str | None:
    """Return the name in `FUSED` of an activation module or function, or `None` if it has none."""
    if isinstance(activation, torch.nn.ReLU):
        return "relu"
    if isinstance(activation, torch.nn.GELU):
        return _GELUS.get(activation.approximate)
    # transformers wraps the function in a class whose name depends on the release.
    inside = getattr(activation, "act", activation)
    if inside is gelu:
        return "gelu"
    if isinstance(inside, functools.partial) and inside.func is gelu and not inside.args:
        return _GELUS.get(inside.keywords.get("approximate", "none"))
    return None


def activated(vectors: Tensor, name: str, out: Tensor | None = None) -> Tensor:
    """Apply an activation by torch's own function.

    # Parameters

    vectors : a tensor of any shape.
    name : one of `FUSED`.
    out : where to write the result, if given; may be `vectors`.
    """
    if name == "relu":
        return torch.relu(vectors) if out is None else out.copy_(vectors).relu_()
    algorithm = FUSED[name][1]
    if out is None:
        return gelu(vectors, approximate=algorithm)
    return torch.ops.aten.gelu.out(vectors, approximate=algorithm, out=out)


def masked_lm_logits(model: Any, hidden: Tensor) -> Tensor:
    """Return the logits of a masked LM head for hidden states.

    The head of `AutoModelForMaskedLM` has another name and shape in every family, but the forward
    pass always runs the encoder and then the head. So it is run here on a shallow copy of the model
    whose encoder returns the hidden states. The copy shares every parameter.

    # Parameters

    model : a masked LM of transformers.
    hidden : hidden states of M tokens, `(M, d)`.

    # Returns

    Logits over the vocabulary, `(M, V)`.
    """
    prefix = model.base_model_prefix
    headed = copy.copy(model)
    headed._modules = dict(model._modules)
    headed._modules[prefix] = _Given(getattr(model, prefix), hidden.unsqueeze(0))
    return headed(return_dict=True).logits.squeeze(0)


def has_unused_decoder(config: Any) -> bool:
    """Return whether a transformer has a decoder that takes no part in embedding texts.

    The decoders of T5 and most others want an input of their own. BART and its relatives make it
    from the text.
    """
    # The configuration of a stored T5EncoderModel, whose decoder is drawn at random, denies that.
    stored = getattr(config, "architectures", None) or ()
    has_one = hasattr(config, "num_decoder_layers") or hasattr(config, "decoder")
    alone = has_one and any(name.endswith("EncoderModel") for name in stored)
    decodes = alone or getattr(config, "is_encoder_decoder", False)
    return decodes and config.model_type not in _DECODE_ALONE


def embedding_part(transformer: Any) -> Any:
    """Return the part of a transformer that makes token embeddings of token ids alone.

    It is the encoder of T5 and others with an unused decoder, what gives token embeddings in DPR,
    and the whole of all others.
    """
    if transformer.config.model_type == "dpr":
        return transformer.base_model
    return transformer.get_encoder() if has_unused_decoder(transformer.config) else transformer


def remove_pooler(transformer: Any) -> None:
    """Remove the pooler of a transformer, if it has one; its output must not be used.

    Parameters without gradients would stop distributed training.
    """
    if getattr(transformer, "pooler", None) is not None:
        called = transformer.config.model_type in _CALL_POOLER
        transformer.pooler = _NoPooler() if called else None


def freeze_never_used(transformer: torch.nn.Module) -> None:
    """Freeze parameters of a transformer that token ids alone make no use of.

    Parameters without gradients would stop distributed training.
    """
    unused = _NEVER_USED.get(getattr(transformer.config, "model_type", ""), set())
    for name, parameter in transformer.named_parameters() if unused else ():
        if unused & set(name.split(".")):
            parameter.requires_grad_(False)


class _NoPooler(torch.nn.Module):
    """A pooler that returns `None`."""

    def forward(self, hidden: Tensor) -> None:
        """Return nothing for hidden states `(N, L, d)`."""


class _HiddenStates(BaseModelOutputWithPoolingAndCrossAttentions):
    """Hidden states as the output of an encoder of any kind, whose other outputs are `None`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class _Given(torch.nn.Module):
    """A stand-in for an encoder that returns given hidden states; other attributes are its own."""

    def __init__(self, encoder: torch.nn.Module, hidden: Tensor) -> None:
        super().__init__()
        self.__dict__["_encoder"] = encoder  # not a submodule, or it would be registered twice
        self.__dict__["_hidden"] = hidden

    def forward(self, *args: Any, **kwargs: Any) -> _HiddenStates:
        return _HiddenStates(last_hidden_state=self._hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_encoder"], name)


@contextmanager
def dropout_rate(module: torch.nn.Module, rate: float) -> Iterator[None]:
    """Set the rate of every dropout inside a module within this context.

    This covers torch's dropout layers, and attention that reads its rate from an attribute, which
    in transformers has "dropout" in its name. As always, dropout acts in training mode only. If an
    architecture left a dropout layer out because its rate was 0, there is nothing to set.

    Self-contrastive decorrelation (Klein & Nabi, 2022) embeds the same sentences with a low and a
    high rate.

    # Parameters

    module : the module to change; the rates are restored afterwards.
    rate : the probability of a value to become zero.

    # Raises

    `ValueError` : a rate outside [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"A rate of dropout lies in [0, 1), got {rate}.")
    before = [(part, name, value) for part in module.modules() for name, value in _rates_of(part)]
    around = _RATE.set((module, rate))
    try:
        for part, name, _ in before:
            setattr(part, name, rate)
        yield
    finally:
        _RATE.reset(around)
        for part, name, value in before:
            setattr(part, name, value)


_RATE: ContextVar[tuple[torch.nn.Module, float] | None] = ContextVar("rate", default=None)


class DroppingAsNow(ExitStack):
    """A context in which layers that are recomputed have the `dropout_rate` of when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self._rate = _RATE.get()

    def __enter__(self) -> "DroppingAsNow":
        if self._rate is not None:
            self.enter_context(dropout_rate(*self._rate))
        return super().__enter__()


def _rates_of(part: torch.nn.Module) -> Iterator[tuple[str, float]]:
    if isinstance(part, _DropoutNd):
        yield "p", part.p
        return
    for name, value in vars(part).items():
        if "dropout" in name and isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, value
