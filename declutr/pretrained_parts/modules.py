"""The TokenEmbedder, TextFieldEmbedder and Seq2VecEncoder "declutr", from trained archives."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder, TokenEmbedder

from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.pretrained_parts.opened import OpenedModel, open_model


class TrainedPart(torch.nn.Module):
    """A base class of modules that wrap a trained module, which is trained further or frozen.

    A frozen module gets no gradients and stays in evaluation mode, so that its output is the same
    during training and afterwards.
    """

    train_parameters = True
    """Whether the trained module is trained further."""

    def _set_trainable(self, train_parameters: bool) -> None:
        self.train_parameters = train_parameters
        self.requires_grad_(train_parameters)
        self.train()

    def train(self, mode: bool = True) -> Any:
        """Set training mode, or evaluation mode if the module is frozen."""
        return super().train(mode and self.train_parameters)


@TokenEmbedder.register("declutr")
class TrainedTokenEmbedder(TrainedPart, TokenEmbedder):
    """A token embedder with the transformer of a trained archive, without language modelling head.

    Followed by the Seq2VecEncoder "declutr" of the same archive, it gives the sentence embedding
    that the archive was trained for.

    # Parameters

    archive : a serialization directory, a `model.tar.gz` or a URL of one, or an exported folder.
    train_parameters : train the transformer further; by default it is frozen, without dropout.
    max_length : fold longer texts into segments of this many tokens; the indexer must have the same
        `max_length`. By default as in training, which usually does not fold.
    gradient_checkpointing : whether to trade time for memory; by default as in training.
    unpadding : how computing on padding is avoided, see `declutr.transformer.unpadding`; by default
        as in training.
    load_weights : False builds the architecture only. Archives of models with this part set it,
        since they hold the weights.
    vocab : the vocabulary of the surrounding model, which is checked against the archive's; `None`
        checks nothing.

    # Raises

    `ConfigurationError` : there is no archive at that place, or its embedder is not one
        transformer; in `forward`, texts were indexed in another way than in training.
    """

    def __init__(
        self,
        archive: str,
        train_parameters: bool = False,
        max_length: Optional[int] = None,
        gradient_checkpointing: Optional[bool] = None,
        unpadding: Optional[str] = None,
        load_weights: bool = True,
        vocab: Optional[Vocabulary] = None,
    ) -> None:
        super().__init__()
        given = {
            "max_length": max_length,
            "gradient_checkpointing": gradient_checkpointing,
            "unpadding": unpadding,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        opened = open_model(archive)
        embedder = opened.take("embedder", load_weights=load_weights, **changes)
        inside = list(getattr(embedder, "_token_embedders", {}).values())
        if len(inside) != 1 or not isinstance(inside[0], PretrainedTransformerEmbedderMLM):
            raise ConfigurationError(
                f"The embedder of '{archive}' is not one transformer but "
                f"{[type(part).__name__ for part in inside] or type(embedder).__name__}. Take it "
                'as a whole: "text_field_embedder": {"type": "declutr", …}.'
            )
        self.transformer = inside[0]
        self._check_vocabulary = VocabularyCheck(opened, vocab)
        self._set_trainable(train_parameters)

    def get_output_dim(self) -> int:
        """Return the width d of token embeddings."""
        return self.transformer.get_output_dim()

    def forward(  # type: ignore[override]
        self,
        token_ids: Optional[torch.Tensor] = None,
        mask: Optional[torch.Tensor] = None,
        type_ids: Optional[torch.Tensor] = None,
        segment_concat_mask: Optional[torch.Tensor] = None,
        **others: Any,
    ) -> torch.Tensor:
        """Return the token embeddings `(N, L, d)` of N texts.

        # Parameters

        token_ids : the ids `(N, L)`.
        mask : False at padding, `(N, L)`.
        type_ids : the segment ids `(N, L)`; by default those of the first segment.
        segment_concat_mask : the mask of segments that are joined again, from an indexer with a
            `max_length`.
        others : tensors of other kinds of indexers, which are refused.

        # Raises

        `ConfigurationError` : the texts were not indexed as in training.
        """
        if token_ids is None or mask is None or others:
            got = {"token_ids": token_ids, "mask": mask, **others}
            raise ConfigurationError(
                "Expected token_ids and a mask, as an indexer of word pieces makes them, got "
                f"{[key for key, value in got.items() if value is not None]}. "
                f"{self._check_vocabulary.advice}"
            )
        self._check_vocabulary()
        require_same_folding(self.transformer, {"segment_concat_mask": segment_concat_mask})
        return self.transformer(token_ids, mask, type_ids, segment_concat_mask)


@TextFieldEmbedder.register("declutr")
class TrainedTextFieldEmbedder(TrainedPart, TextFieldEmbedder):
    """A text field embedder from a trained archive, with a transformer or any other embedder.

    Followed by the Seq2VecEncoder "declutr" of the same archive, it gives the sentence embedding
    that the archive was trained for. The dataset reader needs the token indexers of the archive,
    under the same names (usually "tokens").

    # Parameters

    archive, train_parameters, load_weights, vocab : as for `TrainedTokenEmbedder`.

    # Raises

    `ConfigurationError` : there is no archive at that place; in `forward`, texts were indexed in
        another way than in training.
    """

    def __init__(
        self,
        archive: str,
        train_parameters: bool = False,
        load_weights: bool = True,
        vocab: Optional[Vocabulary] = None,
    ) -> None:
        super().__init__()
        opened = open_model(archive)
        self.embedder: TextFieldEmbedder = opened.take("embedder", load_weights=load_weights)
        self._check_vocabulary = VocabularyCheck(opened, vocab)
        self._set_trainable(train_parameters)

    def get_output_dim(self) -> int:
        """Return the width d of token embeddings."""
        return self.embedder.get_output_dim()

    def forward(
        self, text_field_input: TextFieldTensors, num_wrapping_dims: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Return the token embeddings `(N, L, d)` of N texts of L tokens.

        # Raises

        `ConfigurationError` : the texts were not indexed as in training.
        """
        inside = getattr(self.embedder, "_token_embedders", {})
        if inside and set(inside) != set(text_field_input):
            raise ConfigurationError(
                f"Texts come with the token indexers {sorted(text_field_input)}, expected "
                f"{sorted(inside)} as in training. {self._check_vocabulary.advice}"
            )
        self._check_vocabulary()
        for name, embedder in inside.items():
            require_same_folding(embedder, text_field_input[name])
        return self.embedder(text_field_input, num_wrapping_dims=num_wrapping_dims, **kwargs)


