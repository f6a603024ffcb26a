"""Repairs of the AllenNLP modules that load pretrained transformers and their tokenizers.

Each function takes a module right after its body ran. Where it depends on a release whether the
repair is needed, the function tests that, and returns what it found.
"""

import importlib
import inspect
import logging
import os
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

logger = logging.getLogger(__name__)

SYSTEM = "declutr.system"  # of a later room

_COMPARED = 8  # texts of each indexer whose tokens are compared with its vocabulary


def tokenizer_arguments(module: ModuleType) -> None:
    """Drop `add_special_tokens` from the arguments of tokenizers, and report what is missing.

    AllenNLP passes this argument, which never had an effect; newer tokenizers refuse it because it
    is the name of one of their methods.

    Code that comes with a tokenizer is not run unless a recipe sets `trust_remote_code`. If the
    argument were left unset, transformers would ask on standard input.

    Can be removed when AllenNLP no longer passes `add_special_tokens`.
    """

    @replaces(module)
    def get_tokenizer(original: Any, model_name: str, **kwargs: Any) -> Any:
        kwargs.pop("add_special_tokens", None)
        kwargs.setdefault("trust_remote_code", False)
        path = os.path.expanduser(str(model_name))
        if path.startswith((".", os.sep)) and not os.path.isdir(path):
            raise FileNotFoundError(
                f"There is no transformer at '{model_name}'. Expected a folder with a checkpoint, "
                "or a name on the Hugging Face hub. Recipes take it from TRANSFORMER_MODEL."
            )
        if path != str(model_name) and os.path.isdir(path):
            raise FileNotFoundError(
                f"The transformer '{model_name}' begins with ~, which transformers does not take "
                f"for the home folder. Write '{path}'."
            )
        try:
            return original(model_name, **kwargs)
        except OSError as error:  # transformers names neither the model nor where it was chosen
            raise OSError(
                f"The transformer '{model_name}' cannot be loaded: {str(error).splitlines()[0]} "
                "Expected a folder with a checkpoint, or a name on the Hugging Face hub, in its "
                "cache here or within reach. Set TRANSFORMER_MODEL to such a one."
            ) from error


def float32_checkpoints(module: ModuleType) -> bool:
    """Load pretrained transformers in float32 by default, and let modules be re-initialized.

    transformers loads (since 5) and builds (since 4.56) a model in the dtype that its configuration
    names. It also marks loaded modules as initialized, which makes AllenNLP's `reinit_modules` do
    nothing. One thread after another loads.

    Code that comes with a pretrained transformer is not run unless a recipe sets
    `trust_remote_code`, as for tokenizers.

    Can be removed when AllenNLP passes a dtype and re-initializes marked modules.
    """
    import torch
    import transformers

    if not hasattr(transformers.PretrainedConfig(), "dtype"):
        return False

    def with_defaults(kwargs: dict[str, Any], trust: bool) -> dict[str, Any]:
        dtype = {} if "torch_dtype" in kwargs else {"dtype": torch.float32}
        return {"trust_remote_code": trust, **dtype, **kwargs}

    class AutoModel(transformers.AutoModel):
        @classmethod
        def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
            kwargs = with_defaults(kwargs, trust=False)
            with importlib.import_module(SYSTEM).LOADING:
                model = transformers.AutoModel.from_pretrained(*args, **kwargs)
            _clear_marks(model)
            return model

        @classmethod
        def from_config(cls, config: Any, **kwargs: Any) -> Any:
            # AllenNLP passes no `trust_remote_code` here. A configuration class from remote code
            # exists only if the recipe trusted that code.
            theirs = type(config).__module__.partition(".")[0] == "transformers_modules"
            with importlib.import_module(SYSTEM).LOADING:
                return transformers.AutoModel.from_config(config, **with_defaults(kwargs, theirs))

    class AutoConfig(transformers.AutoConfig):
        @classmethod
        def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
            kwargs.setdefault("trust_remote_code", False)
            return transformers.AutoConfig.from_pretrained(*args, **kwargs)

    module.AutoModel, module.AutoConfig = AutoModel, AutoConfig  # type: ignore[attr-defined]
    return True


def _clear_marks(model: Any) -> None:
    for marked in [*model.modules(), *model.parameters(), *model.buffers()]:
        if "_is_hf_initialized" in vars(marked):
            del marked._is_hf_initialized


def collator_arguments(module: ModuleType) -> bool:
    """Pass `mlm_probability` to the data collator by name.

    AllenNLP passes it as the third argument, which is `whole_word_mask` now. Can be removed when
    AllenNLP passes it by name.
    """
    collator = module.DataCollatorForLanguageModeling
    names = list(inspect.signature(collator).parameters)
    if names[:3] == ["tokenizer", "mlm", "mlm_probability"]:
        return False

    def build(tokenizer: Any, mlm: bool, mlm_probability: float) -> Any:
        return collator(tokenizer=tokenizer, mlm=mlm, mlm_probability=mlm_probability)

    module.DataCollatorForLanguageModeling = build  # type: ignore[attr-defined]
    return True


def gradient_checkpointing(module: ModuleType) -> None:
    """Make the embedder's `gradient_checkpointing` take effect.

    AllenNLP writes the option into the configuration of a model that is already built, where
    transformers has not looked since 4.11, so the option was accepted and did nothing.

    Can be removed when AllenNLP calls `gradient_checkpointing_enable`.
    """

    @replaces(module.PretrainedTransformerEmbedder)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        arguments = inspect.signature(original).bind(self, *args, **kwargs).arguments
        if arguments.get("gradient_checkpointing"):
            _checkpoint_activations(self.transformer_model)


