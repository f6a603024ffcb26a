"""Embedders that can also be trained as masked language models."""

import logging
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules import TextFieldEmbedder, TokenEmbedder
from allennlp.modules.scalar_mix import ScalarMix
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from declutr.sampling.masking import IGNORE
from declutr.system.host_memory import carried, on_host, to_device
from declutr.transformer.architectures import (
    features_zeroed,
    first_position,
    keep_adapter_dtypes,
    masked_lm_logits,
    max_positions,
)
from declutr.transformer.packed_attention import recomputation_contexts
from declutr.transformer.training_products import quick_products
from declutr.transformer.unpadding import Run, UnpaddedPass

logger = logging.getLogger(__name__)


class MaskedLMOutput(NamedTuple):
    """What a pass over masked text gives."""

    embeddings: torch.Tensor
    """Token vectors as `forward` gives them, of the last layer or a mix of all: `(N, L, d)`."""

    loss_sum: torch.Tensor
    """Cross entropy, summed over the masked tokens; 0 (with a graph) if there are none."""

    num_correct: torch.Tensor
    """How many of them the model gets right, without a gradient."""

    num_masked: torch.Tensor
    """How many there are."""


@TokenEmbedder.register("pretrained_transformer_mlm")
class PretrainedTransformerEmbedderMLM(PretrainedTransformerEmbedder):
    """Any transformer that `AutoModelForMaskedLM` loads, as a `TokenEmbedder`.

    `forward` embeds and never runs the language modelling head. `masked_lm` embeds masked text and
    runs the head on the masked positions alone.

    # Parameters

    model_name : a name on the Hugging Face hub, or a folder.
    max_length : fold longer inputs into segments of this length (see AllenNLP's
        `PretrainedTransformerEmbedder`); not with masked language modelling.
    sub_module : embed with this part of the transformer only; not with masked language modelling.
    train_parameters : False freezes the transformer.
    eval_mode : keep the transformer in evaluation mode (no dropout) during training.
    last_layer_only : False embeds with a trained mix of all layers. The head of masked language
        modelling reads the last layer either way.
    gradient_checkpointing : trade time for memory.
    unpadding : how padding is kept from being computed on: `"auto"`, `"packed"`, `"grouped"` or
        `"none"`; see `declutr.transformer.unpadding`. Embeddings are the same up to rounding.
    compile : compile the transformer with `torch.compile`; a dictionary gives its options. Not
        together with gradient_checkpointing.
    masked_language_modeling : load the head too. False loads the bare encoder.
    load_weights : False builds the architecture only; archives do so, as they hold the weights.
    tokenizer_kwargs, transformer_kwargs : for `from_pretrained`.

    # Raises

    `ConfigurationError` : the transformer has no masked language modelling head or its tokenizer no
        mask token, or an input is longer than the transformer allows.
    """

    transformer_model: Any  # whatever class the checkpoint asks for
    _max_length: Any

    def __init__(
        self,
        model_name: str,
        *,
        max_length: Optional[int] = None,
        sub_module: Optional[str] = None,
        train_parameters: bool = True,
        eval_mode: bool = False,
        last_layer_only: bool = True,
        gradient_checkpointing: Optional[bool] = None,
        unpadding: str = "auto",
        compile: Union[bool, dict[str, Any]] = False,
        masked_language_modeling: bool = True,
        load_weights: bool = True,
        tokenizer_kwargs: Optional[dict[str, Any]] = None,
        transformer_kwargs: Optional[dict[str, Any]] = None,
    ) -> None:
        TokenEmbedder.__init__(self)  # the parent's constructor would load another model
        self.model_name = model_name
        self.masked_language_modeling = masked_language_modeling
        tokenizer = PretrainedTransformerTokenizer(model_name, tokenizer_kwargs=tokenizer_kwargs)
        self.tokenizer = tokenizer.tokenizer
        if masked_language_modeling and self.tokenizer.mask_token_id is None:
            raise ConfigurationError(
                f"The tokenizer of '{model_name}' has no mask token, which masked language "
                "modelling needs. Set masked_language_modeling to false, or use another one."
            )
        self.transformer_model = _load(
            model_name, masked_language_modeling, load_weights, transformer_kwargs or {}
        )
        self.config = self.transformer_model.config
        if sub_module:
            self._keep_only(sub_module)
        self._match_vocabulary()
        keep_adapter_dtypes(self.encoder)
        self._max_positions = max_positions(self.encoder)
        if gradient_checkpointing and compile:
            raise ConfigurationError(
                "gradient_checkpointing and compile do not go together: remove one of them. "
                "chunk_size of the model saves memory as well."
            )
        if gradient_checkpointing:
            # The other kind visits parameters twice, which stops distributed training.
            options = {"use_reentrant": False, "context_fn": self._recomputation_contexts}
            model = self.transformer_model  # transformers 5.x renamed the method
            enable = getattr(model, "activation_checkpointing_enable", None)
            (enable or model.gradient_checkpointing_enable)(options)

        self._max_length = max_length
        self.output_dim = self.config.hidden_size
        self._scalar_mix = None if last_layer_only else ScalarMix(self.config.num_hidden_layers)
        self.head_reads_mix = False
        if self._scalar_mix is not None:
            # Goes with the weights: until 1.5 heads were trained on the mix, and had no such mark.
            self.register_buffer("_head_reads_last_layer", torch.tensor(True))
        self._told_of_mix = False
        self._num_added_start_tokens = len(tokenizer.single_sequence_start_tokens)
        self._num_added_end_tokens = len(tokenizer.single_sequence_end_tokens)
        self._num_added_tokens = self._num_added_start_tokens + self._num_added_end_tokens
        # No buffer: what is masked is drawn on the host.
        self._special_ids = torch.tensor(self.tokenizer.all_special_ids)
        try:
            self._unpadded = UnpaddedPass(
                unpadding,
                padding_id=self.tokenizer.pad_token_id or 0,
                first_position=first_position(self.encoder),
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        if compile:
            options = {"dynamic": True, **(compile if isinstance(compile, dict) else {})}
            self.encoder.compile(**options)
        self.train_parameters = train_parameters
        self.transformer_model.requires_grad_(train_parameters)
        self.eval_mode = eval_mode
        if eval_mode:
            self.transformer_model.eval()

    def _recomputation_contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        """What a layer is computed in, and computed again in, which lies outside of `forward`."""
        first, again = recomputation_contexts()
        quick = quick_products(self.encoder, next(self.encoder.parameters()).device)
        return first, _Both(quick, again)

    def _keep_only(self, sub_module: str) -> None:
        if self.masked_language_modeling or not hasattr(self.transformer_model, sub_module):
            raise ConfigurationError(
                f"sub_module '{sub_module}' "
                + (
                    "cannot be combined with masked language modelling."
                    if self.masked_language_modeling
                    else f"is no part of {type(self.transformer_model).__name__}."
                )
            )
        self.transformer_model = getattr(self.transformer_model, sub_module)

    def _match_vocabulary(self) -> None:
        size = self.transformer_model.get_input_embeddings().num_embeddings
        if size < len(self.tokenizer):  # tokens were added to the tokenizer
            self.transformer_model.resize_token_embeddings(len(self.tokenizer))

    @property
    def encoder(self) -> torch.nn.Module:
        """The transformer without its language modelling head."""
        return self.transformer_model.base_model

    @property
    def unpads(self) -> bool:
        """Whether padding costs nothing, so that texts of any length may share a batch."""
        return self._unpadded.unpadding != "none"

    def max_positions(self) -> int | None:
        """Tokens the transformer takes at once, special ones included; `None` if unknown."""
        return self._max_positions

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take up weights, and which layer the head of masked language modelling was trained on."""
        mark = f"{prefix}_head_reads_last_layer"
        if self._scalar_mix is not None and f"{prefix}_scalar_mix.gamma" in state_dict:
            self.head_reads_mix = not state_dict.setdefault(mark, torch.tensor(False))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def maskable(self, token_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The positions `(N, L)` that masking may choose: neither special tokens nor padding."""
        return mask & ~torch.isin(token_ids, self._special_ids.to(token_ids.device))

    def forward(  # type: ignore[override]
        self,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        type_ids: torch.Tensor | None = None,
        segment_concat_mask: torch.Tensor | None = None,
        cut_features: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Token vectors `(N, L, d)` of `token_ids` `(N, L)`; padding where `mask` is False.

        `cut_features` `(N, width of the embedding layer)` is true at features that are zeroed in
        every vector which the embedding layer gives for a text (see `declutr.models.cutoff`).
        """
        if self._max_length is None or token_ids.size(1) <= self._max_length:
            attended = mask if segment_concat_mask is None else segment_concat_mask
            return self._encode(token_ids, attended, type_ids, cut_features)
        folded = self._folded(token_ids)
        attended = carried(self._folded, segment_concat_mask)  # type: ignore[arg-type]
        types = None if type_ids is None else self._folded(type_ids)
        # All three are (N * segments, max_length).
        if cut_features is not None:
            segments = len(folded) // len(token_ids)
            cut_features = cut_features.repeat_interleave(segments, dim=0)
        vectors = self._encode(folded, attended, types, cut_features)
        return self._unfolded(vectors, attended, token_ids.shape)

    def _folded(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._fold_long_sequences(tensor, tensor)[0]  # type: ignore[arg-type,return-value]

    def _unfolded(
        self, vectors: torch.Tensor, mask: torch.Tensor, shape: torch.Size
    ) -> torch.Tensor:
        """What AllenNLP makes of the vectors `(N * segments, max_length, d)` of texts `(N, L)`."""
        if vectors.device.type == "cpu":
            return self._unfold_long_sequences(vectors, mask, *shape)  # type: ignore[arg-type]
        # AllenNLP looks at the mask again and again, so places are unfolded instead, on the host.
        places = to_device(self._unfolded_places(on_host(mask), shape), vectors.device)
        rows = torch.cat([vectors.new_zeros(1, vectors.size(-1)), vectors.flatten(0, 1)])
        return rows.index_select(0, places.flatten()).view(*places.shape, -1)

    def _unfolded_places(self, mask: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Which of the rows of segments end to end, counted from 1, each vector of a text is, or 0
        for zeros."""
        numbers = torch.arange(1, mask.numel() + 1, dtype=torch.float64).view(*mask.shape, 1)
        return self._unfold_long_sequences(numbers, mask, *shape)[..., 0].long()  # type: ignore[arg-type]

    def masked_lm(
        self,
        labels: torch.Tensor,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        type_ids: torch.Tensor | None = None,
    ) -> MaskedLMOutput:
        """Embed masked text and predict what was masked.

        `labels` is `(N, L)`: the original id at masked positions, `IGNORE` elsewhere.
        """
        if self._max_length is not None and token_ids.size(1) > self._max_length:
            raise ConfigurationError(
                f"Got {token_ids.size(1)} tokens with max_length {self._max_length}: folded inputs "
                "cannot be masked. Lower max_span_len, or remove max_length from the embedder."
            )
        if self.head_reads_mix and not self._told_of_mix:
            self._told_of_mix = True
            logger.warning(
                "These weights are of a run that was begun with declutr 1.5 or before, where with "
                "last_layer_only false the head of masked language modelling read the mix of "
                "layers. It goes on so. In a run begun anew the head reads the last layer, as in "
                "the original package."
            )
        if self._scalar_mix is None or self.head_reads_mix:
            embeddings = last = self._encode(token_ids, mask, type_ids)  # (N, L, d)
        else:
            both = self._encode(token_ids, mask, type_ids, run=self._mixed_and_last)
            embeddings, last = both.chunk(2, dim=-1)  # (N, L, d) each
        on_host_labels = on_host(labels).flatten()  # (N * L,)
        places = (on_host_labels != IGNORE).nonzero()[:, 0]  # (M,)
        if not len(places):
            # The head must still take part, or DistributedDataParallel would wait for its gradient.
            nothing = masked_lm_logits(self.transformer_model, last[:1, 0]).sum() * 0
            zero = torch.zeros((), device=nothing.device)
            return MaskedLMOutput(embeddings, nothing.float(), zero, zero)
        sent = to_device(torch.stack([places, on_host_labels[places]]), last.device)
        places, targets = sent.unbind()
        hidden = last.flatten(0, 1).index_select(0, places)  # (M, d)
        with quick_products(self.transformer_model, hidden.device):
            logits = masked_lm_logits(self.transformer_model, hidden)  # (M, V)
        return MaskedLMOutput(
            embeddings,
            cross_entropy(logits.float(), targets, reduction="sum"),
            (logits.detach().argmax(dim=-1) == targets).sum().float(),
            torch.full((), len(places), dtype=torch.float32, device=last.device),
        )

    def _encode(
        self,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        type_ids: torch.Tensor | None,
        cut_features: torch.Tensor | None = None,
        run: Run | None = None,
    ) -> torch.Tensor:
        """What `run` makes of texts without their padding: token vectors, if it is not given."""
        limit = self._max_positions
        if limit is not None and token_ids.size(1) > limit:
            raise ConfigurationError(
                f"Got a text of {token_ids.size(1)} tokens, special ones included, but "
                f"'{self.model_name}' takes {limit}. Lower max_span_len (and max_length of the "
                "tokenizer), or use a transformer for longer texts."
            )
        if self._number_of_token_type_embeddings() <= 1:
            type_ids = None
        return self._unpadded(
            self.encoder, run or self._token_vectors, token_ids, mask, type_ids, cut_features
        )

    def _token_vectors(
        self, of_texts: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if of_texts is not None:  # features of the embedding layer to be zeroed
            with features_zeroed(self.encoder, of_texts):
                return self._token_vectors(**inputs)
        if self._scalar_mix is None:
            return self.encoder(**inputs, return_dict=True).last_hidden_state
        return self._mixed(self._all_layers(**inputs))

    def _mixed_and_last(self, **inputs: torch.Tensor) -> torch.Tensor:
        """The mix of all layers, and beside it the last one: `(..., 2 d)`."""
        output = self._all_layers(**inputs)
        return torch.cat([self._mixed(output), output.last_hidden_state], dim=-1)

    def _all_layers(self, **inputs: torch.Tensor) -> Any:
        return self.encoder(**inputs, return_dict=True, output_hidden_states=True)

    def _mixed(self, output: Any) -> torch.Tensor:
        assert self._scalar_mix is not None
        return self._scalar_mix(list(output.hidden_states[1:]))  # the first is the embedding layer


class _Both:
    """Two contexts as one that can be entered again and again, as often as they can.

    torch enters that of a layer's recomputation once for each backward pass.
    """

    def __init__(self, outer: AbstractContextManager, inner: AbstractContextManager) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._outer)
            stack.enter_context(self._inner)
            self._stack = stack.pop_all()

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def _load(
    model_name: str, with_head: bool, load_weights: bool, transformer_kwargs: dict[str, Any]
) -> torch.nn.Module:
    # Said outright: otherwise transformers asks on standard input.
    trust = transformer_kwargs.get("trust_remote_code", False)
    kwargs = {"dtype": torch.float32, **transformer_kwargs, "trust_remote_code": trust}
    auto_class = AutoModelForMaskedLM if with_head else AutoModel
    config = AutoConfig.from_pretrained(
        model_name, **{**transformer_kwargs, "trust_remote_code": trust}
    )
    if with_head and type(config) not in AutoModelForMaskedLM._model_mapping:
        raise ConfigurationError(
            f"'{model_name}' ({config.model_type}) has no masked language modelling head. Set "
            "masked_language_modeling to false, or use another transformer."
        )
    if hasattr(config, "reference_compile"):  # ModernBERT would compile itself on first use
        kwargs["reference_compile"] = False
    if load_weights:
        model = auto_class.from_pretrained(model_name, **kwargs)
    else:
        dtype = kwargs.pop("dtype")
        config = AutoConfig.from_pretrained(model_name, **kwargs)
        model = auto_class.from_config(config, dtype=dtype, trust_remote_code=trust)
    if getattr(model.base_model, "pooler", None) is not None:
        # Its output is never used, and parameters without gradients stop distributed training.
        model.base_model.pooler = None
    return model


@TextFieldEmbedder.register("mlm")
class MLMTextFieldEmbedder(BasicTextFieldEmbedder):
    """A basic `TextFieldEmbedder` around one `pretrained_transformer_mlm` embedder.

    As an embedder it is like any other; `masked_lm` serves the model "declutr".
    """

    def __init__(self, token_embedders: dict[str, TokenEmbedder]) -> None:
        super().__init__(token_embedders)
        kinds = [type(embedder) for embedder in token_embedders.values()]
        if len(kinds) != 1 or not issubclass(kinds[0], PretrainedTransformerEmbedderMLM):
            raise ConfigurationError(
                'The embedder "mlm" holds exactly one token embedder, of type '
                f'"pretrained_transformer_mlm"; got {[kind.__name__ for kind in kinds]}. Use the '
                'embedder "basic" for others.'
            )

    @property
    def token_embedder(self) -> PretrainedTransformerEmbedderMLM:
        """The embedder inside."""
        return getattr(self, f"token_embedder_{self._ordered_embedder_keys[0]}")

    @property
    def masked_language_modeling(self) -> bool:
        """Whether there is a head to train."""
        return self.token_embedder.masked_language_modeling

    def freeze_head(self) -> None:
        """Take the head out of training: distributed training waits for every gradient."""
        embedder = self.token_embedder
        shared = {id(parameter) for parameter in embedder.encoder.parameters()}
        for parameter in embedder.transformer_model.parameters():
            if id(parameter) not in shared:  # tied weights belong to the encoder
                parameter.requires_grad_(False)

    def masked_lm(self, text_field_input: TextFieldTensors, labels: torch.Tensor) -> MaskedLMOutput:
        """`PretrainedTransformerEmbedderMLM.masked_lm` of a batch that is already masked."""
        tensors = text_field_input[self._ordered_embedder_keys[0]]
        return self.token_embedder.masked_lm(
            labels, tensors["token_ids"], tensors["mask"], tensors.get("type_ids")
        )
