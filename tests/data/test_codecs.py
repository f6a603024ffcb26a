"""Tests of the codecs.

The oracles are AllenNLP's tokenizer and indexer for the same word pieces, and the slow codec for
the fast one.
"""

import argparse
import copy
import json
import logging
import re
import shutil
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance, Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer as PieceIds
from allennlp.data.token_indexers import PretrainedTransformerMismatchedIndexer as Mismatched
from allennlp.data.token_indexers import SingleIdTokenIndexer, TokenCharactersIndexer
from allennlp.data.tokenizers import CharacterTokenizer, Token, WhitespaceTokenizer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer as Pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import BPE
from transformers import BertweetTokenizer

from declutr.corpus.documents import normalize_whitespace as normalized
from declutr.data.codecs import TokenCodec, WordPieceCodec, text_codec
from declutr.data.collation import ContentIds
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.data.tokenizers import (
    described,
    max_content_tokens,
    max_tokens,
    word_piece_fingerprint,
)
from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer
from tests.data.batches import as_tensors, assert_same, collated
from tests.hostile_archives import with_json, with_remote_code

INTERVALS = [(0, 5), (3, 40), (0, 200), (150, 300), (17, 18)]  # 200: longer than the limit of 126


@pytest.fixture(scope="module")
def name(checkpoint) -> str:
    return str(checkpoint)


@pytest.fixture(scope="module")
def tokenizer(name) -> Pieces:
    return Pieces(name)


@pytest.fixture(scope="module")
def indexers(name) -> dict:
    return {"tokens": PieceIds(name)}


@pytest.fixture(scope="module")
def fast(tokenizer, indexers) -> WordPieceCodec:
    return text_codec(tokenizer, indexers)


@pytest.fixture(scope="module")
def other(tmp_path_factory, documents) -> str:
    """Return a tokenizer with another vocabulary of the same size."""
    folder = tmp_path_factory.mktemp("other") / "tiny"
    tokenizer = train_tokenizer(documents[::-1] + ["zebra crossing zebra"] * 90, 400)
    make_checkpoint(folder, tokenizer, layers=1, hidden_size=8, heads=1, max_length=128)
    return str(folder)


def tensors(field, indexers) -> dict[str, dict[str, torch.Tensor]]:
    """Return the tensors that a reader and a loader would make."""
    instance = Instance({"text": field})
    DeCLUTRDatasetReader(token_indexers=indexers).apply_token_indexers(instance)
    return as_tensors([instance], Vocabulary.from_instances([instance]))["text"]


class TestChoice:
    def test_fast_path(self, fast):
        assert type(fast) is WordPieceCodec

    @pytest.mark.parametrize(
        "pair",
        [
            lambda name: (WhitespaceTokenizer(), SingleIdTokenIndexer()),
            lambda name: (Pieces(name, add_special_tokens=False), PieceIds(name)),
            lambda name: (Pieces(name), PieceIds(name, max_length=32)),
            lambda name: (Pieces(name), PieceIds(name, token_min_padding_length=9)),
            lambda name: (Pieces(name), PieceIds(name), SingleIdTokenIndexer()),
            lambda name: (WhitespaceTokenizer(), Mismatched(name)),
            lambda name: (Pieces(name), SingleIdTokenIndexer()),
        ],
        ids=["words", "no-specials", "folded", "min-padding", "two", "mismatched", "single-id"],
    )
    def test_any_other_pair_takes_the_slow_path(self, name, pair, documents):
        tokenizer, *given = pair(name)
        indexers = dict(zip(("tokens", "words"), given, strict=False))
        codec = text_codec(tokenizer, indexers)
        assert type(codec) is TokenCodec
        arrays, lengths = codec.encode(documents[:1])
        assert lengths[0] > 100
        field = codec.spans_field(arrays[0], [(0, 20), (90, 95)])
        for group in tensors(field, indexers).values():
            for key, tensor in group.items():
                assert tensor.shape[:2] == (1, 2), key  # (B, S, L) or (B, S, L, characters)
                assert tensor.dim() >= 3

    def test_another_transformer_is_another_vocabulary(self, name, tmp_path):
        shutil.copytree(name, tmp_path / "twin")
        indexers = {"tokens": PieceIds(str(tmp_path / "twin"))}
        assert type(text_codec(Pieces(name), indexers)) is TokenCodec


