"""The Tokenizer and TokenIndexer "declutr", which turn texts into ids as a trained archive does."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TokenIndexer, Vocabulary
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.token_indexers.token_indexer import IndexedTokenList
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token, Tokenizer

from declutr.corpus.documents import normalize_whitespace
from declutr.data.tokenizers import max_tokens
from declutr.pretrained_parts.opened import OpenedModel, open_model


@Tokenizer.register("declutr", constructor="from_archive")
class TrainedTokenizer(PretrainedTransformerTokenizer):
    """A tokenizer into word pieces that normalizes white space and cuts texts as in training.

    A text has the same tokens as in `declutr.inference.encoder.Encoder`.
    """

    def tokenize(self, text: str) -> list[Token]:
        """Return the tokens of a text, special tokens included.

        Character positions refer to the text with normalized white space.
        """
        return super().tokenize(normalize_whitespace(text))

    @classmethod
    def from_archive(
        cls,
        archive: str,
        max_length: Optional[int] = None,
        add_special_tokens: bool = True,
        load_weights: bool = True,
    ) -> Tokenizer:
        """Return the tokenizer of an archive.

        If the archive has no transformer, it is a `NormalisingTokenizer`.

        # Parameters

        archive : a serialization directory, a `model.tar.gz` or a URL of one, or an exported
            folder.
        max_length : cut texts after this many tokens, special ones included; by default as many as
            in training, or as the transformer takes if that is fewer. More are useful with an
            embedder that folds texts into segments.
        add_special_tokens : False leaves special tokens to the dataset reader, as readers of
            sentence pairs expect.
        load_weights : ignored, since a tokenizer has no weights; archives set it on every part.

        # Raises

        `ConfigurationError` : there is no archive at that place, or its tokenizer does not have one
            of the settings.
        """
        opened = open_model(archive)
        trained = opened.reader._tokenizer
        if not isinstance(trained, PretrainedTransformerTokenizer):
            if max_length is not None or not add_special_tokens:
                raise ConfigurationError(
                    f"The tokenizer of '{archive}' is a {type(trained).__name__}: it has neither "
                    "max_length nor special tokens. Leave max_length and add_special_tokens out."
                )
            return NormalisingTokenizer(trained)
        limits = [trained._max_length, max_tokens(trained)]
        return cls(
            trained._model_name,
            add_special_tokens=add_special_tokens,
            max_length=max_length or min((n for n in limits if n is not None), default=None),
            tokenizer_kwargs=trained._tokenizer_kwargs,
            verification_tokens=opened.config["dataset_reader"]["tokenizer"].get(
                "verification_tokens"
            ),
        )


class NormalisingTokenizer(Tokenizer):
    """A tokenizer that normalizes white space before another tokenizer splits the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def tokenize(self, text: str) -> list[Token]:
        """Return the tokens of a text with normalized white space."""
        return self._tokenizer.tokenize(normalize_whitespace(text))

    def add_special_tokens(
        self, tokens1: list[Token], tokens2: Optional[list[Token]] = None
    ) -> list[Token]:
        """Add special tokens to one or two texts, as the other tokenizer does."""
        return self._tokenizer.add_special_tokens(tokens1, tokens2)

    def num_special_tokens_for_sequence(self) -> int:
        """Return the number of special tokens that `add_special_tokens` adds to one text."""
        return self._tokenizer.num_special_tokens_for_sequence()

    def num_special_tokens_for_pair(self) -> int:
        """Return the number of special tokens that `add_special_tokens` adds to two texts."""
        return self._tokenizer.num_special_tokens_for_pair()


