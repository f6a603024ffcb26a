"""Embedders that can also be trained as masked language models."""

import contextlib
import logging
from typing import Any, NamedTuple, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules import TextFieldEmbedder, TokenEmbedder
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder

from declutr.modules import transformer_embedder
from declutr.system import raised_as
from declutr.transformer.architectures import embedding_part, mend, output_width

logger = logging.getLogger(__name__)


class MaskedLMOutput(NamedTuple):
    """The embeddings of masked texts, and sums over the masked tokens."""

    embeddings: torch.Tensor
    """The token embeddings `(N, L, d)` that `forward` returns: the last layer or a mix."""

    loss_sum: torch.Tensor
    """The cross entropy summed over the masked tokens; 0, with a gradient, if none are masked."""

    num_correct: torch.Tensor
    """The number of masked tokens that are predicted correctly, without a gradient."""

    num_masked: torch.Tensor
    """The number of masked tokens."""


@TokenEmbedder.register("pretrained_transformer_mlm")
class PretrainedTransformerEmbedderMLM(transformer_embedder.TransformerEmbedder):
    """A `TokenEmbedder` around any transformer that `AutoModelForMaskedLM` can load.

    `forward` returns token embeddings and never runs the language modelling head. `masked_lm`
    embeds masked texts and runs the head on the masked positions only.

    # Parameters

    model_name : a name on the Hugging Face hub, or a folder.
    max_length : the length in tokens of the segments that longer inputs are folded into (see
        AllenNLP's `PretrainedTransformerEmbedder`). Folded inputs cannot be masked.
    sub_module : the part to embed with, such as `"encoder"`; not with masked language modelling.
        By default that of `declutr.transformer.architectures.embedding_part`: T5 has its encoder.
    train_parameters : False freezes the transformer.
    eval_mode : keep the transformer in evaluation mode (no dropout) during training.
    last_layer_only : False embeds with a trained mix of layers; the head always reads the last.
    layers : embeds with the mean of two layers: `"first-last"`, `"embedding-last"` or `"last-two"`
        (see `declutr.transformer.pooling.LAYERS`); the head reads the last.
    gradient_checkpointing : recompute layers in the backward pass: less memory, but more time.
    unpadding : the way to avoid computing on padding: `"auto"`, `"packed"`, `"grouped"` or
        `"none"`; see `declutr.transformer.unpadding`. Embeddings differ by rounding errors only.
    compile : True compiles the transformer with `torch.compile`; a dictionary gives the options of
        that function. It cannot be combined with gradient_checkpointing.
    masked_language_modeling : False loads the transformer without its language modelling head.
    load_weights : False builds the architecture only, to open an archive, which has weights.
    tokenizer_kwargs, transformer_kwargs : keyword arguments of the `from_pretrained` of each.

    # Raises

    `ConfigurationError` : the transformer has no language modelling head, its tokenizer has no mask
        token, settings contradict each other, or an input is longer than the transformer allows.
    """

    def __init__(
        self,
        model_name: str,
        *,
        max_length: Optional[int] = None,
        sub_module: Optional[str] = None,
        train_parameters: bool = True,
        eval_mode: bool = False,
        last_layer_only: bool = True,
        layers: Optional[str] = None,
        gradient_checkpointing: Optional[bool] = None,
        unpadding: str = "auto",
        compile: Union[bool, dict[str, Any]] = False,
        masked_language_modeling: bool = True,
        load_weights: bool = True,
        tokenizer_kwargs: Optional[dict[str, Any]] = None,
        transformer_kwargs: Optional[dict[str, Any]] = None,
    ) -> None:
        tokenizer = PretrainedTransformerTokenizer(model_name, tokenizer_kwargs=tokenizer_kwargs)
        if masked_language_modeling and tokenizer.tokenizer.mask_token_id is None:
            raise ConfigurationError(
                f"The tokenizer of '{model_name}' has no mask token, which masked language "
                "modelling needs. Set masked_language_modeling to false, or use another one."
            )
        if gradient_checkpointing and compile:
            raise ConfigurationError(
                "gradient_checkpointing and compile do not go together: remove one of them. "
                "chunk_size of the model saves memory as well."
            )
        whole = transformer = transformer_embedder.load_transformer(
            model_name, masked_language_modeling, load_weights, transformer_kwargs or {}
        )
        if sub_module:
            if masked_language_modeling:
                raise ConfigurationError(
                    f"sub_module '{sub_module}' cannot be combined with masked language modelling."
                )
            if not hasattr(whole, sub_module):
                raise ConfigurationError(
                    f"sub_module '{sub_module}' is no part of {type(whole).__name__}."
                )
            transformer = getattr(whole, sub_module)
        elif not masked_language_modeling:
            transformer = embedding_part(whole)
        if not hasattr(transformer, "get_input_embeddings"):
            raise ConfigurationError(
                f"'{model_name}' cannot be trained: {type(transformer).__name__} is a part of "
                f"{type(whole).__name__}, and no model of transformers by itself. Use another one."
            )
        with raised_as(ConfigurationError, ValueError):
            output_width(whole.config)
        with contextlib.suppress(NotImplementedError):  # CANINE hashes tokens, and has no table
            if len(transformer.get_input_embeddings().weight) < len(tokenizer.tokenizer):
                transformer.resize_token_embeddings(len(tokenizer.tokenizer))  # for added tokens
        mend(transformer.base_model)
        if gradient_checkpointing:
            transformer_embedder.recompute_layers(transformer)
        settings = max_length, last_layer_only, unpadding, layers
        super().__init__(model_name, transformer, whole.config, tokenizer, *settings)
        self.masked_language_modeling = masked_language_modeling
        self.head_reads_mix = False
        if self._scalar_mix is not None:
            # Saved with weights; heads trained by releases up to 1.5 read the mix and lack this.
            self.register_buffer("_head_reads_last_layer", torch.tensor(True))
        self._told_of_mix = False
        # This is not a buffer, because masks are drawn on the host.
        self._special_ids = torch.tensor(self.tokenizer.all_special_ids)
        if compile:
            options = {"dynamic": True, **(compile if isinstance(compile, dict) else {})}
            self.encoder.compile(**options)
        self.train_parameters = train_parameters
        self.transformer_model.requires_grad_(train_parameters)
        self.eval_mode = eval_mode
        if eval_mode:
            self.transformer_model.eval()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load weights, and find out which layer the language modelling head was trained on."""
        mark = f"{prefix}_head_reads_last_layer"
        if self._scalar_mix is not None and f"{prefix}_scalar_mix.gamma" in state_dict:
            self.head_reads_mix = not state_dict.setdefault(mark, torch.tensor(False))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def maskable(self, token_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return which of the tokens `token_ids` `(N, L)` may be masked, as a mask `(N, L)`.

        These are all but special tokens and padding, at which `mask` `(N, L)` is False.
        """
        return mask & ~torch.isin(token_ids, self._special_ids.to(token_ids.device))

    def masked_lm(
        self,
        labels: torch.Tensor,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        type_ids: torch.Tensor | None = None,
    ) -> MaskedLMOutput:
        """Embed masked texts and predict the masked tokens.

        # Parameters

        labels : `(N, L)`, the original id at masked positions and `IGNORE` elsewhere.
        token_ids : `(N, L)`, with the masked tokens replaced.
        mask : `(N, L)` bool, False at padding.
        type_ids : `(N, L)`, the token types, if the transformer has any.

        # Raises

        `ConfigurationError` : texts are longer than `max_length` or than the transformer allows.
        """
        from declutr.modules.masked_lm import masked_lm_sums  # needed in training only

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
        if self.layers is None and (self._scalar_mix is None or self.head_reads_mix):
            embeddings = last = self._encode(token_ids, mask, type_ids)  # (N, L, d)
        else:
            both = self._encode(token_ids, mask, type_ids, run=self._mix_beside_last)
            embeddings, last = both.chunk(2, dim=-1)  # (N, L, d) each
        return MaskedLMOutput(embeddings, *masked_lm_sums(self.transformer_model, last, labels))

    def _mix_beside_last(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the mix or mean of layers and the last layer, concatenated: `(..., 2 d)`."""
        return torch.cat(self._mixed_and_last(**inputs), dim=-1)


@TextFieldEmbedder.register("mlm")
class MLMTextFieldEmbedder(BasicTextFieldEmbedder):
    """A `TextFieldEmbedder` around a single token embedder "pretrained_transformer_mlm".

    Any AllenNLP model can embed with it. The model "declutr" also calls `masked_lm`.

    # Parameters

    token_embedders : one embedder of that type; all else raises `ConfigurationError`.
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
        """The only token embedder."""
        return getattr(self, f"token_embedder_{self._ordered_embedder_keys[0]}")

    @property
    def masked_language_modeling(self) -> bool:
        """Whether the transformer has its language modelling head."""
        return self.token_embedder.masked_language_modeling

    def freeze_head(self) -> None:
        """Exclude the language modelling head from training.

        DistributedDataParallel waits for gradients of all trained parameters, even if not used.
        """
        embedder = self.token_embedder
        shared = {id(parameter) for parameter in embedder.encoder.parameters()}
        for parameter in embedder.transformer_model.parameters():
            if id(parameter) not in shared:  # tied weights belong to the encoder
                parameter.requires_grad_(False)

    def masked_lm(self, text_field_input: TextFieldTensors, labels: torch.Tensor) -> MaskedLMOutput:
        """Call `PretrainedTransformerEmbedderMLM.masked_lm` on a batch that is already masked.

        # Parameters

        text_field_input : texts `(N, L)`, with the masked tokens replaced.
        labels : `(N, L)`, the original id at masked positions and `IGNORE` elsewhere.
        """
        tensors = text_field_input[self._ordered_embedder_keys[0]]
        inputs = tensors["token_ids"], tensors["mask"], tensors.get("type_ids")
        return self.token_embedder.masked_lm(labels, *inputs)