class TestEncoding:
    TEXTS = ("ka lo mi", "", "<s> ka </s><mask>", "K\u00e4 \u6d4b\u8bd5", "ka " * 500)

    def test_ids_of_the_backend_are_those_of_the_tokenizer(self, fast):
        assert fast._content_ids.uses_backend
        arrays, lengths = fast.encode(list(self.TEXTS))
        assert [array.tolist() for array in arrays] == fast._content_ids.by_tokenizer(
            list(self.TEXTS)
        )
        assert lengths == [len(array) for array in arrays] and lengths[-1] >= 500

    def test_padding_and_truncation_of_other_calls_do_not_matter(self, tokenizer, fast):
        expected = [array.tolist() for array in fast.encode(list(self.TEXTS))[0]]
        cut = {"truncation": True, "max_length": 4}
        tokenizer.tokenizer(list(self.TEXTS), padding=True, **cut)
        assert [array.tolist() for array in fast.encode(list(self.TEXTS))[0]] == expected
        assert len(tokenizer.tokenizer("ka lo mi", **cut)["input_ids"]) == 4

    def test_threads_tokenize_at_once(self, fast):
        """Setting what a backend of tokenizers 0.22 has already is an error while a thread uses it.

        That release is not installed with today's transformers, so what is set is looked at, too.
        """
        texts = [" ".join(self.TEXTS) * 10] * 20
        expected = fast._content_ids(texts)
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(fast._content_ids, [texts] * 40)
        assert all(ids == expected for ids in found)
        watched = _Watched(fast._tokenizer.backend_tokenizer)
        tokenizer = SimpleNamespace(backend_tokenizer=watched, split_special_tokens=False)
        assert ContentIds(tokenizer).by_backend(texts) == expected
        assert watched.done == ["encode_batch_fast"]

    def test_a_tokenizer_that_does_more_than_its_backend_is_called_itself(self, name, indexers):
        codec = text_codec(Pieces(name), indexers)
        codec._tokenizer = _Upper(codec._tokenizer)
        codec._content_ids = ContentIds(codec._tokenizer)
        assert not codec._content_ids.uses_backend
        assert codec.encode(["ka"])[0][0].tolist() == codec._tokenizer(["KA"])["input_ids"][0]


class _Watched:
    """A backend of a tokenizer that notes what it is told to do."""

    def __init__(self, backend) -> None:
        vars(self).update(backend=backend, done=[])

    def __getattr__(self, name):
        found = getattr(self.backend, name)
        if callable(found):
            self.done.append(name)
        return found

    def __setattr__(self, name, value):
        self.done.append(name)
        setattr(self.backend, name, value)


