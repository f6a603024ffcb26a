"""What turns texts into ids as a trained archive does: Tokenizer and TokenIndexer "declutr"."""

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
    """Word pieces as a trained archive reads its texts: white space evened out, long ones cut.

    `declutr.inference.encoder.Encoder` does the same, so that a text has the same tokens here and
    there.
    """

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text, special ones included; positions are in the evened-out text."""
        return super().tokenize(normalize_whitespace(text))

    @classmethod
    def from_archive(
        cls,
        archive: str,
        max_length: Optional[int] = None,
        add_special_tokens: bool = True,
        load_weights: bool = True,
    ) -> Tokenizer:
        """The tokenizer of an archive; not of this class if the archive has no transformer.

        # Parameters

        archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
        max_length : cut texts after so many tokens, special ones included; by default after as many
            as in training, and as the transformer takes. More makes sense for an embedder that
            folds texts into segments.
        add_special_tokens : False leaves them to the reader, as those for pairs of sentences want.
        load_weights : for archives, which set it on every part; a tokenizer has none.

        # Raises

        `ConfigurationError` : no archive there; settings for which its tokenizer has no use.
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
    """Any other tokenizer, given text with white space evened out.

    # Parameters

    tokenizer : the tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text."""
        return self._tokenizer.tokenize(normalize_whitespace(text))

    def add_special_tokens(
        self, tokens1: list[Token], tokens2: Optional[list[Token]] = None
    ) -> list[Token]:
        """As the tokenizer inside."""
        return self._tokenizer.add_special_tokens(tokens1, tokens2)

    def num_special_tokens_for_sequence(self) -> int:
        """As the tokenizer inside."""
        return self._tokenizer.num_special_tokens_for_sequence()

    def num_special_tokens_for_pair(self) -> int:
        """As the tokenizer inside."""
        return self._tokenizer.num_special_tokens_for_pair()


@TokenIndexer.register("declutr", constructor="from_archive")
class ArchivedVocabularyIndexer(TokenIndexer):
    """An indexer that looks tokens up in the vocabulary it was trained with.

    The model around it has a vocabulary of its own, in which the same words have other ids (or
    none). Where that has no words of a namespace, it learns those of the archive, so that ids can
    be read back.

    # Parameters

    indexer : the indexer of the archive.
    vocabulary : the vocabulary of the archive.
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
        """The indexer of an archive: one of word pieces, if it has a transformer.

        # Parameters

        archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
        max_length : fold longer texts into segments of so many tokens, special ones included; the
            embedder must have the same `max_length`. By default as in training.
        indexer : the key of the indexer in the archive, if that has several.
        namespace : where the vocabulary of the model around gets the word pieces (for people to
            read); by default as in training.
        load_weights : for archives, which set it on every part; an indexer has none.

        # Raises

        `ConfigurationError` : no archive there, or no such indexer; settings for which it has no
            use.
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
        """Nothing: the vocabulary is what it is."""

    def tokens_to_indices(self, tokens: list[Token], vocabulary: Vocabulary) -> IndexedTokenList:
        """The ids of tokens in the archive's vocabulary."""
        for namespace in self._vocabulary.get_namespaces():
            words = self._vocabulary.get_token_to_index_vocabulary(namespace)
            if vocabulary.get_vocab_size(namespace) <= 2:  # padding and unknown words
                vocabulary.add_tokens_to_namespace(list(words), namespace)
        return self._indexer.tokens_to_indices(tokens, self._vocabulary)

    def indices_to_tokens(
        self, indexed_tokens: IndexedTokenList, vocabulary: Vocabulary
    ) -> list[Token]:
        """The tokens of ids."""
        return self._indexer.indices_to_tokens(indexed_tokens, self._vocabulary)

    def get_empty_token_list(self) -> IndexedTokenList:
        """As the indexer inside."""
        return self._indexer.get_empty_token_list()

    def get_padding_lengths(self, indexed_tokens: IndexedTokenList) -> dict[str, int]:
        """As the indexer inside."""
        return self._indexer.get_padding_lengths(indexed_tokens)

    def as_padded_tensor_dict(
        self, tokens: IndexedTokenList, padding_lengths: dict[str, int]
    ) -> dict[str, torch.Tensor]:
        """As the indexer inside."""
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
