"""Tokenization of one text, or of a pair of texts, as one sequence."""

import copy

from allennlp.common.checks import ConfigurationError
from allennlp.data import Tokenizer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token

from declutr.data.tokenizers import cut, keeps_end, max_tokens


class JoinedTexts:
    """A converter of one text, or of a pair, to the token sequence that a transformer takes.

    Special tokens are added even if the tokenizer's `add_special_tokens` is false, as AllenNLP's
    readers of pairs require it. A sequence that is longer than the transformer takes, or than the
    tokenizer's `max_length`, is cut at its end, or at its beginning if the tokenizer's
    `truncation_side` is "left". Of a pair the longer text is cut first.

    # Parameters

    tokenizer : any tokenizer for single texts. Pairs need the tokenizer of a transformer, which
        knows the special tokens between two texts.

    # Raises

    `ConfigurationError` : a `max_length` that leaves no room for a token of each text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._content = tokenizer  # tokenizes without special tokens
        self._limit: int | None = None
        self.joins_pairs = isinstance(tokenizer, PretrainedTransformerTokenizer)
        if not isinstance(tokenizer, PretrainedTransformerTokenizer):
            return
        specials = tokenizer.num_special_tokens_for_sequence()
        between = tokenizer.num_special_tokens_for_pair()
        known = [limit for limit in (tokenizer._max_length, max_tokens(tokenizer)) if limit]
        self._limit = min(known) if known else None
        if self._limit is not None and self._limit < between + 2:
            raise ConfigurationError(
                f"The tokenizer's max_length is {self._limit}, but a pair has {between} special "
                f"tokens. Raise max_length to at least {between + 2}."
            )
        self._content = copy.copy(tokenizer)
        self._content._add_special_tokens = False
        # AllenNLP adds the number of special tokens to this limit.
        self._content._max_length = None if self._limit is None else self._limit - specials

    def single(self, text: str) -> list[Token]:
        """Return the tokens of a text, including special tokens."""
        tokens = self._content.tokenize(text)
        if isinstance(self._tokenizer, PretrainedTransformerTokenizer):
            return self._tokenizer.add_special_tokens(tokens)
        # A text without tokens would give tensors of length 0, which embedders refuse.
        return tokens or [Token("")]

    def pair(self, first: str, second: str) -> list[Token]:
        """Return the tokens of two texts, including special tokens around and between them.

        Needs the tokenizer of a transformer; `joins_pairs` says whether there is one.
        """
        assert isinstance(self._tokenizer, PretrainedTransformerTokenizer)
        one, other = self._content.tokenize(first), self._content.tokenize(second)
        if self._limit is not None:
            room = self._limit - self._tokenizer.num_special_tokens_for_pair()
            kept = longest_first(len(one), len(other), room)
            end = keeps_end(self._tokenizer)
            one, other = cut(one, kept[0], end), cut(other, kept[1], end)
        return self._tokenizer.add_special_tokens(one, other)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths to cut two texts to so that they fit together, the longer one first.

    # Parameters

    first, second : the numbers of tokens of the texts.
    room : the number of tokens that they may have together.

    >>> longest_first(10, 3, room=8)
    (5, 3)
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if second <= half:
        return room - second, second
    if first <= room - half:
        return first, room - first
    return room - half, half