@TokenIndexer.register("declutr", constructor="from_archive")
class ArchivedVocabularyIndexer(TokenIndexer):
    """A token indexer that looks tokens up in the vocabulary that it was trained with.

    In the vocabulary of the surrounding model, the same tokens have other ids or none. If that
    vocabulary has no tokens in a namespace of the archive, the archive's tokens are added to it, so
    that ids can be turned back into tokens.
    """

    def __init__(self, indexer: TokenIndexer, vocabulary: Vocabulary) -> None:
        super().__init__(indexer._token_min_padding_length)
        self._indexer = indexer
        self._vocabulary = vocabulary

    @classmethod
    def from_archive(
        cls,
        archive: str,
        max_length: Optional[int] = None,
        indexer: Optional[str] = None,
        namespace: Optional[str] = None,
        load_weights: bool = True,
    ) -> TokenIndexer:
        """Return the token indexer of an archive.

        If the archive has a transformer, it is AllenNLP's `PretrainedTransformerIndexer`.

        # Parameters

        archive : a serialization directory, a `model.tar.gz` or a URL of one, or an exported
            folder.
        max_length : fold longer texts into segments of this many tokens, special ones included; the
            embedder must have the same `max_length`. By default as in training.
        indexer : the key of the token indexer in the archive; needed if there are several.
        namespace : the namespace of the surrounding model's vocabulary that the word pieces are
            added to, for people to read; by default as in training.
        load_weights : ignored, since an indexer has no weights; archives set it on every part.

        # Raises

        `ConfigurationError` : there is no archive at that place, it has no such indexer, or the
            indexer does not have one of the settings.
        """
        opened = open_model(archive)
        trained = _chosen(opened, indexer)
        if not isinstance(trained, PretrainedTransformerIndexer):
            if max_length is not None or namespace is not None:
                raise ConfigurationError(
                    f"The indexer of '{archive}' is a {type(trained).__name__}, not one of word "
                    "pieces. Leave max_length and namespace out."
                )
            return cls(trained, opened.vocabulary)
        return PretrainedTransformerIndexer(
            trained._allennlp_tokenizer._model_name,
            namespace=namespace or trained._namespace,
            max_length=trained._max_length if max_length is None else max_length,
            tokenizer_kwargs=trained._allennlp_tokenizer._tokenizer_kwargs,
            token_min_padding_length=trained._token_min_padding_length,
        )

    def count_vocab_items(self, token: Token, counter: dict[str, dict[str, int]]) -> None:
        """Count nothing, since the vocabulary of the archive is fixed."""

    def tokens_to_indices(self, tokens: list[Token], vocabulary: Vocabulary) -> IndexedTokenList:
        """Return the ids of tokens in the archive's vocabulary.

        # Parameters

        tokens : the tokens of a text.
        vocabulary : the surrounding model's vocabulary; the archive's tokens are added to empty
            namespaces of it.
        """
        for namespace in self._vocabulary.get_namespaces():
            words = self._vocabulary.get_token_to_index_vocabulary(namespace)
            if vocabulary.get_vocab_size(namespace) <= 2:  # only padding and the unknown token
                vocabulary.add_tokens_to_namespace(list(words), namespace)
        return self._indexer.tokens_to_indices(tokens, self._vocabulary)

    def indices_to_tokens(
        self, indexed_tokens: IndexedTokenList, vocabulary: Vocabulary
    ) -> list[Token]:
        """Return the tokens that ids stand for in the archive's vocabulary."""
        return self._indexer.indices_to_tokens(indexed_tokens, self._vocabulary)

    def get_empty_token_list(self) -> IndexedTokenList:
        """Return the indices of a text without tokens."""
        return self._indexer.get_empty_token_list()

    def get_padding_lengths(self, indexed_tokens: IndexedTokenList) -> dict[str, int]:
        """Return the length that each tensor of a text must be padded to at least."""
        return self._indexer.get_padding_lengths(indexed_tokens)

    def as_padded_tensor_dict(
        self, tokens: IndexedTokenList, padding_lengths: dict[str, int]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of a text, padded to the given lengths."""
        return self._indexer.as_padded_tensor_dict(tokens, padding_lengths)


def _chosen(opened: OpenedModel, name: Optional[str]) -> Any:
    indexers = opened.reader._token_indexers
    if name is None and len(indexers) == 1:
        return next(iter(indexers.values()))
    if name not in indexers:
        raise ConfigurationError(
            f"'{opened.place}' has the token indexers {', '.join(sorted(indexers))}; "
            f"{'none was chosen' if name is None else f'there is no {name!r}'}. Set 'indexer' to "
            "one of them."
        )
    return indexers[name]
