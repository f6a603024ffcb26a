"""Codecs that turn documents into arrays, and spans of those arrays into fields.

`WordPieceCodec` stores the token ids of a pretrained transformer, so nothing is decoded and
tokenised again. `TokenCodec` serves every other AllenNLP tokenizer and indexer: it stores UTF-8
bytes, and tokenises a document when its spans are drawn.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token

from declutr.corpus import without_surrogates
from declutr.data import tokenizers
from declutr.data.collation import ContentIds, Frame, PackedSpans

if TYPE_CHECKING:  # Packed batches and the Encoder need no fields, so do not import them.
    from declutr.data.fields import SpansField, TokenIdsField


_TRIES = 5  # How often a document is tokenised to see whether its tokens vary.


def text_codec(tokenizer: Tokenizer, token_indexers: Mapping[str, TokenIndexer]) -> Codec:
    """Return the codec for a tokenizer and its token indexers.

    This is a `WordPieceCodec` if token ids alone give the same tensors as the pair, else a
    `TokenCodec`.
    """
    if len(token_indexers) == 1 and isinstance(tokenizer, PretrainedTransformerTokenizer):
        name, indexer = next(iter(token_indexers.items()))
        same_ids = (
            type(indexer) is PretrainedTransformerIndexer
            and indexer._max_length is None  # Otherwise it folds longer inputs into segments.
            and indexer._allennlp_tokenizer._model_name == tokenizer._model_name
            and not indexer._token_min_padding_length
        )
        if same_ids and tokenizer._add_special_tokens:
            return WordPieceCodec(tokenizer, name)
    return TokenCodec(tokenizer)


class WordPieceCodec:
    """A codec that stores documents as token ids of a transformer, without special tokens.

    # Parameters

    tokenizer : its `max_length` (or the transformer's) limits the length of a field, and its
        `truncation_side` says which end of a longer text is cut off.
    name : the key of the token indexer whose tensors the fields stand for.
    """

    def __init__(self, tokenizer: PretrainedTransformerTokenizer, name: str = "tokens") -> None:
        self._tokenizer = tokenizer.tokenizer
        self._frame = Frame(
            start=_ids(tokenizer.single_sequence_start_tokens),
            end=_ids(tokenizer.single_sequence_end_tokens),
            start_types=_types(tokenizer.single_sequence_start_tokens),
            end_types=_types(tokenizer.single_sequence_end_tokens),
            type_id=tokenizer.single_sequence_token_type_id or 0,
            padding_id=self._tokenizer.pad_token_id or 0,
            name=name,
        )
        self.limit = tokenizers.max_content_tokens(tokenizer)
        self.keeps_end = tokenizers.keeps_end(tokenizer)
        self.num_special_tokens = len(self._frame.start) + len(self._frame.end)
        self._content_ids = ContentIds(self._tokenizer)
        self.dtype = np.dtype(np.uint16 if len(self._tokenizer) <= 1 << 16 else np.uint32)

    @property
    def fingerprint(self) -> str:
        """A hash of the whole tokenizer.

        Tokenizers of the same name with different vocabularies have different fingerprints.
        """
        return tokenizers.word_piece_fingerprint(self._tokenizer)

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """Return the token ids of each text, and its length in tokens.

        Special tokens are left out, and nothing is truncated. Lone surrogates, as JSON may hold for
        half of an emoji, are read as U+FFFD, since no tokenizer takes them.
        """
        texts = [without_surrogates(text) for text in texts]
        arrays = [np.asarray(ids, dtype=self.dtype) for ids in self._content_ids(texts)]
        return arrays, [len(array) for array in arrays]

    def decode(self, document: np.ndarray, start: int, end: int) -> str:
        """Return the text of the tokens `[start, end)` of a document."""
        return str(self._tokenizer.decode(document[start:end].tolist()))

    def spans_field(self, document: np.ndarray, intervals: Iterable[Sequence[int]]) -> SpansField:
        """Make a field of the spans `[start, end)` of a document.

        Each span is cut to the limit and gets the special tokens.
        """
        return self.texts_field([document[start:end] for start, end in intervals])

    def texts_field(self, texts: Sequence[np.ndarray]) -> SpansField:
        """Make a field of several texts, each cut to the limit and with special tokens."""
        from declutr.data.fields import SpansField

        pairs = [self._with_specials(ids) for ids in texts]
        ids, types = [ids for ids, _ in pairs], [types for _, types in pairs]
        return SpansField(ids, types, self._frame.padding_id, self._frame.name)

    def text_field(self, document: np.ndarray) -> TokenIdsField:
        """Make a field of a whole text, cut to the limit and with special tokens."""
        from declutr.data.fields import TokenIdsField

        ids, types = self._with_specials(document)
        return TokenIdsField(ids, types, self._frame.padding_id, self._frame.name)

    def pack(self, spans: Sequence[np.ndarray], shape: tuple[int, ...]) -> PackedSpans:
        """Pack spans of documents for a batch, each cut to the limit.

        Unpacked, they are the tensors of a batch of `spans_field` (for a shape `(B, S)`) or of
        `text_field` (for `(B,)`).
        """
        kept = [tokenizers.cut(ids, self.limit, self.keeps_end) for ids in spans]
        return PackedSpans.of(kept, shape, self._frame)

    def is_truncated(self, num_tokens: int) -> bool:
        """Return whether a text of this many tokens is cut."""
        return self.limit is not None and num_tokens > self.limit

    def _with_specials(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, frame = tokenizers.cut(ids, self.limit, self.keeps_end), self._frame
        token_ids = np.concatenate([frame.start, ids, frame.end], dtype=np.int64)
        types = np.full(len(ids), frame.type_id)
        return token_ids, np.concatenate([frame.start_types, types, frame.end_types])


class TokenCodec:
    """A codec for any tokenizer, which stores documents as UTF-8 bytes; spans are lists of tokens.

    The fields have no token indexers: `apply_token_indexers` of the reader adds them.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # This one tokenises whole documents, without special tokens and without a limit.
        self._whole = tokenizer
        self._adds_special_tokens = False
        self._varies = False  # whether it was seen to split a text in different ways
        self.limit = tokenizers.max_content_tokens(tokenizer)
        self.keeps_end = tokenizers.keeps_end(tokenizer)
        self.num_special_tokens = 0
        if isinstance(tokenizer, PretrainedTransformerTokenizer):
            self._whole = copy.copy(tokenizer)
            self._whole._add_special_tokens = False
            self._whole._max_length = None
            self._adds_special_tokens = tokenizer._add_special_tokens
            if self._adds_special_tokens:
                self.num_special_tokens = tokenizer.num_special_tokens_for_sequence()

    @property
    def fingerprint(self) -> str:
        """A hash of the tokenizer's settings, which decide the stored lengths in tokens."""
        own = sorted(vars(self._tokenizer).items())
        settings = {key: tokenizers.described(value) for key, value in own}
        digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
        return f"{type(self._tokenizer).__name__}:{digest}"

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """Return the UTF-8 bytes of each text, and its length in tokens.

        Lone surrogates become U+FFFD.
        """
        texts = [without_surrogates(text) for text in texts]
        lengths = [len(tokens) for tokens in map(self._whole.tokenize, texts)]
        return [np.frombuffer(text.encode("utf-8"), dtype=np.uint8) for text in texts], lengths

    def decode(self, document: np.ndarray, start: int, end: int) -> str:
        """Return the tokens `[start, end)` of a document, joined by spaces."""
        return " ".join(str(token) for token in self._tokens(document)[start:end])

    def spans_field(self, document: np.ndarray, intervals: Iterable[Sequence[int]]) -> ListField:
        """Make a field of the spans `[start, end)` of a document, each cut to the limit.

        # Raises

        `ConfigurationError` : if the document has fewer tokens than a span needs, and the tokenizer
            does not split at random.
        """
        tokens, spans = self._tokens(document), list(intervals)
        needed = max((end for _, end in spans), default=0)
        if needed > len(tokens) and not self._varies:
            self._varies = any(len(self._tokens(document)) != len(tokens) for _ in range(_TRIES))
            if not self._varies:
                raise ConfigurationError(
                    f"A document has {len(tokens)} tokens, but had at least {needed} when the "
                    f"corpus was tokenised: {type(self._tokenizer).__name__} has changed in a way "
                    "that its attributes do not show. Remove the stored corpus (`declutr cache "
                    "list` names it)."
                )
        return ListField([self._field(tokens[start:end]) for start, end in spans])

    def texts_field(self, texts: Sequence[np.ndarray]) -> ListField:
        """Make a field of several texts, each cut to the limit."""
        return ListField([self.text_field(text) for text in texts])

    def text_field(self, document: np.ndarray) -> TextField:
        """Make a field of a whole text, cut to the limit."""
        return self._field(self._tokens(document))

    def is_truncated(self, num_tokens: int) -> bool:
        """Return whether a text of this many tokens is cut."""
        return self.limit is not None and num_tokens > self.limit

    def _tokens(self, document: np.ndarray) -> list[Token]:
        return self._whole.tokenize(document.tobytes().decode("utf-8"))

    def _field(self, tokens: list[Token]) -> TextField:
        tokens = tokenizers.cut(tokens, self.limit, self.keeps_end)
        if self._adds_special_tokens:
            tokens = self._tokenizer.add_special_tokens(tokens)
        # A text without any token would give tensors of length 0, which embedders refuse.
        return TextField(tokens or [Token("")])


Codec = WordPieceCodec | TokenCodec


def shortened(codec: Codec, max_length: int | None) -> Codec:
    """Return a codec that also cuts texts at `max_length` tokens, special tokens included.

    # Raises

    `ConfigurationError` : special tokens leave no room for a token of the text.
    """
    if max_length is None:
        return codec
    room = max_length - codec.num_special_tokens
    if room < 1:
        raise ConfigurationError(
            f"max_length is {max_length}, of which special tokens take {codec.num_special_tokens}. "
            f"Set it to {codec.num_special_tokens + 1} or more."
        )
    shorter = copy.copy(codec)
    shorter.limit = room if codec.limit is None else min(room, codec.limit)
    return shorter


def _ids(tokens: list[Token]) -> np.ndarray:
    return np.array([token.text_id for token in tokens], dtype=np.int64)


def _types(tokens: list[Token]) -> np.ndarray:
    return np.array([token.type_id or 0 for token in tokens], dtype=np.int64)
