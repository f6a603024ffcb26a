"""A common representation of models to export, whether archives or plain transformers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

from declutr.archives.sentence_transformers_folder import Dense, read_modules
from declutr.export.onnx_model import EmbeddingGraph
from declutr.export.output_place import ExportError
from declutr.export.white_space import tokenizer_with_white_space
from declutr.inference.special_tokens import special_tokens_of
from declutr.inference.text_model import Prompts
from declutr.inference.transformer_model import TransformerModel
from declutr.inference.whitening import Whitening
from declutr.system import LOADING
from declutr.transformer.architectures import (
    has_unused_decoder,
    output_width,
    remove_pooler,
)
from declutr.transformer.pooling import TOKEN_POOLINGS

if TYPE_CHECKING:  # AllenNLP, which takes seconds to import, is needed for archives alone
    from declutr.inference.trained_model import TrainedModel

_WHAT_CAN_BE = (
    'An archive can be exported if its embedder is "mlm" around "pretrained_transformer_mlm" with '
    "last_layer_only, without layers, max_length and sub_module, its pooler is the mean "
    '(`bag_of_embeddings` with averaged, the default), "cls_pooler" or "token_pooling" without an '
    'encoder, and its reader of type "declutr" has tokenizer and indexer of type '
    '"pretrained_transformer".'
)


@dataclass
class Exportable:
    """A transformer with all steps before and after it that make embeddings of texts.

    # Parameters

    transformer : a Hugging Face model, with its language modelling head if it has one.
    tokenizer : the tokenizer as it is exported.
    inputs : the names of the tensors that the transformer takes.
    pooling : one of `declutr.transformer.pooling.POOLINGS` that other tools have as well.
    max_length : the maximum number of tokens of a text, including special tokens, or `None`.
    dense : the linear layers after pooling; a whitening is the last.
    normalizes : whether embeddings are scaled to length 1.
    whitened : whether the last linear layer is a whitening.
    plain_white_space : whether the tokenizer replaces each run of white space by one space, and
        strips white space at the ends.
    prompts : the prompts that `Encoder` and sentence-transformers put before texts.
    similarity : the similarity function by its sentence-transformers name.
    """

    transformer: Any
    tokenizer: Any
    inputs: list[str]
    pooling: str
    max_length: int | None
    dense: list[Dense] = field(default_factory=list)
    normalizes: bool = False
    whitened: bool = False
    plain_white_space: bool = False
    prompts: Prompts = field(default_factory=Prompts)
    similarity: str = "cosine"

    @property
    def has_head(self) -> bool:
        """Whether the transformer is a masked language model."""
        return self.transformer.base_model is not self.transformer

    @property
    def width(self) -> int:
        """The dimension of token embeddings."""
        return output_width(self.transformer.config)

    @property
    def dimension(self) -> int:
        """The dimension of sentence embeddings."""
        return self.dense[-1].linear.out_features if self.dense else self.width

    def keep_first(self, size: int) -> None:
        """Cut embeddings to their first dimensions, in the last linear layer or in one more."""
        if not self.dense:
            identity = torch.nn.Linear(self.width, self.width, bias=False)
            torch.nn.init.eye_(identity.weight)
            self.dense.append(Dense(identity, torch.nn.Identity()))
        last = self.dense[-1]
        whole, biased = last.linear, last.linear.bias is not None
        kept = torch.nn.Linear(whole.in_features, size, bias=biased).requires_grad_(False)
        kept.load_state_dict({name: rows[:size] for name, rows in whole.state_dict().items()})
        self.dense[-1] = Dense(kept, last.activation)

    def graph(self, transformer: torch.nn.Module) -> EmbeddingGraph:
        """Return a module that embeds token ids by `transformer`, which must have no head."""
        return EmbeddingGraph(transformer, self.pooling, self.dense, self.normalizes, self.inputs)


def exportable(
    place: str, model: TrainedModel | TransformerModel, *, normalize: bool, whiten: bool
) -> Exportable:
    """Convert an opened model to its exportable representation.

    # Parameters

    place : the path of the model, for messages and for the weights of a plain transformer.
    model : the model that was opened from there.
    normalize : whether to scale embeddings to length 1 even if the model does not.
    whiten : whether to apply the whitening stored with the model, if there is one.

    # Raises

    `ExportError` : if the model has a module or setting that other tools do not support.
    """
    if isinstance(model, TransformerModel):
        made = _of_transformer(place, model)
    else:
        made = _of_archive(place, model)
    if not model.special_tokens:
        raise ExportError(
            f"The tokenizer of '{place}' adds no special tokens: a blank text would have no tokens "
            "at all, and other tools fail on it. Train with a tokenizer that adds some."
        )
    made.normalizes = normalize or model.normalizes
    if whiten and model.whitening is not None:
        if not isinstance(model.whitening, Whitening):
            raise ExportError(
                f"'{place}' has a flow, which no layer of other tools can hold. Fit a linear "
                "whitening instead (`declutr whiten`), or export it without (--no-whitening)."
            )
        made.dense.append(_as_dense(model.whitening))
        made.whitened = True
    return made


def _of_archive(place: str, model: TrainedModel) -> Exportable:
    from declutr.modules.embedders import MLMTextFieldEmbedder

    field_embedder = model.model._text_field_embedder
    if not isinstance(field_embedder, MLMTextFieldEmbedder):
        raise _refused(place, f"the embedder {type(field_embedder).__name__}")
    if len(model.model.embedders) > 1:
        raise _refused(place, "two encoders, whose embeddings are concatenated (two_encoders)")
    embedder = field_embedder.token_embedder
    if embedder._scalar_mix is not None:
        raise _refused(place, "an embedder with last_layer_only false (a mix of all layers)")
    if embedder.layers is not None:
        raise _refused(place, f"an embedder with the mean of two layers ({embedder.layers})")
    if embedder._max_length is not None:
        raise _refused(place, f"an embedder that folds texts (max_length {embedder._max_length})")
    if has_unused_decoder(embedder.config):
        raise _with_decoder(place)
    if not hasattr(embedder.transformer_model, "save_pretrained"):
        raise _refused(place, "an embedder with a sub_module")
    if model.codec is None:
        raise _refused(place, "a tokenizer and indexer of other types")
    inputs = _inputs(embedder.encoder, model.codec._tokenizer)
    tokenizer = tokenizer_with_white_space(model.codec._tokenizer, inputs, model.max_length)
    return Exportable(
        transformer=embedder.transformer_model.float(),
        tokenizer=tokenizer or model.codec._tokenizer,
        inputs=inputs,
        pooling=_pooling(place, model.model._seq2vec_encoder),
        max_length=model.max_length,
        plain_white_space=tokenizer is not None,
    )


def _of_transformer(place: str, model: TransformerModel) -> Exportable:
    modules = read_modules(place)
    if modules.lower_case or not modules.pools_prompt:
        what = "do_lower_case" if modules.lower_case else "a pooling without the prompt"
        raise ExportError(
            f"'{place}' has {what} in its sentence-transformers settings, which transformers and "
            "onnxruntime would not apply. Use it as it is, with Encoder or sentence-transformers."
        )
    if model.pooling not in TOKEN_POOLINGS:
        raise ExportError(
            f"'{place}' has {model.pooling} pooling; expected one of {', '.join(TOKEN_POOLINGS)}."
        )
    # The model was opened, perhaps with code of its own, which other tools would not run.
    at: dict[str, Any] = {"subfolder": modules.transformer_folder, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(place, **at)
    except ValueError as error:
        raise ExportError(
            f"'{place}' has a transformer of its own code, which other tools would have to trust. "
            "Expected one of the transformers package."
        ) from error
    decodes = getattr(config, "is_encoder_decoder", False)
    if has_unused_decoder(config) or (decodes and not modules.listed):
        raise _with_decoder(place)
    with_head = any("MaskedLM" in name for name in config.architectures or [])
    transformer = _stored_parts(place, with_head, at)
    tokenizer = AutoTokenizer.from_pretrained(place, **at)
    special_tokens_of(tokenizer, place)
    tokenizer.padding_side = "right"  # the pooling of the exported graph expects it
    if model.max_length is not None:
        tokenizer.model_max_length = model.max_length
    return Exportable(
        transformer=transformer,
        tokenizer=tokenizer,
        inputs=_inputs(transformer.base_model, tokenizer),
        pooling=model.pooling,
        max_length=model.max_length,
        dense=list(model.dense),  # type: ignore[arg-type]
        prompts=model.prompts,
        similarity=modules.similarity or "cosine",
    )


def _stored_parts(place: str, with_head: bool, at: dict[str, Any]) -> Any:
    """Return a transformer without a head or a pooler that transformers would draw at random.

    The configurations of many public encoders name a head of which no weights are stored.
    """
    how = {"dtype": torch.float32, "output_loading_info": True}
    with LOADING:
        if with_head:
            transformer, info = AutoModelForMaskedLM.from_pretrained(place, **how, **at)
            if not info["missing_keys"]:
                return transformer
        transformer, info = AutoModel.from_pretrained(place, **how, **at)
    if any("pooler." in key for key in info["missing_keys"]):
        remove_pooler(transformer)
    return transformer


def _pooling(place: str, pooler: Any) -> str:
    from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder

    from declutr.modules.token_pooling import pooling_of

    found = pooling_of(pooler)
    if found is None:
        summed = " that sums" if isinstance(pooler, BagOfEmbeddingsEncoder) else ""
        raise _refused(place, f"the pooler {type(pooler).__name__}{summed}")
    return found


def _inputs(encoder: Any, tokenizer: Any) -> list[str]:
    """Return the names of the inputs; token types are one if the transformer distinguishes any."""
    import inspect

    taken = inspect.signature(encoder.forward).parameters
    inputs = ["input_ids", "attention_mask"]
    types = getattr(encoder.config, "type_vocab_size", 0) or 0
    if "token_type_ids" in tokenizer.model_input_names and "token_type_ids" in taken and types > 1:
        inputs.append("token_type_ids")
    return inputs


def _as_dense(whitening: Whitening) -> Dense:
    """Return a whitening as a linear layer in float32."""
    weight = torch.from_numpy(whitening.matrix.T.copy()).float()  # (k, d)
    linear = torch.nn.Linear(weight.size(1), weight.size(0))
    linear.load_state_dict({"weight": weight, "bias": torch.from_numpy(whitening.bias)})
    return Dense(linear.requires_grad_(False), torch.nn.Identity())


def _with_decoder(place: str) -> ExportError:
    return ExportError(f"'{place}' is an encoder with a decoder; expected an encoder alone.")


def _refused(place: str, what: str) -> ExportError:
    return ExportError(f"'{place}' has {what}, which other tools do not have. {_WHAT_CAN_BE}")
