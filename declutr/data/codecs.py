"""Documents as arrays, and spans of them as fields.

`WordPieceCodec` keeps the token ids of a pretrained transformer: nothing is ever decoded and
tokenised again. `TokenCodec` serves every other AllenNLP tokenizer and indexer: it keeps the UTF-8
bytes and tokenises a document when its spans are drawn.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from allennlp.data import Field, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token
from transformers import AutoConfig, PreTrainedTokenizerBase

from declutr.corpus.content_ids import ContentIds
from declutr.data.collation import Frame, PackedSpans
from declutr.data.fields import SpansField, TokenIdsField
from declutr.transformer.positions import configured_max_positions, longest_text

logger = logging.getLogger(__name__)

Cuttable = TypeVar("Cuttable", np.ndarray, list[Token])


def text_codec(
    tokenizer: Tokenizer, token_indexers: Mapping[str, TokenIndexer]
) -> WordPieceCodec | TokenCodec:
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


def max_tokens(tokenizer: Tokenizer) -> int | None:
    """How many tokens the transformer takes, special ones included; `None` if it does not say.

    Many tokenizers on the hub do not know; the transformer's configuration is asked as well.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    trust = bool(tokenizer._tokenizer_kwargs.get("trust_remote_code", False))
    positions = _configured_positions(tokenizer._model_name, trust)
    return longest_text(tokenizer.tokenizer, positions)


@lru_cache
def _configured_positions(model_name: str, trust: bool) -> int | None:
    try:
        config = AutoConfig.from_pretrained(model_name, trust_remote_code=trust)
    except (OSError, ValueError):  # a tokenizer without a transformer
        return None
    return configured_max_positions(config, trust)


def max_content_tokens(tokenizer: Tokenizer) -> int | None:
    """How many tokens of text fit beside the special ones, or `None` if there is no limit.

    The transformer sets it, and `max_length` of the tokenizer may lower it.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    limits = [tokenizer._max_length, max_tokens(tokenizer)]
    known = [limit for limit in limits if limit is not None]
    return min(known) - tokenizer.num_special_tokens_for_sequence() if known else None


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
        return _word_piece_fingerprint(self._tokenizer)

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """The ids of each text, without special tokens, however long it is."""
        arrays = [np.asarray(ids, dtype=self.dtype) for ids in self._content_ids(texts)]
        return arrays, [len(array) for array in arrays]

    def decode(self, document: np.ndarray, start: int, end: int) -> str:
        """The text of tokens `[start, end)`."""
        return str(self._tokenizer.decode(document[start:end].tolist()))

    def spans_field(self, document: np.ndarray, intervals: Iterable[Sequence[int]]) -> SpansField:
        """The spans `[start, end)` of a document with special tokens, cut to the limit."""
        pairs = [self._with_specials(document[start:end]) for start, end in intervals]
        return SpansField(
            [ids for ids, _ in pairs],
            [types for _, types in pairs],
            self._frame.padding_id,
            self._frame.name,
        )

    def text_field(self, document: np.ndarray) -> TokenIdsField:
        """A whole text with special tokens, cut to the limit."""
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
        settings = {key: _described(value) for key, value in sorted(vars(self._tokenizer).items())}
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
        spans: list[Field] = [self._field(tokens[start:end]) for start, end in intervals]
        return ListField(spans)

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


def keeps_end(tokenizer: Tokenizer) -> bool:
    """Whether longer texts keep their end, as transformers' own truncation does for this side."""
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return False
    return tokenizer.tokenizer.truncation_side == "left"


def cut(tokens: Cuttable, limit: int | None, end: bool) -> Cuttable:
    """At most `limit` tokens of a text: the first ones, or with `end` the last."""
    if limit is None or len(tokens) <= limit:
        return tokens
    return tokens[len(tokens) - limit :] if end else tokens[:limit]


def _ids(tokens: list[Token]) -> np.ndarray:
    return np.array([token.text_id for token in tokens], dtype=np.int64)


def _types(tokens: list[Token]) -> np.ndarray:
    return np.array([token.type_id or 0 for token in tokens], dtype=np.int64)


def _word_piece_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        # Padding and truncation are settings of the last call, not of the tokenizer.
        state.pop("padding", None), state.pop("truncation", None)
        content = json.dumps(state, sort_keys=True)
    else:
        content = json.dumps(sorted(tokenizer.get_vocab().items()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{type(tokenizer).__name__}:{len(tokenizer)}:{digest}"


def _described(value: object) -> str:
    """What of an attribute of a tokenizer its tokens may depend on."""
    if isinstance(value, (str, int, float, bool, list, tuple, dict)):
        return repr(value)
    if isinstance(value, PreTrainedTokenizerBase):
        return _word_piece_fingerprint(value)
    meta = getattr(value, "meta", None)  # of a spaCy pipeline
    if isinstance(meta, dict):
        return repr([meta.get(key) for key in ("lang", "name", "version")])
    return type(value).__name__
