"""Documents as arrays, and spans of them as fields.

`WordPieceCodec` keeps the token ids of a pretrained transformer: nothing is ever decoded and
tokenised again. `TokenCodec` serves every other AllenNLP tokenizer and indexer: it keeps the UTF-8
bytes and tokenises a document when its spans are drawn.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from allennlp.data import TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token

from declutr.data.collation import ContentIds, Frame, PackedSpans
from declutr.data.tokenizers import (
    cut,
    described,
    keeps_end,
    max_content_tokens,
    word_piece_fingerprint,
)

if TYPE_CHECKING:  # packed batches, and an encoder, do without fields
    from declutr.data.fields import SpansField, TokenIdsField


def text_codec(tokenizer: Tokenizer, token_indexers: Mapping[str, TokenIndexer]) -> Codec:
    """The codec for this pair: word pieces by id where nothing is lost, tokens elsewhere."""
    if len(token_indexers) == 1 and isinstance(tokenizer, PretrainedTransformerTokenizer):
        name, indexer = next(iter(token_indexers.items()))
        same_ids = (
            type(indexer) is PretrainedTransformerIndexer
            and indexer._max_length is None  # longer inputs are folded into segments otherwise
            and indexer._allennlp_tokenizer._model_name == tokenizer._model_name
            and not indexer._token_min_padding_length
        )
        if same_ids and tokenizer._add_special_tokens:
            return WordPieceCodec(tokenizer, name)
    return TokenCodec(tokenizer)


class WordPieceCodec:
    """Documents as the ids of a pretrained transformer's tokenizer, without special tokens.

    # Parameters

    tokenizer : the tokenizer; its `max_length` (or the transformer's) bounds what a field holds,
        and its `truncation_side` says which part of a longer text that is.
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
        self.limit = max_content_tokens(tokenizer)
        self.keeps_end = keeps_end(tokenizer)
        self.num_special_tokens = len(self._frame.start) + len(self._frame.end)
        self._content_ids = ContentIds(self._tokenizer)
        self.dtype = np.dtype(np.uint16 if len(self._tokenizer) <= 1 << 16 else np.uint32)

    @property
    def fingerprint(self) -> str:
        """A hash of the whole tokenizer, so that equal names with other vocabularies differ."""
        return word_piece_fingerprint(self._tokenizer)

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """The ids of each text, without special tokens, however long it is."""
        arrays = [np.asarray(ids, dtype=self.dtype) for ids in self._content_ids(texts)]
        return arrays, [len(array) for array in arrays]

    def decode(self, document: np.ndarray, start: int, end: int) -> str:
        """The text of tokens `[start, end)`."""
        return str(self._tokenizer.decode(document[start:end].tolist()))

    def spans_field(self, document: np.ndarray, intervals: Iterable[Sequence[int]]) -> SpansField:
        """The spans `[start, end)` of a document with special tokens, cut to the limit."""
        return self.texts_field([document[start:end] for start, end in intervals])

    def texts_field(self, texts: Sequence[np.ndarray]) -> SpansField:
        """Several texts with special tokens, each cut to the limit."""
        from declutr.data.fields import SpansField

        pairs = [self._with_specials(ids) for ids in texts]
        return SpansField(
            [ids for ids, _ in pairs],
            [types for _, types in pairs],
            self._frame.padding_id,
            self._frame.name,
        )

    def text_field(self, document: np.ndarray) -> TokenIdsField:
        """A whole text with special tokens, cut to the limit."""
        from declutr.data.fields import TokenIdsField

        ids, types = self._with_specials(document)
        return TokenIdsField(ids, types, self._frame.padding_id, self._frame.name)

    def pack(self, spans: Sequence[np.ndarray], shape: tuple[int, ...]) -> PackedSpans:
        """Spans of documents for a batch, cut to the limit.

        What it unfolds to are the tensors of a batch of `spans_field` (for a shape `(B, S)`) or of
        `text_field` (for `(B,)`).
        """
        kept = [cut(ids, self.limit, self.keeps_end) for ids in spans]
        return PackedSpans.of(kept, shape, self._frame)

    def is_truncated(self, num_tokens: int) -> bool:
        """Whether a text of so many tokens is cut."""
        return self.limit is not None and num_tokens > self.limit

    def _with_specials(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, frame = cut(ids, self.limit, self.keeps_end), self._frame
        token_ids = np.concatenate([frame.start, ids, frame.end], dtype=np.int64)
        types = np.full(len(ids), frame.type_id)
        return token_ids, np.concatenate([frame.start_types, types, frame.end_types])


class TokenCodec:
    """Documents as UTF-8 bytes, for any tokenizer; spans are lists of its tokens.

    The fields come without token indexers: the reader's `apply_token_indexers` adds them.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._whole = tokenizer  # sees a document without special tokens and without its limit
        self._adds_special_tokens = False
        self.limit = max_content_tokens(tokenizer)
        self.keeps_end = keeps_end(tokenizer)
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
        """Names the tokenizer: the lengths kept with the corpus depend on it."""
        settings = {key: described(value) for key, value in sorted(vars(self._tokenizer).items())}
        digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
        return f"{type(self._tokenizer).__name__}:{digest}"

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """The bytes of each text, and its length in tokens."""
        lengths = [len(tokens) for tokens in map(self._whole.tokenize, texts)]
        return [np.frombuffer(text.encode("utf-8"), dtype=np.uint8) for text in texts], lengths

    def decode(self, document: np.ndarray, start: int, end: int) -> str:
        """The text of tokens `[start, end)`."""
        return " ".join(str(token) for token in self._tokens(document)[start:end])

    def spans_field(self, document: np.ndarray, intervals: Iterable[Sequence[int]]) -> ListField:
        """The spans `[start, end)` of a document, cut to the tokenizer's limit."""
        tokens = self._tokens(document)
        return ListField([self._field(tokens[start:end]) for start, end in intervals])

    def texts_field(self, texts: Sequence[np.ndarray]) -> ListField:
        """Several texts, each cut to the tokenizer's limit."""
        return ListField([self.text_field(text) for text in texts])

    def text_field(self, document: np.ndarray) -> TextField:
        """A whole text, cut to the tokenizer's limit."""
        return self._field(self._tokens(document))

    def is_truncated(self, num_tokens: int) -> bool:
        """Whether a text of so many tokens is cut."""
        return self.limit is not None and num_tokens > self.limit

    def _tokens(self, document: np.ndarray) -> list[Token]:
        return self._whole.tokenize(document.tobytes().decode("utf-8"))

    def _field(self, tokens: list[Token]) -> TextField:
        tokens = cut(tokens, self.limit, self.keeps_end)
        if self._adds_special_tokens:
            tokens = self._tokenizer.add_special_tokens(tokens)
        # A text without any token would give tensors of length 0, which embedders refuse.
        return TextField(tokens or [Token("")])


Codec = WordPieceCodec | TokenCodec


def _ids(tokens: list[Token]) -> np.ndarray:
    return np.array([token.text_id for token in tokens], dtype=np.int64)


def _types(tokens: list[Token]) -> np.ndarray:
    return np.array([token.type_id or 0 for token in tokens], dtype=np.int64)