@Seq2VecEncoder.register("declutr")
class TrainedPooler(TrainedPart, Seq2VecEncoder):
    """A pooler from a trained archive, from token embeddings to a sentence embedding.

    The sentence embedding equals that of `declutr.inference.encoder.Encoder` without whitening.
    Whitening that is stored with an archive is not applied, nor are embeddings scaled to length 1:
    a layer that is trained on top learns such maps itself.

    # Parameters

    archive, load_weights : as for `TrainedTokenEmbedder`.
    train_parameters : train the pooler further, if it has parameters; by default it is frozen.
    """

    def __init__(
        self, archive: str, train_parameters: bool = False, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.pooler: Seq2VecEncoder = open_model(archive).take("pooler", load_weights=load_weights)
        self._set_trainable(train_parameters)

    def get_input_dim(self) -> int:
        """Return the width of token embeddings."""
        return self.pooler.get_input_dim()

    def get_output_dim(self) -> int:
        """Return the width d of sentence embeddings."""
        return self.pooler.get_output_dim()

    def forward(self, tokens: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return sentence embeddings `(N, d)`, float32.

        # Parameters

        tokens : the token embeddings `(N, L, d)`.
        mask : False at padding, `(N, L)`; by default nothing is padding.
        """
        return self.pooler(tokens.float(), mask=mask)


class VocabularyCheck:
    """A check that token ids mean the same as in training, made at the first batch.

    # Parameters

    opened : the archive.
    vocab : the vocabulary of the surrounding model, into which indexers enter their tokens when
        they index for the first time; `None` checks nothing.
    """

    def __init__(self, opened: OpenedModel, vocab: Optional[Vocabulary]) -> None:
        self._place = opened.place
        # Read now: an archive that is carried in another one is removed once the other is loaded.
        self._known = {} if vocab is None else opened.known_words()
        self._vocab = vocab
        self.advice = (
            "Give your dataset reader the tokenizer and a token indexer "
            f'{{"type": "declutr", "archive": "{opened.place}"}}.'
        )
        """A sentence for error messages: what to do if text was not indexed for the archive."""

    def __call__(self) -> None:
        """Raise `ConfigurationError` if token ids mean something else than in training."""
        vocab, known = self._vocab, self._known
        self._vocab, self._known = None, {}
        for namespace, expected in known.items():
            if vocab is None or namespace not in vocab.get_namespaces():
                continue  # texts were indexed in another process, so the ids cannot be checked here
            words = vocab.get_token_to_index_vocabulary(namespace)
            if words != expected:
                raise ConfigurationError(
                    f"The namespace '{namespace}' has {len(words)} tokens that are not the "
                    f"{len(expected)} of '{self._place}': the text was indexed for another model. "
                    f"{self.advice} Two archives in one model need namespaces of their own: set "
                    "'namespace' on their indexers."
                )


def require_same_folding(embedder: TokenEmbedder, tensors: dict[str, Any]) -> None:
    """Raise `ConfigurationError` if only one of indexer and embedder folds texts into segments.

    # Parameters

    embedder : a token embedder; any other than a transformer passes.
    tensors : the tensors that the indexer made.
    """
    if not isinstance(embedder, PretrainedTransformerEmbedderMLM):
        return
    folded = tensors.get("segment_concat_mask") is not None
    if folded != (embedder._max_length is not None):
        raise ConfigurationError(
            f"The token indexer {'folds' if folded else 'does not fold'} long texts into segments, "
            f"but the embedder's max_length is {embedder._max_length}. Set max_length of both to "
            "the same number, or of neither (max_length of the tokenizer cuts texts off)."
        )
