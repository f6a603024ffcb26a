"""Modules of trained archives: TokenEmbedder, TextFieldEmbedder, Seq2VecEncoder "declutr"."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder, TokenEmbedder

from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.pretrained_parts.opened import OpenedModel, open_model


class TrainedPart(torch.nn.Module):
    """A module around one that was trained, which it trains further or keeps as it is.

    What is frozen gets no gradients and stays in evaluation mode, so that its vectors are the same
    in training as afterwards.
    """

    train_parameters = True

    def _set_trainable(self, train_parameters: bool) -> None:
        self.train_parameters = train_parameters
        self.requires_grad_(train_parameters)
        self.train()

    def train(self, mode: bool = True) -> Any:
        """Set training mode, unless frozen."""
        return super().train(mode and self.train_parameters)


@TokenEmbedder.register("declutr")
class TrainedTokenEmbedder(TrainedPart, TokenEmbedder):
    """Token vectors of the transformer of a trained archive, without its language modelling head.

    With the Seq2VecEncoder "declutr" of the same archive, the embedding that it was trained for.

    # Parameters

    archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
    train_parameters : train the transformer further. By default it is frozen, and without dropout.
    max_length : fold longer texts into segments of so many tokens; the indexer must have the same
        `max_length`. By default as in training (not at all, as a rule).
    gradient_checkpointing : less memory for more time; by default as in training.
    unpadding : how padding is kept from being computed on, see `declutr.transformer.unpadding`; by
        default as in training.
    load_weights : False builds the architecture only; archives do so, as they hold the weights.
    vocab : of the model around, to see that texts were indexed for this transformer.

    # Raises

    `ConfigurationError` : no archive there, or one without a transformer; texts that were indexed
        in another way.
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
        """Return the width d of token vectors."""
        return self.transformer.get_output_dim()

    def forward(  # type: ignore[override]
        self,
        token_ids: Optional[torch.Tensor] = None,
        mask: Optional[torch.Tensor] = None,
        type_ids: Optional[torch.Tensor] = None,
        segment_concat_mask: Optional[torch.Tensor] = None,
        **others: Any,
    ) -> torch.Tensor:
        """Return vectors `(N, L, d)` of `token_ids` `(N, L)`; padding where `mask` is False."""
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
    """Token vectors as a trained archive makes them, by a transformer or anything else.

    With the Seq2VecEncoder "declutr" of the same archive, the embedding that it was trained for.
    The dataset reader needs the token indexers of the archive, under the same names ("tokens", as a
    rule).

    # Parameters

    archive, train_parameters, load_weights, vocab : as for `TrainedTokenEmbedder`.

    # Raises

    `ConfigurationError` : no archive there; texts that were indexed in another way.
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
        """Return the width d of token vectors."""
        return self.embedder.get_output_dim()

    def forward(
        self, text_field_input: TextFieldTensors, num_wrapping_dims: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Return token vectors `(N, L, d)` of texts `(N, L)`."""
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
    """Pools token vectors as a trained archive does: their mean, or what its recipe said.

    The embedding is that of `declutr.inference.encoder.Encoder` with its defaults. Whitening that
    is stored with an archive is not applied, nor are embeddings scaled to length 1: a layer that is
    trained on top learns such maps itself.

    # Parameters

    archive, load_weights : as for `TrainedTokenEmbedder`.
    train_parameters : train it further, if it has parameters. By default it is frozen.
    """

    def __init__(
        self, archive: str, train_parameters: bool = False, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.pooler: Seq2VecEncoder = open_model(archive).take("pooler", load_weights=load_weights)
        self._set_trainable(train_parameters)

    def get_input_dim(self) -> int:
        """Return the width of token vectors."""
        return self.pooler.get_input_dim()

    def get_output_dim(self) -> int:
        """Return the width of the embedding."""
        return self.pooler.get_output_dim()

    def forward(self, tokens: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return embeddings `(N, d)`, float32, of vectors `(N, L, d)`; `mask` is `(N, L)`."""
        return self.pooler(tokens.float(), mask=mask)


class VocabularyCheck:
    """Whether the ids of a batch mean what they meant in training. Asked once.

    # Parameters

    opened : the archive.
    vocab : of the model around; indexers enter their tokens there when they index first. `None`
        checks nothing.
    """

    def __init__(self, opened: OpenedModel, vocab: Optional[Vocabulary]) -> None:
        self._place = opened.place
        # Read now: what an archive carries is gone when it has been loaded.
        self._known = {} if vocab is None else opened.known_words()
        self._vocab = vocab
        self.advice = (
            "Give your dataset reader the tokenizer and a token indexer "
            f'{{"type": "declutr", "archive": "{opened.place}"}}.'
        )
        """What to do about text that was not tokenised as the archive wants it."""

    def __call__(self) -> None:
        """Raise `ConfigurationError` if they do not."""
        vocab, known = self._vocab, self._known
        self._vocab, self._known = None, {}
        for namespace, expected in known.items():
            if vocab is None or namespace not in vocab.get_namespaces():
                continue  # not known: texts were indexed in another process
            words = vocab.get_token_to_index_vocabulary(namespace)
            if words != expected:
                raise ConfigurationError(
                    f"The namespace '{namespace}' has {len(words)} tokens that are not the "
                    f"{len(expected)} of '{self._place}': the text was indexed for another model. "
                    f"{self.advice} Two archives in one model need namespaces of their own: set "
                    "'namespace' on their indexers."
                )


def require_same_folding(embedder: TokenEmbedder, tensors: dict[str, Any]) -> None:
    """Raise `ConfigurationError` if indexer and embedder disagree about segments of long texts."""
    if not isinstance(embedder, PretrainedTransformerEmbedderMLM):
        return
    folded = tensors.get("segment_concat_mask") is not None
    if folded != (embedder._max_length is not None):
        raise ConfigurationError(
            f"The token indexer {'folds' if folded else 'does not fold'} long texts into segments, "
            f"but the embedder's max_length is {embedder._max_length}. Set max_length of both to "
            "the same number, or of neither (max_length of the tokenizer cuts texts off)."
        )
