"""A token embedder that runs a pretrained transformer without computing on padding."""

from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules import TokenEmbedder
from allennlp.modules.scalar_mix import ScalarMix
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from declutr.bridge.pretrained import require_same_pieces
from declutr.system import LOADING, raised_as
from declutr.system.host_memory import carried, on_host, to_device
from declutr.transformer.architectures import (
    AttendingAsNow,
    DroppingAsNow,
    features_zeroed,
    first_position,
    max_positions,
    num_layers,
    output_width,
    remove_pooler,
)
from declutr.transformer.packed_attention import recomputation_contexts
from declutr.transformer.pooling import LAYERS, layers_of, mean_of_layers
from declutr.transformer.training_products import quick_products
from declutr.transformer.unpadding import Run, UnpaddedPass


class TransformerEmbedder(PretrainedTransformerEmbedder):
    """A `TokenEmbedder` around a transformer that the caller has loaded.

    # Parameters

    model_name : the name of the transformer in error messages.
    transformer, config : the model, with or without a head, and its configuration.
    tokenizer : the tokenizer of the transformer. Segments of long texts get its special tokens.
    max_length : the tokens of the segments that longer inputs are folded into; `None` never folds.
    last_layer_only : False embeds with a trained mix of all layers.
    layers : embeds with the mean of two layers, a key of `declutr.transformer.pooling.LAYERS`.
    unpadding : the way to avoid computing on padding; see `declutr.transformer.unpadding`.

    # Raises

    `ConfigurationError` : `unpadding` or `layers` is unknown, or, in `forward`, an input is too
        long.
    """

    transformer_model: Any  # its class depends on the pretrained transformer
    _max_length: Any

    def __init__(
        self,
        model_name: str,
        transformer: torch.nn.Module,
        config: Any,
        tokenizer: PretrainedTransformerTokenizer,
        max_length: Optional[int],
        last_layer_only: bool,
        unpadding: str,
        layers: Optional[str] = None,
    ) -> None:
        TokenEmbedder.__init__(self)  # the parent's constructor would load another model
        self.model_name = model_name
        self.tokenizer = tokenizer.tokenizer
        self.transformer_model = transformer
        self.config = config
        self.output_dim = output_width(config)
        self._scalar_mix = None if last_layer_only else ScalarMix(num_layers(config))
        if layers is not None and (layers not in LAYERS or not last_layer_only):
            raise ConfigurationError(
                f"Got layers '{layers}' and last_layer_only {last_layer_only}. Expected one of "
                f"{', '.join(LAYERS)}, and last_layer_only true; or no layers."
            )
        self.layers = layers
        self._max_length = max_length
        self._max_positions = max_positions(self.encoder)
        self._num_added_start_tokens = len(tokenizer.single_sequence_start_tokens)
        self._num_added_end_tokens = len(tokenizer.single_sequence_end_tokens)
        self._num_added_tokens = self._num_added_start_tokens + self._num_added_end_tokens
        with raised_as(ConfigurationError, ValueError):
            self._unpadded = UnpaddedPass(
                unpadding,
                padding_id=self.tokenizer.pad_token_id or 0,
                first_position=first_position(self.encoder),
            )

    @property
    def encoder(self) -> torch.nn.Module:
        """The transformer without its language modelling head."""
        return self.transformer_model.base_model

    @property
    def unpads(self) -> bool:
        """Whether padding is not computed on, so that texts of any length can share a batch."""
        return self._unpadded.unpadding != "none"

    def max_positions(self) -> int | None:
        """Return the longest input in tokens, special tokens included; `None` if it is unknown."""
        return self._max_positions

    def forward(  # type: ignore[override]
        self,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        type_ids: torch.Tensor | None = None,
        segment_concat_mask: torch.Tensor | None = None,
        cut_features: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the token embeddings `(N, L, d)` of texts.

        # Parameters

        token_ids : `(N, L)`.
        mask : `(N, L)` bool, False at padding.
        type_ids : `(N, L)`, the token types, if the transformer has any.
        segment_concat_mask : the mask of folded texts, as AllenNLP's indexer gives it.
        cut_features : `(N, width of the embedding layer)` bool, True at features that are set to
            zero in every output of the embedding layer (see `declutr.models.cutoff`).

        # Raises

        `ConfigurationError` : the texts are longer than the transformer allows, or `max_length` is
            not that of the token indexer.
        """
        long = self._max_length is not None and token_ids.size(1) > self._max_length
        if long or segment_concat_mask is not None:
            require_same_pieces(self, token_ids, mask, segment_concat_mask)
        if not long:
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
        """Join the segments of each text: `(N * segments, max_length, d)` to `(N, L, d)`."""
        if vectors.device.type == "cpu":
            return self._unfold_long_sequences(vectors, mask, *shape)  # type: ignore[arg-type]
        # AllenNLP's method reads the mask from the device many times. So it is applied on the host
        # to the numbers of the rows, which then select the rows on the device.
        places = to_device(self._unfolded_places(on_host(mask), shape), vectors.device)
        rows = torch.cat([vectors.new_zeros(1, vectors.size(-1)), vectors.flatten(0, 1)])
        return rows.index_select(0, places.flatten()).view(*places.shape, -1)

    def _unfolded_places(self, mask: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Return the row of all segments, from 1, that each token `(N, L)` takes; 0 for zeros."""
        numbers = torch.arange(1, mask.numel() + 1, dtype=torch.float64).view(*mask.shape, 1)
        return self._unfold_long_sequences(numbers, mask, *shape)[..., 0].long()  # type: ignore[arg-type]

    def _encode(
        self,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        type_ids: torch.Tensor | None,
        cut_features: torch.Tensor | None = None,
        run: Run | None = None,
    ) -> torch.Tensor:
        """Run the transformer on texts without padding; by default return token embeddings."""
        limit = self._max_positions
        if limit is not None and token_ids.size(1) > limit:
            raise ConfigurationError(
                f"Got a text of {token_ids.size(1)} tokens, special ones included, but "
                f"'{self.model_name}' takes {limit}. Lower max_span_len (and max_length of the "
                "tokenizer), or use a transformer for longer texts."
            )
        if self._number_of_token_type_embeddings() <= 1:
            type_ids = None
        inputs = token_ids, mask, type_ids, cut_features
        try:
            return self._unpadded(self.encoder, run or self._token_vectors, *inputs)
        except ValueError as error:
            if self.config.model_type != "reformer" or not self.encoder.training:
                raise
            raise ConfigurationError(
                f"'{self.model_name}' cannot be trained: in training, Reformer takes texts of "
                "certain lengths only. Use another transformer."
            ) from error

    def _token_vectors(
        self, of_texts: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if of_texts is not None:  # the cut_features of the texts in this pass
            with features_zeroed(self.encoder, of_texts):
                return self._token_vectors(**inputs)
        if self._scalar_mix is None and self.layers is None:
            return self.encoder(**inputs, return_dict=True).last_hidden_state
        return self._mixed_and_last(**inputs)[0]

    def _mixed_and_last(self, **inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mix of all layers or the mean of two, and the last layer."""
        output = self.encoder(**inputs, return_dict=True, output_hidden_states=True)
        with raised_as(ConfigurationError, ValueError):
            layers = layers_of(output)
        if self.layers is not None:
            return mean_of_layers(layers, self.layers), output.last_hidden_state
        assert self._scalar_mix is not None
        # The first is the embedding layer.
        return self._scalar_mix(list(layers[1:])), output.last_hidden_state


def load_transformer(
    model_name: str, with_head: bool, load_weights: bool, transformer_kwargs: dict[str, Any]
) -> Any:
    """Return a pretrained transformer, in float32 unless `transformer_kwargs` give another dtype.

    # Parameters

    model_name : a name on the Hugging Face hub, or a folder.
    with_head : True loads the language modelling head too.
    load_weights : False builds the architecture without loading weights.
    transformer_kwargs : keyword arguments of `from_pretrained`.

    # Raises

    `ConfigurationError` : the transformer has no language modelling head.
    """
    # Without this argument transformers asks the user on standard input.
    trust = transformer_kwargs.get("trust_remote_code", False)
    kwargs = {**transformer_kwargs, "trust_remote_code": trust}
    config = AutoConfig.from_pretrained(model_name, **kwargs)
    if with_head and type(config) not in AutoModelForMaskedLM._model_mapping:
        raise ConfigurationError(
            f"'{model_name}' ({config.model_type}) has no masked language modelling head. Set "
            "masked_language_modeling to false, or use another transformer."
        )
    kwargs = {"dtype": torch.float32, **kwargs}
    if hasattr(config, "reference_compile"):  # ModernBERT would compile itself on first use
        kwargs["reference_compile"] = False
    auto_class = AutoModelForMaskedLM if with_head else AutoModel
    with LOADING:
        if load_weights:
            model = auto_class.from_pretrained(model_name, **kwargs)
        else:
            dtype = kwargs.pop("dtype")
            config = AutoConfig.from_pretrained(model_name, **kwargs)
            model = auto_class.from_config(config, dtype=dtype, trust_remote_code=trust)
    remove_pooler(model.base_model)
    return model


def recompute_layers(model: Any) -> None:
    """Enable gradient checkpointing: recompute each layer in the backward pass to save memory."""
    # Reentrant checkpointing visits parameters twice, which stops distributed training.
    options = {"use_reentrant": False, "context_fn": partial(_recomputation, model.base_model)}
    enable = getattr(model, "activation_checkpointing_enable", None)  # its name in transformers 5
    (enable or model.gradient_checkpointing_enable)(options)


def _recomputation(
    encoder: torch.nn.Module,
) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return contexts for computing a layer, and for recomputing it outside those of `forward`."""
    first, again = recomputation_contexts()
    products = quick_products(encoder, next(encoder.parameters()).device)
    return first, _Both(products, again, AttendingAsNow(encoder), DroppingAsNow())


class _Both(ExitStack):
    """Several reusable contexts as one, which torch enters once in each backward pass."""

    def __init__(self, *contexts: AbstractContextManager) -> None:
        super().__init__()
        self._contexts = contexts

    def __enter__(self) -> "_Both":
        for context in self._contexts:
            self.enter_context(context)
        return self