class _Upper:
    """A wrapper of a tokenizer that sees texts in capitals."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __call__(self, texts, **options):
        options["add_special_tokens"] = False
        return self._tokenizer([text.upper() for text in texts], **options)


class TestLimit:
    @pytest.mark.parametrize(("max_length", "limit"), [(None, 126), (20, 18), (500, 126)])
    def test_is_the_lower_of_tokenizer_and_transformer(self, name, max_length, limit):
        assert max_content_tokens(Pieces(name, max_length=max_length)) == limit

    def test_other_tokenizers_have_none(self, name, tmp_path):
        assert max_content_tokens(WhitespaceTokenizer()) is None
        # A transformer with relative positions has no limit either.
        assert max_content_tokens(changed(name, tmp_path, positions=-1, limit=1e30)) is None

    def test_a_tokenizer_without_a_limit_asks_the_transformer(self, name, tmp_path):
        """Many tokenizers on the hub have no limit.

        The limit is then the number of RoBERTa's positions, less those before the first token.
        """
        tokenizer = changed(name, tmp_path, limit=None)
        assert tokenizer.tokenizer.model_max_length > 10**9
        assert max_tokens(tokenizer) == 128
        assert max_content_tokens(tokenizer) == 126

    def test_a_tokenizer_that_claims_too_many_tokens_asks_the_transformer(self, name, tmp_path):
        assert max_tokens(changed(name, tmp_path, limit=512)) == 128


def changed(name, tmp_path, limit, positions=None) -> Pieces:
    """Return the tokenizer of a copy whose settings give another limit (None: none)."""
    place = shutil.copytree(name, tmp_path / "changed")
    settings = json.loads((place / "tokenizer_config.json").read_text())
    settings["model_max_length"] = limit
    if limit is None:
        del settings["model_max_length"]
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    if positions is not None:
        with_json("config.json", max_position_embeddings=positions)(place)
    return Pieces(str(place))


class TestWordPieces:
    def test_ids_are_those_of_the_tokenizer(self, fast, tokenizer, documents):
        arrays, lengths = fast.encode([*documents[:3], "", "ka"])
        for text, array, length in zip([*documents[:3], "", "ka"], arrays, lengths, strict=True):
            ids = tokenizer.tokenizer(text, add_special_tokens=False)["input_ids"]
            assert array.tolist() == ids and length == len(ids)
        assert arrays[0].dtype == fast.dtype == np.uint16
        assert lengths[0] > 128  # It is not cut at the transformer's limit.

    def test_spans_are_slices_between_special_tokens(self, fast, tokenizer, documents):
        document = fast.encode(documents[:1])[0][0]
        field = fast.spans_field(document, INTERVALS)
        for (start, end), span in zip(INTERVALS, field.spans, strict=True):
            ids = document[start : min(end, start + 126)].tolist()
            assert span.tolist() == tokenizer.tokenizer.build_inputs_with_special_tokens(ids)
            assert len(span) <= 128

    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def test_no_span_is_decoded_and_tokenised_again(self, fast, documents, data):
        texts = st.one_of(st.text(max_size=60), st.sampled_from(documents))
        document = fast.encode([data.draw(texts)])[0][0]
        ends = st.integers(0, len(document))
        pairs = data.draw(st.lists(st.tuples(ends, ends).map(sorted), min_size=1, max_size=4))
        field = fast.spans_field(document, pairs)
        for (start, end), span in zip(pairs, field.spans, strict=True):
            assert span.tolist() == [0, *document[start:end][:126].tolist(), 2]

    @pytest.mark.parametrize("text", ["", "ka", "ka lo mi", "long"])
    def test_whole_text_equals_allennlp(self, fast, tokenizer, indexers, documents, text):
        text = documents[0] if text == "long" else text
        field = fast.text_field(fast.encode([text])[0][0])
        limited = Pieces(tokenizer._model_name, max_length=128)
        expected = TextField(limited.tokenize(text), indexers)
        assert_same(tensors(field, indexers), tensors(expected, indexers))

    def test_is_truncated_tells_texts_above_the_limit(self, fast):
        assert [fast.is_truncated(n) for n in (0, 126, 127)] == [False, False, True]

    def test_limit_of_the_tokenizer(self, name, indexers, documents):
        codec = text_codec(Pieces(name, max_length=10), indexers)
        document = codec.encode(documents[:1])[0][0]
        assert len(document) > 128
        assert len(codec.text_field(document)) == 10
        assert list(map(len, codec.spans_field(document, [(0, 5), (0, 50)]).spans)) == [7, 10]

    def test_decode(self, fast):
        document = fast.encode(["ka lo mi tu"])[0][0]
        assert fast.decode(document, 0, len(document)) == "ka lo mi tu"
        assert fast.decode(document, 0, 0) == ""

    def test_large_vocabularies_get_wider_ids(self, tokenizer, monkeypatch):
        kind = type(tokenizer.tokenizer)
        monkeypatch.setattr(kind, "__len__", lambda self: 65536)
        assert WordPieceCodec(tokenizer).dtype == np.uint16
        monkeypatch.setattr(kind, "__len__", lambda self: 65537)
        assert WordPieceCodec(tokenizer).dtype == np.uint32


class TestFastEqualsSlow:
    @pytest.mark.parametrize("side", ["right", "left"])
    @pytest.mark.parametrize("max_length", [None, 20])
    def test_spans(self, name, indexers, documents, max_length, side):
        tokenizer = Pieces(name, max_length=max_length, tokenizer_kwargs={"truncation_side": side})
        fast, slow = text_codec(tokenizer, indexers), TokenCodec(tokenizer)
        (ids,), (count,) = fast.encode(documents[:1])
        (raw,), (slow_count,) = slow.encode(documents[:1])
        assert count == slow_count
        assert_same(
            tensors(fast.spans_field(ids, INTERVALS), indexers),
            tensors(slow.spans_field(raw, INTERVALS), indexers),
        )
        packed = fast.pack([ids[start:end] for start, end in INTERVALS], (1, len(INTERVALS)))
        assert_same(packed.tensors(), tensors(fast.spans_field(ids, INTERVALS), indexers))
        text = fast.text_field(ids).spans[0].tolist()
        cut = {"truncation": True, "max_length": max_length or 128}
        assert text == tokenizer.tokenizer([normalized(documents[0])], **cut)["input_ids"][0]

    @given(st.text(max_size=80))
    @settings(max_examples=40, deadline=None)
    def test_texts(self, fast, tokenizer, indexers, text):
        slow = TokenCodec(tokenizer)
        (ids,), lengths = fast.encode([text])
        (raw,), slow_lengths = slow.encode([text])
        assert lengths == slow_lengths
        assert_same(
            tensors(fast.text_field(ids), indexers), tensors(slow.text_field(raw), indexers)
        )

    def test_through_the_reader(self, name, indexers, corpus_file, monkeypatch):
        settings = {"num_anchors": 2, "num_positives": 3, "max_span_len": 40, "min_span_len": 5}
        settings["token_indexers"] = indexers
        fast = DeCLUTRDatasetReader(Pieces(name), **settings)
        monkeypatch.setattr(
            "declutr.data.row_reader.text_codec", lambda tokenizer, _: TokenCodec(tokenizer)
        )
        slow = DeCLUTRDatasetReader(Pieces(name), **settings)
        for row in (0, 7):
            ours, theirs = (collated(reader, corpus_file, [row], 3) for reader in (fast, slow))
            assert_same(ours, theirs)


class TestTokens:
    def test_word_tokenizers(self):
        codec = TokenCodec(WhitespaceTokenizer())
        arrays, lengths = codec.encode(["a b c", "", "naïve 文"])
        assert lengths == [3, 0, 2]
        assert arrays[2].tobytes().decode() == "naïve 文"
        field = codec.spans_field(arrays[0], [(0, 2), (1, 3)])
        assert [[str(t) for t in text.tokens] for text in field] == [["a", "b"], ["b", "c"]]
        assert codec.decode(arrays[0], 1, 3) == "b c"
        assert not codec.is_truncated(10**9)

    def test_single_ids(self):
        codec, indexers = TokenCodec(WhitespaceTokenizer()), {"tokens": SingleIdTokenIndexer()}
        (document,), _ = codec.encode(["a b a c"])
        field = codec.spans_field(document, [(0, 3), (3, 4)])
        ids = tensors(field, indexers)["tokens"]["tokens"]
        assert ids.shape == (1, 2, 3)
        assert ids[0, 0, 0] == ids[0, 0, 2] != ids[0, 0, 1]
        assert ids[0, 1, 1:].tolist() == [0, 0]

    def test_character_indexers(self):
        codec = TokenCodec(CharacterTokenizer())
        (document,), (count,) = codec.encode(["naïve"])
        assert count == 5
        indexers = {
            "c": TokenCharactersIndexer(min_padding_length=3),
            "s": SingleIdTokenIndexer(namespace="letters"),
        }
        group = tensors(codec.spans_field(document, [(0, 5), (1, 3)]), indexers)
        assert group["c"]["token_characters"].shape == (1, 2, 5, 3)
        assert group["s"]["tokens"].shape == (1, 2, 5)

    @pytest.mark.parametrize(
        "indexer",
        [SingleIdTokenIndexer, lambda: TokenCharactersIndexer(min_padding_length=3)],
        ids=["ids", "characters"],
    )
    def test_empty_text_still_has_a_token(self, indexer):
        codec = TokenCodec(WhitespaceTokenizer())
        group = tensors(codec.text_field(codec.encode([""])[0][0]), {"x": indexer()})["x"]
        assert all(0 not in tensor.shape for tensor in group.values())

    def test_without_special_tokens(self, name, indexers):
        codec = TokenCodec(Pieces(name, add_special_tokens=False))
        (document,), (count,) = codec.encode(["ka lo mi"])
        ids = tensors(codec.text_field(document), indexers)["tokens"]["token_ids"]
        assert ids.shape == (1, count) and 0 not in ids and 2 not in ids

    def test_the_tokenizer_itself_is_left_alone(self, name):
        tokenizer = Pieces(name, max_length=9)
        TokenCodec(tokenizer)
        assert tokenizer._add_special_tokens and tokenizer._max_length == 9


class TestFingerprint:
    def prints(self, *tokenizers) -> list[str]:
        return [TokenCodec(tokenizer).fingerprint for tokenizer in tokenizers]

    def test_depends_on_the_vocabulary_and_not_on_the_name(self, name, other, tmp_path):
        same = shutil.copytree(name, tmp_path / "same")
        first, second, third = (
            WordPieceCodec(Pieces(str(n))).fingerprint for n in (name, other, same)
        )
        assert first != second and first == third

    @pytest.mark.parametrize("codec", [WordPieceCodec, TokenCodec])
    def test_same_name_other_vocabulary(self, codec, name, other, tmp_path):
        from allennlp.common import cached_transformers

        folder = tmp_path / "swapped"
        fingerprints = []
        for source in (name, other, name):
            shutil.copytree(source, folder)
            cached_transformers._clear_caches()
            tokenizer = Pieces(str(folder))
            fingerprints.append(codec(tokenizer).fingerprint)
            shutil.rmtree(folder)
        cached_transformers._clear_caches()
        assert fingerprints[0] == fingerprints[2] != fingerprints[1]

    def test_does_not_depend_on_earlier_calls(self, name, documents):
        tokenizer = Pieces(name)
        before = WordPieceCodec(tokenizer).fingerprint
        tokenizer.tokenizer(documents[:2], truncation=True, max_length=9, padding=True)
        assert WordPieceCodec(tokenizer).fingerprint == before

    def test_depends_on_the_settings(self):
        lower = CharacterTokenizer(lowercase_characters=True)
        words = WhitespaceTokenizer(), WhitespaceTokenizer()
        assert len(set(self.prints(CharacterTokenizer(), lower, *words))) == 3

    def test_depends_on_splitting_special_tokens(self, name):
        split = Pieces(name, tokenizer_kwargs={"split_special_tokens": True})
        codecs = WordPieceCodec(Pieces(name)), WordPieceCodec(split)
        assert codecs[0].fingerprint != codecs[1].fingerprint
        lengths = [codec.encode(["ka <mask> lo"])[1] for codec in codecs]
        assert lengths[0] < lengths[1]

    def test_depends_on_the_settings_of_a_tokenizer_in_python(self, tmp_path):
        (tmp_path / "vocab.txt").write_text("the</w> 1\na</w> 2\n")
        (tmp_path / "bpe.codes").write_text("t h 10\nth e</w> 9\n")
        files = str(tmp_path / "vocab.txt"), str(tmp_path / "bpe.codes")
        moved = shutil.copytree(tmp_path, tmp_path / "moved")
        others = str(moved / "vocab.txt"), str(moved / "bpe.codes")
        tokenizers = [
            BertweetTokenizer(*files),
            BertweetTokenizer(*others, model_max_length=9, truncation_side="left"),
            BertweetTokenizer(*files, normalization=True),
        ]
        first, same, other = map(word_piece_fingerprint, tokenizers)
        assert first == same != other
        (moved / "bpe.codes").write_text("th e</w> 9\nt h 10\n")  # the same pieces
        assert word_piece_fingerprint(BertweetTokenizer(*others)) != first

    @pytest.mark.parametrize(
        ("one", "another"),
        [
            (re.compile(r"\w"), re.compile(r"\w+")),
            (re.compile("a" * 300 + "b"), re.compile("a" * 300 + "c")),
            (re.compile("a"), re.compile("a", re.IGNORECASE)),
            ({"a", "b"}, {"a", "c"}),
            ([re.compile("a")], [re.compile("b")]),
            (partial(str.split, sep="a"), partial(str.split, sep="b")),
            (argparse.Namespace(lower=True), argparse.Namespace(lower=False)),
            (tokenizers.Tokenizer(BPE()), tokenizers.Tokenizer(BPE(dropout=0.5))),
            (None, print),
            (OrderedDict(a=1), OrderedDict(a=2)),
        ],
    )
    def test_depends_on_attributes_of_any_kind(self, one, another):
        words = [WhitespaceTokenizer() for _ in range(3)]
        for tokenizer, attribute in zip(words, (one, another, copy.copy(one)), strict=True):
            tokenizer.attribute = attribute
        first, other, same = self.prints(*words)
        assert first == same != other

    def test_is_that_of_release_1_5_0(self):
        """Stores of that release are found again."""
        values = ["a", 1, True, 0.5, [None, "a", (1,)], {"a": {"b": None}}, (), [re.compile("a")]]
        for value in [*values, OrderedDict(a=1), {Path("a"): [Token("a"), Token("b")]}]:
            assert described(value) == repr(value)
        assert described(None) == "NoneType" and described(Path("a")) == type(Path("a")).__name__
        assert self.prints(WhitespaceTokenizer()) == ["WhitespaceTokenizer:44136fa355b3678a"]
        characters = CharacterTokenizer(byte_encoding="utf-8", start_tokens=["a", 1])
        assert self.prints(characters) == ["CharacterTokenizer:cbb1a9ee9d85c7eb"]

    def test_is_the_same_in_all_processes(self):
        """Order of sets, addresses, and what others log by do not count; nor is there an end."""
        assert described({"b", "a"}) == described(frozenset(["a", "b"])) == "{'a', 'b'}"
        assert described([object()]) == "[object]"
        logger = logging.getLogger("a")
        assert described(logger) == type(logger).__name__
        loop = [argparse.Namespace(number=1)]
        loop.append(loop)
        assert "number=1" in described(loop)

    def test_depends_on_the_spacy_pipeline(self):
        spacy = pytest.importorskip("spacy")
        words = [WhitespaceTokenizer() for _ in range(3)]
        for tokenizer, language in zip(words, ("en", "de", "en"), strict=True):
            tokenizer.spacy = spacy.blank(language)  # SpacyTokenizer has this attribute.
        first, second, third = self.prints(*words)
        assert first == third != second


def test_lone_surrogates_are_replaced(fast: WordPieceCodec) -> None:
    """JSON can hold half of an emoji, which is no Unicode text."""
    for codec in (fast, TokenCodec(WhitespaceTokenizer())):
        (broken, whole), lengths = codec.encode(["ka \ud83d lo", "ka \ufffd lo"])
        assert broken.tolist() == whole.tolist() and lengths[0] == lengths[1]


def test_a_tokenizer_that_splits_otherwise_than_when_it_was_stored_is_refused() -> None:
    codec = TokenCodec(WhitespaceTokenizer())
    (document,), _ = codec.encode(["one two three"])
    assert len(codec.spans_field(document, [(0, 3)]).field_list) == 1
    with pytest.raises(ConfigurationError, match="has 3 tokens, but had at least 4"):
        codec.spans_field(document, [(0, 2), (1, 4)])

    class AtRandom(WhitespaceTokenizer):
        calls = 0

        def tokenize(self, text: str) -> list[Token]:
            self.calls += 1
            return super().tokenize(text)[: 2 + self.calls % 2]

    spans = TokenCodec(AtRandom()).spans_field(document, [(0, 2), (2, 4)]).field_list
    assert [len(span) for span in spans] == [2, 1]


def test_the_limit_is_that_of_the_files_as_they_are(name: str, tmp_path: Path) -> None:
    place = str(shutil.copytree(name, tmp_path / "model"))
    with_json("tokenizer_config.json", model_max_length=int(1e30))(Path(place))
    tokenizer = Pieces(place)
    assert max_tokens(tokenizer) == 128
    with_json("config.json", max_position_embeddings=34)(Path(place))
    assert max_tokens(tokenizer) == 32


def test_positions_of_a_transformer_with_its_own_code(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of positions is known only if its code may run; nobody is asked for leave."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    modules = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    with_remote_code(tmp_path / "marker")(place)
    with_json("tokenizer_config.json", model_max_length=int(1e30))(place)
    assert max_tokens(Pieces(str(place))) is None
    assert not (tmp_path / "marker").exists()
    trusting = {"trust_remote_code": True}
    tokenizer = Pieces(str(place), tokenizer_kwargs=trusting)
    assert max_tokens(tokenizer) == 128  # Its code counts positions as RoBERTa does.