def _checkpoint_activations(model: Any) -> None:
    kwargs = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # its name in transformers 5
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=kwargs)
    elif hasattr(model, "gradient_checkpointing_enable"):  # a `sub_module` may have neither
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)


def empty_texts(module: ModuleType) -> None:
    """Keep the special tokens of an empty text where the indexer has a `max_length`.

    AllenNLP adds them to each piece of a text, of which an empty one has none: its token ids were
    padding, under a mask of real tokens. Can be removed when it makes one piece of an empty text.
    """

    @replaces(module.PretrainedTransformerIndexer)
    def _postprocess_output(original: Any, self: Any, output: Any) -> Any:
        length = len(output["token_ids"])
        added = self._num_added_start_tokens + self._num_added_end_tokens
        if self._max_length is None or length == 0 or length != added:
            return original(self, output)
        return {**output, "segment_concat_mask": [True] * length}


def ids_of_the_tokenizer(module: ModuleType) -> None:
    """Warn if an indexer passes on the token ids of the tokenizer of another transformer.

    AllenNLP takes the id that a token has. So with a tokenizer and an indexer of transformers that
    have different vocabularies, the model embedded other words. Can be removed when AllenNLP
    compares the two.
    """

    @replaces(module.PretrainedTransformerIndexer)
    def tokens_to_indices(original: Any, self: Any, tokens: Any, vocabulary: Any) -> Any:
        if (compared := getattr(self, "_texts_compared", 0)) < _COMPARED:
            self._texts_compared = compared + 1
            known = [token for token in tokens if token.text_id is not None and token.text]
            words = self._tokenizer.convert_ids_to_tokens([token.text_id for token in known])
            for token, word in zip(known, words, strict=True):
                if token.text != word:
                    self._texts_compared = _COMPARED
                    logger.warning(
                        f"The token '{token.text}' has the id {token.text_id}, which is '{word}' "
                        f"in the vocabulary of '{self._allennlp_tokenizer._model_name}': the "
                        "tokenizer is that of another transformer than the token indexer. Name the "
                        "same one for both."
                    )
                    break
        return original(self, tokens, vocabulary)


def same_pieces(module: ModuleType) -> None:
    """Refuse an embedder whose `max_length` is not that of the token indexer.

    AllenNLP joined the pieces of a text as if they had the embedder's length, so that embeddings
    were those of other tokens, and with a `max_length` of the embedder alone there was an
    AssertionError. Can be removed when AllenNLP compares the two.
    """

    @replaces(module.PretrainedTransformerEmbedder)
    def forward(
        original: Any,
        self: Any,
        token_ids: Any,
        mask: Any,
        type_ids: Any = None,
        segment_concat_mask: Any = None,
    ) -> Any:
        require_same_pieces(self, token_ids, mask, segment_concat_mask)
        return original(self, token_ids, mask, type_ids, segment_concat_mask)


def require_same_pieces(embedder: Any, token_ids: Any, mask: Any, pieces: Any) -> None:
    """Raise if an embedder cuts texts into other pieces than the token indexer did.

    # Parameters

    embedder : AllenNLP's embedder "pretrained_transformer", or one of the same attributes.
    token_ids : `(N, L)`, those of all pieces of a text, one after another.
    mask : `(N, M)` bool, that of the text as a whole.
    pieces : `(N, L)` bool, that of `token_ids`; `None` of an indexer without `max_length`.

    # Raises

    `ConfigurationError` : the two have not the same `max_length`.
    """
    import torch
    from allennlp.common.checks import ConfigurationError

    size = embedder._max_length
    if pieces is None:
        if size is None:
            return
        indexer = "has none"
    else:

        def whole(lengths: Any) -> Any:
            joints = 0 if size is None else (lengths.clamp(min=1) - 1) // size
            return lengths - joints * embedder._num_added_tokens

        # Lengths of rows wait for a GPU. Those of the batch tell, unless it is padded further.
        if whole(torch.tensor(token_ids.size(1))) == mask.size(1):
            return
        if (whole(pieces.sum(1)) == mask.sum(1)).all():
            return
        indexer = "has another one"
    raise ConfigurationError(
        f"The embedder of a transformer has max_length {'null' if size is None else size}, and the "
        f"token indexer {indexer}, so that embeddings would be those of other tokens. Set the same "
        "one in both, or in neither."
    )


def empty_beside_long(module: ModuleType) -> None:
    """Let the embedder put the pieces of texts together where one of the batch is empty.

    AllenNLP expects every text to have a token besides the special ones. Can be removed together
    with `empty_texts`.
    """

    @replaces(module.PretrainedTransformerEmbedder)
    def _unfold_long_sequences(
        original: Any, self: Any, embeddings: Any, mask: Any, batch_size: int, length: int
    ) -> Any:
        added = self._num_added_tokens
        longer = mask.reshape(batch_size, -1).clone()
        empty = longer.sum(-1) == added
        longer[empty, added] = True
        found = original(self, embeddings, longer.reshape(mask.shape), batch_size, length)
        pieces = embeddings.reshape(batch_size, -1, embeddings.size(-1))
        found[empty, :added] = pieces[empty, :added]
        return found
