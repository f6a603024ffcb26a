"""Tests of the reader "declutr".

The oracles are `SpanSampler` with the same random numbers, and slices of the documents.
"""

import copy
import itertools
import json
import logging
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from declutr.corpus.documents import SourceError
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.sampling.row_draws import document_rng, text_digest
from declutr.sampling.spans import PLACEMENTS, DocumentTooShort, SpanSampler

SPANS = {"num_anchors": 2, "num_positives": 3, "max_span_len": 24, "min_span_len": 8}
WORDS = {"num_anchors": 2, "num_positives": 1, "max_span_len": 10, "min_span_len": 2}
LENGTHS = [50, 0, 3, 4, 39, 40, 200]  # Spans need 40 words, and shrunken ones at least 4.
SEED = 13370
TEXTS = [" ".join(f"{name}{n}" for n in range(60)) for name in "abcde"]  # Each has 60 words.


@pytest.fixture
def make(pair):
    """Return a reader of word pieces that samples spans, unless told otherwise."""
    return lambda **changes: DeCLUTRDatasetReader(*pair, **{**SPANS, **changes})


@pytest.fixture
def words(tmp_path):
    """Return a reader of words."""
    return lambda **changes: DeCLUTRDatasetReader(
        **{**WORDS, "cache_dir": str(tmp_path / "stores"), **changes}
    )


@pytest.fixture
def lengths_file(tmp_path) -> Path:
    file = tmp_path / "lengths.txt"
    rows = [" ".join(f"r{row}w{n}" for n in range(count)) for row, count in enumerate(LENGTHS)]
    file.write_text("\n".join(rows) + "\n")
    return file


def spans(instance) -> str:
    """Return an instance as a string to compare and count."""
    return json.dumps([instance[key].human_readable_repr() for key in ("anchors", "positives")])


def epoch_of(reader, path, epoch: int) -> list[str]:
    return [spans(reader.instance(path, int(row), epoch)) for row in reader.documents(path)]


class TestInstances:
    def test_spans_are_what_the_sampler_draws_from_the_document(self, make, corpus_file):
        reader = make()
        for row, epoch in ((0, 0), (5, 0), (5, 3)):
            document = reader.corpus(corpus_file)[row]
            anchors, positives = SpanSampler(2, 3, 8, 24).sample(
                len(document), document_rng(SEED, epoch, row)
            )
            instance = reader.instance(corpus_file, row, epoch)
            for field, intervals in (("anchors", anchors), ("positives", positives)):
                expected = [[0, *document[a:b].tolist(), 2] for a, b in intervals.reshape(-1, 2)]
                assert instance[field].human_readable_repr() == expected

    def test_tensors(self, make, corpus_file):
        reader = make()
        batch = Batch([reader.instance(corpus_file, row) for row in range(4)])
        batch.index_instances(Vocabulary.empty())
        tensors = batch.as_tensor_dict()
        assert tensors.keys() == {"anchors", "positives"}
        for name, count in (("anchors", 2), ("positives", 6)):
            group = tensors[name]["tokens"]
            assert group.keys() == {"token_ids", "mask", "type_ids"}
            assert group["token_ids"].shape[:2] == (4, count)
            assert 10 <= group["token_ids"].shape[2] <= 25  # 8 to 23 tokens and two special ones

    def test_positives_of_the_first_anchor_come_first(self, words, lengths_file):
        reader = words(num_positives=2, sampling_strategy="subsuming")
        instance = reader.instance(lengths_file, 6)
        anchors, positives = (
            [{str(token) for token in text.tokens} for text in instance[key].field_list]
            for key in ("anchors", "positives")
        )
        for index, positive in enumerate(positives):
            assert positive <= anchors[index // 2]

    def test_the_strategy_reaches_the_sampler(self, words, lengths_file):
        reader = words(sampling_strategy="ADJACENT", num_anchors=1)
        for epoch in range(20):
            (anchor,), ((positive,),) = reader.sample(lengths_file, 6, epoch)
            assert positive[0] == anchor[1] or positive[1] == anchor[0]

    def test_the_placement_reaches_the_sampler(self, words, lengths_file):
        reader = words(placement="grid")
        for epoch in range(20):
            for start, end in reader.sample(lengths_file, 6, epoch).anchors.tolist():
                assert start // 10 == (end - 1) // 10  # The span lies inside one block.

    def test_from_params(self, checkpoint, corpus_file):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        params = {
            "type": "declutr",
            **SPANS,
            "tokenizer": transformer,
            "token_indexers": {"tokens": dict(transformer)},
            "max_instances": 3,
        }
        reader = DatasetReader.from_params(Params(params))
        assert isinstance(reader, DeCLUTRDatasetReader)
        assert len(list(reader.read(str(corpus_file)))) == 3

    def test_the_default_tokenizer_splits_at_white_space(self, words, lengths_file):
        batch = Batch(list(words().read(lengths_file)))
        vocab = Vocabulary.from_instances(batch.instances)
        batch.index_instances(vocab)
        ids = batch.as_tensor_dict()["anchors"]["tokens"]["tokens"]
        assert ids.shape[:2] == (5, 2) and ids.max() < vocab.get_vocab_size()
        assert all("r" in vocab.get_token_from_index(int(i)) for i in ids[0, 0][:2])


class TestIds:
    def test_instances_have_the_number_of_their_row(self, words, lengths_file):
        reader = words(with_ids=True)
        rows = reader.documents(lengths_file).tolist()
        assert rows == [0, 3, 4, 5, 6]
        for row in rows:
            instance = reader.instance(lengths_file, row, 2)
            assert list(instance.fields) == ["anchors", "positives", "ids"]
            assert instance["ids"].label == row
            assert spans(instance) == spans(words().instance(lengths_file, row, 2))

    def test_packed_batches_equal_collated_instances(self, make, corpus_file):
        reader, rows = make(with_ids=True), [5, 0, 23]
        batch = Batch([reader.instance(corpus_file, row, 1) for row in rows])
        batch.index_instances(Vocabulary.empty())
        expected = batch.as_tensor_dict()
        packed = reader.packed(corpus_file, np.array(rows, dtype=np.int32), 1).tensors()
        assert list(packed) == list(expected) == ["anchors", "positives", "ids"]
        assert packed["ids"].dtype == expected["ids"].dtype == torch.int64
        assert packed["ids"].tolist() == expected["ids"].tolist() == rows

    def test_rows_are_counted_over_files(self, words, tmp_path):
        for number in range(2):
            (tmp_path / f"{number}.txt").write_text("w " * 50 + "\n" + "w " * 60 + "\n")
        reader = words(with_ids=True, resample=False)
        assert [one["ids"].label for one in reader.read(tmp_path)] == [0, 1, 2, 3]

    def test_whole_texts_have_none(self, make, corpus_file):
        for reader in (make(with_ids=True), make(with_ids=True, num_anchors=None)):
            with reader.no_sample():
                assert list(reader.instance(corpus_file, 0).fields) == ["anchors"]
                assert list(reader.packed(corpus_file, [0]).tensors()) == ["anchors"]
                assert list(next(iter(reader.read(corpus_file))).fields) == ["anchors"]

    def test_a_text_of_no_corpus_has_none(self, make, documents):
        instance = make(with_ids=True).text_to_instance(documents[3], row=3)
        assert list(instance.fields) == ["anchors", "positives"]

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    def test_through_the_loader_of_allennlp(self, make, corpus_file, workers):
        loader = MultiProcessDataLoader(
            make(with_ids=True),
            str(corpus_file),
            batch_size=5,
            num_workers=workers,
            max_instances_in_memory=8,
            quiet=True,
        )
        loader.index_with(Vocabulary.empty())
        ids = [batch["ids"] for batch in loader]
        assert all(one.dtype == torch.int64 for one in ids)
        assert sorted(torch.cat(ids).tolist()) == list(range(24))


class TestFreshSpans:
    def test_spans_differ_in_every_epoch(self, make, corpus_file):
        reader = make()
        epochs = [epoch_of(reader, corpus_file, epoch) for epoch in range(3)]
        for row in range(24):
            assert len({epoch[row] for epoch in epochs}) == 3

    def test_fixed_without_resample(self, make, corpus_file):
        reader = make(resample=False)
        first = epoch_of(reader, corpus_file, 0)
        assert epoch_of(reader, corpus_file, 7) == first == epoch_of(make(), corpus_file, 0)
        passes = [list(map(spans, reader.read(corpus_file))) for _ in range(2)]
        assert passes[0] == passes[1] == first  # The order is the same, too.

    def test_depend_on_the_seed(self, make, corpus_file):
        first, second = (epoch_of(make(seed=seed), corpus_file, 0) for seed in (1, 2))
        assert not set(first) & set(second)

    def test_differ_between_equal_documents(self, words, tmp_path):
        file = tmp_path / "same.txt"
        file.write_text((" ".join(map(str, range(100))) + "\n") * 5)
        assert len(set(epoch_of(words(), file, 0))) == 5

    def test_do_not_depend_on_what_was_read_before(self, make, corpus_file):
        reader = make()
        expected = epoch_of(make(), corpus_file, 2)
        for row in (23, 4, 4, 0):
            reader.instance(corpus_file, row, 9)
            assert spans(reader.instance(corpus_file, row, 2)) == expected[row]

    def test_each_read_begins_the_next_epoch(self, make, corpus_file):
        reader = make()
        for epoch in range(3):
            read = list(map(spans, reader.read(corpus_file)))
            assert sorted(read) == sorted(epoch_of(reader, corpus_file, epoch))
            assert read != epoch_of(reader, corpus_file, epoch)  # The order differs.

    def test_global_random_state_is_left_alone(self, make, corpus_file):
        np.random.seed(0)
        state = np.random.get_state()[1].tolist()
        first = list(map(spans, make().read(corpus_file)))
        assert np.random.get_state()[1].tolist() == state
        np.random.seed(1)
        assert list(map(spans, make().read(corpus_file))) == first


class TestShortDocuments:
    def test_shrink(self, words, lengths_file, caplog):
        reader = words()
        with caplog.at_level(logging.INFO, logger="declutr.sampling.document_selection"):
            assert reader.documents(lengths_file).tolist() == [0, 3, 4, 5, 6]
        assert "7 documents; 5 used, of which 2 with shrunken spans; 2 skipped (1 blank)" in (
            caplog.text
        )
        assert len(list(reader.read(lengths_file))) == 5
        anchors, _ = reader.sample(lengths_file, 4, 0)  # It has 39 words, so spans have up to 9.
        assert (anchors[:, 1] - anchors[:, 0]).max() <= 9

    def test_skip(self, words, lengths_file, caplog):
        with caplog.at_level(logging.INFO, logger="declutr.sampling.document_selection"):
            assert words(short_documents="skip").documents(lengths_file).tolist() == [0, 5, 6]
        assert "7 documents; 3 used, of which 0 with shrunken spans; 4 skipped (1 blank)" in (
            caplog.text
        )

    def test_error(self, words, lengths_file):
        with pytest.raises(
            ConfigurationError,
            match=r"lengths.txt: row 4 has 4 tokens, and 2 of 7 documents have fewer than .* = 40. "
            "Set short_documents to 'shrink' or 'skip', or lower max_span_len",
        ):
            words(short_documents="error").documents(lengths_file)

    def test_error_ignores_rows_that_are_left_out_anyway(self, words, tmp_path):
        (tmp_path / "a.txt").write_text(" ".join("abcdefghij" * 4) + "\n\nthree short words\n")
        reader = words(short_documents="error")
        assert reader.documents(tmp_path / "a.txt").tolist() == [0]

    @pytest.mark.parametrize("policy", ["shrink", "skip", "error"])
    def test_min_document_len_whatever_the_policy(self, words, lengths_file, policy):
        reader = words(short_documents=policy, min_document_len=45)
        assert reader.documents(lengths_file).tolist() == [0, 6]

    def test_rows_keep_their_numbers(self, words, lengths_file):
        reader = words(short_documents="skip")
        for instance in reader.read(lengths_file):
            (row,) = {
                str(token)[:2] for text in instance["anchors"].field_list for token in text.tokens
            }
            assert row in {"r0", "r5", "r6"}

    @pytest.mark.parametrize(
        ("changes", "needed"),
        [({"short_documents": "skip"}, 40), ({}, 4), ({"min_document_len": 7}, 7)],
    )
    def test_a_corpus_of_short_documents_is_refused(self, words, tmp_path, changes, needed):
        (tmp_path / "a.txt").write_text("one two\n\nthree\n")
        with pytest.raises(
            ConfigurationError,
            match=f"none of the 3 documents is long enough. The longest has 2 tokens, and at least "
            f"{needed} are needed .*Lower max_span_len",
        ):
            words(**changes).documents(tmp_path / "a.txt")

    def test_a_corpus_of_blank_rows_is_refused(self, words, tmp_path):
        (tmp_path / "a.txt").write_text("\n\n")
        with pytest.raises(ConfigurationError, match="longest has 0 tokens"):
            list(words().read(tmp_path / "a.txt"))

    @pytest.mark.parametrize("strategy", [None, "subsuming", "adjacent"])
    @pytest.mark.parametrize("placement", PLACEMENTS)
    @pytest.mark.parametrize("anchors", [1, 3])
    def test_every_shrunken_document_gives_spans(
        self, words, tmp_path, strategy, placement, anchors
    ):
        (tmp_path / "a.txt").write_text("".join("w " * count + "\n" for count in range(70)))
        reader = words(
            num_anchors=anchors,
            sampling_strategy=strategy,
            placement=placement,
            min_span_len=5,
        )
        rows = reader.documents(tmp_path / "a.txt")
        assert rows.tolist() == list(range(2 * anchors, 70))
        for row in rows.tolist():
            drawn = reader.sample(tmp_path / "a.txt", row, 0)
            both = np.concatenate([drawn.anchors, drawn.positives.reshape(-1, 2)])
            assert both.min() >= 0 and both.max() <= row and (both[:, 0] < both[:, 1]).all()

    def test_max_instances(self, words, lengths_file):
        reader = words(max_instances=2)
        assert reader.documents(lengths_file).tolist() == [0, 3]
        assert len(list(reader.read(lengths_file))) == 2
        with reader.no_sample():
            assert len(list(reader.read(lengths_file))) == 2
            assert reader.documents(lengths_file).tolist() == [0, 1]


class TestWholeTexts:
    ROWS = ("first row", "", "  third   row ", "", "last")

    @pytest.fixture
    def file(self, tmp_path) -> Path:
        (tmp_path / "rows.txt").write_text("\n".join(self.ROWS) + "\n")
        return tmp_path / "rows.txt"

    def expected(self, pair) -> list[list[int]]:
        texts = [" ".join(row.split()) for row in self.ROWS]
        return [pair[0].tokenizer(text)["input_ids"] for text in texts]

    def test_rows_in_order_blank_ones_included(self, make, pair, file, tmp_path):
        reader = make(num_anchors=None, cache_dir=str(tmp_path / "stores"))
        assert not reader.sample_spans
        instances = list(reader.read(file))
        assert [list(instance.fields) for instance in instances] == [["anchors"]] * 5
        read = [instance["anchors"].spans[0].tolist() for instance in instances]
        assert read == self.expected(pair)
        assert not (tmp_path / "stores").exists()  # Whole texts are streamed and not kept.

    def test_the_same_by_row(self, make, pair, file):
        reader = make(num_anchors=None)
        assert reader.documents(file).tolist() == [0, 1, 2, 3, 4]
        read = [reader.instance(file, row)["anchors"].spans[0].tolist() for row in range(5)]
        assert read == self.expected(pair)

    def test_no_sample_ends_with_its_block(self, make, file, corpus_file):
        reader = make()
        with reader.no_sample():
            assert len(list(reader.read(file))) == 5
            assert "positives" not in reader.text_to_instance("a text").fields
        assert reader.sample_spans
        assert "positives" in next(iter(reader.read(corpus_file))).fields

    def test_no_sample_restores_after_an_exception(self, make):
        for before in (True, False):
            reader = make()
            reader.sample_spans = before
            with pytest.raises(KeyError), reader.no_sample():
                raise KeyError
            assert reader.sample_spans is before

    def test_no_sample_may_be_nested(self, make):
        reader = make()
        with reader.no_sample():
            with reader.no_sample():
                pass
            assert not reader.sample_spans
        assert reader.sample_spans

    def test_batch(self, make, file):
        reader = make(num_anchors=None)
        batch = Batch(list(reader.read(file)))
        batch.index_instances(Vocabulary.empty())
        group = batch.as_tensor_dict()["anchors"]["tokens"]
        assert group["token_ids"].dim() == 2
        assert group["mask"].sum(1).tolist() == list(map(len, self.expected((reader._tokenizer,))))
        assert group["mask"].sum(1)[1] == 2  # A blank row has the special tokens alone.

    def test_blank_rows_of_words(self, words, file):
        batch = Batch(list(words(num_anchors=None).read(file)))
        batch.index_instances(Vocabulary.empty())
        assert batch.as_tensor_dict()["anchors"]["tokens"]["tokens"].shape == (5, 2)


class TestTextToInstance:
    def test_a_text_is_whole_inside_no_sample(self, make, pair):
        reader = make()
        with reader.no_sample():
            instance = reader.text_to_instance(" a  text ")
        assert instance["anchors"].spans[0].tolist() == pair[0].tokenizer("a text")["input_ids"]

    def test_a_long_text_is_cut(self, make, documents):
        reader = make()
        with reader.no_sample():
            assert len(reader.text_to_instance(documents[0])["anchors"]) == 128

    def test_sampled_like_the_corpus(self, make, corpus_file, documents):
        reader = make()
        for row, epoch in ((0, 0), (3, 2)):
            mine = reader.text_to_instance(documents[row], row=row, epoch=epoch)
            assert spans(mine) == spans(reader.instance(corpus_file, row, epoch))

    @pytest.mark.parametrize("given", [{}, {"epoch": 2}])
    def test_different_texts_have_spans_at_different_places(self, words, given):
        """All texts have the same length, so that only their content makes the spans differ."""
        reader = words()
        assert len({self.places(reader.text_to_instance(text, **given)) for text in TEXTS}) == 5

    def test_each_call_draws_other_spans(self, words):
        reader = words()
        calls = [[self.places(reader.text_to_instance(text)) for text in TEXTS] for _ in range(4)]
        for of_one in zip(*calls, strict=True):
            assert len(set(of_one)) == 4
        # Make the same calls again, with the texts in another order and with more white space.
        again = words()
        for first in calls:
            instances = [again.text_to_instance(text.replace(" ", "  ")) for text in TEXTS[::-1]]
            assert [self.places(instance) for instance in instances[::-1]] == first
        other = words(seed=1)
        assert self.places(other.text_to_instance(TEXTS[0])) != calls[0][0]

    def test_spans_are_drawn_by_the_digest_of_the_text_and_the_call(self, words):
        reader = words()
        for call in range(3):
            rng = document_rng(SEED, 0, text_digest(TEXTS[1]), call)
            drawn = SpanSampler(2, 1, 2, 10).sample(60, rng)
            places = self.places(reader.text_to_instance(TEXTS[1]))
            assert json.loads(places) == np.concatenate([drawn[0], drawn[1][:, 0]]).tolist()

    def test_an_epoch_alone_fixes_the_spans(self, words):
        reader = words()
        epochs = [
            [self.places(reader.text_to_instance(TEXTS[0], epoch=epoch)) for epoch in range(4)]
            for _ in range(2)
        ]
        assert epochs[0] == epochs[1] and len(set(epochs[0])) == 4

    def test_fixed_without_resample(self, words):
        reader = words(resample=False)
        calls = [[self.places(reader.text_to_instance(text)) for text in TEXTS] for _ in range(2)]
        assert calls[0] == calls[1] and len(set(calls[0])) == 5
        assert self.places(reader.text_to_instance(TEXTS[0], epoch=3)) == calls[0][0]

    def test_whole_texts_are_not_counted(self, words):
        reader, fresh = words(), words()
        with reader.no_sample():
            first = [str(reader.text_to_instance(TEXTS[0])["anchors"]) for _ in range(2)]
        assert first[0] == first[1]
        assert spans(reader.text_to_instance(TEXTS[0])) == spans(fresh.text_to_instance(TEXTS[0]))

    def places(self, instance) -> str:
        """Return the interval of words of each span in its text."""
        return json.dumps(
            [
                [int(str(text.tokens[0])[1:]), int(str(text.tokens[-1])[1:]) + 1]
                for key in ("anchors", "positives")
                for text in instance[key].field_list
            ]
        )

    def test_a_short_text_is_refused(self, make):
        with pytest.raises(DocumentTooShort, match=r"0 tokens is too short .* already need 4"):
            make().text_to_instance("")


class TestFormats:
    def test_the_path_may_be_a_list_or_a_folder(self, words, tmp_path):
        folder = tmp_path / "corpus"
        folder.mkdir()
        (folder / "a.txt").write_text("a " * 50 + "\n")
        (folder / "b.jsonl").write_text(json.dumps({"text": "b " * 50}) + "\n")
        for path in (folder, str(folder), [folder / "a.txt", str(folder / "b.jsonl")]):
            assert len(list(words().read(path))) == 2
        assert len(list(words(num_anchors=None).read([folder / "b.jsonl"] * 3))) == 3

    def test_options_reach_the_source(self, words, tmp_path):
        (tmp_path / "a.jsonl").write_text(json.dumps({"body": "b " * 50}) + "\n")
        assert len(list(words(text_key="body").read(tmp_path / "a.jsonl"))) == 1
        (tmp_path / "a.txt").write_bytes(b"\xff " * 50)
        assert len(list(words(encoding_errors="replace").read(tmp_path / "a.txt"))) == 1

    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("missing.txt", None, "Found no documents at .*missing.txt"),
            ("bad.txt", b"fine\n\xff\n", "line 2: byte 1 is not valid UTF-8 .*Convert"),
            ("a.jsonl", b'{"body": "a"}\n', r"no key 'text'. Found \['body'\]; set text_key"),
        ],
    )
    def test_unreadable(self, words, tmp_path, whole, name, content, message):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        reader = words(num_anchors=None) if whole else words()
        with pytest.raises(ConfigurationError, match=message):
            list(reader.read(tmp_path / name))

    def test_empty(self, words, tmp_path):
        (tmp_path / "a.txt").touch()
        with pytest.raises(ConfigurationError, match="corpus is empty: not a single row"):
            list(words().read(tmp_path / "a.txt"))
        with pytest.raises(SourceError, match="corpus is empty"):
            words().documents(tmp_path / "a.txt")
        assert list(words(num_anchors=None).read(tmp_path / "a.txt")) == []


class TestTokenisedOnce:
    def test_several_readers_tokenise_once(self, make, pair, corpus_file, tmp_path, monkeypatch):
        calls = Counter()
        kind = type(make()._codec)
        encode = kind.encode
        monkeypatch.setattr(
            kind, "encode", lambda *args: (calls.update(n=len(args[1])), encode(*args))[1]
        )
        for changes in ({}, {"max_span_len": 16}, {"num_anchors": None}, {"seed": 3}):
            reader = make(cache_dir=str(tmp_path), **changes)
            assert len(reader.corpus(corpus_file)) == 24
            for row in range(24):
                reader.instance(corpus_file, row)
        assert calls["n"] == 24

    def test_pickled_readers_do_not_carry_the_corpus(self, make, corpus_file):
        reader = make()
        before = len(pickle.dumps(reader))
        reader.documents(corpus_file)
        assert len(pickle.dumps(reader)) < before + 2000
        twin = pickle.loads(pickle.dumps(reader))
        assert epoch_of(twin, corpus_file, 1) == epoch_of(reader, corpus_file, 1)
        assert epoch_of(copy.deepcopy(reader), corpus_file, 1) == epoch_of(twin, corpus_file, 1)


class TestBadSettings:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"min_span_len": 25}, "min_span_len is 25, longer than max_span_len, which is 24. L"),
            (
                {"max_span_len": 129},
                "max_span_len is 129, but the transformer takes 128 tokens. Low",
            ),
            ({"sampling_strategy": "adjacnet"}, "unknown strategy 'adjacnet'.*mean 'adjacent'"),
            (
                {"placement": "gird"},
                "unknown placement 'gird'; known: uniform, uniform_v1, grid. Did you",
            ),
            ({"short_documents": "merge"}, "Unknown short_documents 'merge'.*shrink, skip, error"),
            ({"num_anchors": 0}, "num_anchors must be an integer of at least 1, not 0"),
            ({"num_positives": 0}, "num_positives must be an integer of at least 1, not 0"),
            ({"min_span_len": 0}, "min_span_len must be an integer of at least 1, not 0"),
            ({"max_span_len": None}, "num_anchors is 2, so max_span_len must be given as well"),
            (
                {"num_positives": None, "min_span_len": None},
                "so num_positives, min_span_len must be given",
            ),
        ],
    )
    def test_invalid_settings_are_refused_with_advice(self, make, changes, message):
        with pytest.raises(ConfigurationError, match=message):
            make(**changes)

    def test_spans_may_be_as_long_as_the_transformer_takes(self, make, corpus_file):
        reader = make(num_anchors=1, max_span_len=128, min_span_len=128)
        (anchor,) = reader.instance(corpus_file, 0)["anchors"].spans
        assert len(anchor) == 128  # Special tokens take the place of two tokens.

    def test_the_tokenizer_may_cut_earlier(self, pair, checkpoint, corpus_file):
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), max_length=20)
        reader = DeCLUTRDatasetReader(tokenizer, pair[1], **{**SPANS, "min_span_len": 24})
        assert set(map(len, reader.instance(corpus_file, 0)["anchors"].spans)) == {20}

    def test_adjacent_positives_without_room_are_refused(self, words, tmp_path):
        tight = {"num_anchors": 1, "sampling_strategy": "adjacent", "min_span_len": 6}
        with pytest.raises(
            ConfigurationError,
            match=r"min_span_len = 6 tokens may fit on neither side .* Lower min_span_len to 5 "
            r".*or raise min_document_len to 21",
        ):
            words(**tight)
        (tmp_path / "a.txt").write_text("w " * 21 + "\n" + "w " * 20 + "\n")
        for reader, rows in (
            (words(**tight, min_document_len=21), [0]),
            (words(**{**tight, "min_span_len": 5}), [0, 1]),
        ):
            assert reader.documents(tmp_path / "a.txt").tolist() == rows
            for row, epoch in ((row, epoch) for row in rows for epoch in range(200)):
                reader.sample(tmp_path / "a.txt", row, epoch)
        words(**{**tight, "num_anchors": 2})  # Two anchors need longer documents in any case.

    def test_words_have_no_limit(self, words):
        words(max_span_len=100_000)

    def test_unknown_encoding_errors(self, words, lengths_file):
        with pytest.raises(ConfigurationError, match="Unknown encoding_errors 'ignore': expected"):
            list(words(encoding_errors="ignore").read(lengths_file))

    def test_cannot_sample_without_anchors(self, make, corpus_file):
        with pytest.raises(ConfigurationError, match="no num_anchors: it cannot sample"):
            make(num_anchors=None).sample(corpus_file, 0, 0)

    @pytest.mark.parametrize("lazy", [True, False])
    def test_the_option_lazy_warns(self, make, lazy):
        with pytest.warns(UserWarning, match="'lazy' has had no meaning since AllenNLP 2: remove"):
            make(lazy=lazy)


class LineReader(DeCLUTRDatasetReader):
    """A user's reader with its own source of texts, which calls `text_to_instance`."""

    def _read(self, file_path):
        for text in self.shard_iterable(Path(file_path).read_text().splitlines()):
            yield self.text_to_instance(text)


class TestAllenNLPLoader:
    """AllenNLP's own loader also gets fresh spans in every epoch."""

    LOADERS = pytest.mark.parametrize(
        ("workers", "method"), [(0, "fork"), (2, "fork"), (1, "spawn")]
    )

    def loader(self, reader, path, workers, method="fork", in_memory=8):
        loader = MultiProcessDataLoader(
            reader,
            str(path),
            batch_size=4,
            num_workers=workers,
            start_method=method,
            max_instances_in_memory=in_memory,
            quiet=True,
        )
        loader.index_with(Vocabulary.empty())
        return loader

    def read(self, loader) -> list[str]:
        """Return every document of an epoch, without its padding."""
        documents = []
        for batch in loader:
            pairs = [batch[name]["tokens"] for name in ("anchors", "positives")]
            for row in range(len(pairs[0]["token_ids"])):
                documents.append(
                    json.dumps(
                        [
                            [
                                ids[mask].tolist()
                                for ids, mask in zip(
                                    g["token_ids"][row], g["mask"][row], strict=True
                                )
                            ]
                            for g in pairs
                        ]
                    )
                )
        return documents

    @pytest.mark.slow
    @LOADERS
    def test_fresh_spans_every_epoch_each_document_once(self, make, corpus_file, workers, method):
        reader = make()
        loader = self.loader(reader, corpus_file, workers, method)
        for epoch in range(3 if method == "fork" else 2):
            assert sorted(self.read(loader)) == sorted(epoch_of(reader, corpus_file, epoch))

    @pytest.mark.slow
    def test_a_subclass_with_its_own_read_gets_fresh_spans(self, tmp_path):
        """AllenNLP starts the workers anew in every epoch, whatever their number."""
        file = tmp_path / "texts.txt"
        file.write_text("\n".join(TEXTS) + "\n")
        epochs = []
        for workers in (0, 2):
            reader = LineReader(**WORDS)
            loader = self.loader(reader, file, workers)
            loader.index_with(Vocabulary())
            epochs.append([sorted(map(spans, loader.iter_instances())) for _ in range(3)])
        assert epochs[0] == epochs[1]
        assert len({text for epoch in epochs[0] for text in epoch}) == 3 * len(TEXTS)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", [DeCLUTRDatasetReader, LineReader])
    @pytest.mark.parametrize("workers", [0, 2])
    def test_reading_inside_same_epoch_after_does_not_count(self, kind, workers, tmp_path):
        file = tmp_path / "texts.txt"
        file.write_text("\n".join(TEXTS) + "\n")
        loaders = [self.loader(kind(**WORDS), file, workers) for _ in range(2)]

        def read(loader):
            return sorted(map(spans, loader.iter_instances()))

        for loader in loaders:
            loader.index_with(Vocabulary())
            read(loader)
        looked, not_looked = loaders
        with looked.reader.same_epoch_after():
            look = read(looked)
        assert read(looked) == read(not_looked) == look
        assert read(looked) == read(not_looked) != look

    def test_instances_kept_in_memory_are_not_fresh(self, make, corpus_file):
        """AllenNLP keeps the instances if `max_instances_in_memory` is not set."""
        with pytest.warns(UserWarning, match="keeps every instance in memory"):
            loader = self.loader(make(), corpus_file, 0, in_memory=None)
        assert self.read(loader) == self.read(loader)

    @pytest.mark.slow
    def test_loaders_that_share_a_reader_each_read_every_epoch(self, make, corpus_file):
        """Training and validation may have different numbers of workers."""
        reader = make()
        train, validation, plain = (self.loader(reader, corpus_file, n) for n in (2, 1, 0))
        expected = [sorted(epoch_of(reader, corpus_file, epoch)) for epoch in range(3)]
        for epoch in range(3):
            assert sorted(self.read(train)) == expected[epoch]
            assert sorted(self.read(validation)) == expected[epoch]
            assert sorted(self.read(plain)) == expected[epoch]

    def test_workers_read_disjoint_parts(self, make, corpus_file):
        expected = sorted(epoch_of(make(), corpus_file, 0))
        parts = []
        for worker in range(3):
            reader = make()
            reader._set_worker_info(WorkerInfo(3, worker))
            parts.append(list(map(spans, reader.read(corpus_file))))
        assert sorted(itertools.chain(*parts)) == expected
        assert [len(part) for part in parts] == [8, 8, 8]

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("whole", [False, True])
    def test_workers_together_read_max_instances(self, make, corpus_file, workers, whole):
        reader = make(max_instances=5)
        reader.sample_spans = not whole
        loader = self.loader(reader, corpus_file, workers)
        assert sum(len(batch["anchors"]["tokens"]["mask"]) for batch in loader) == 5

    def test_whole_texts_in_order(self, make, documents, corpus_file):
        reader = make()
        with reader.no_sample():
            batches = list(self.loader(reader, corpus_file, 0))
        ids = [ids for batch in batches for ids in batch["anchors"]["tokens"]["token_ids"]]
        expected = reader._codec.encode(documents)[0]
        assert [row[1:9].tolist() for row in ids] == [row[:8].tolist() for row in expected]

    @pytest.mark.slow
    def test_more_workers_than_documents(self, words, tmp_path):
        (tmp_path / "a.txt").write_text("a " * 50 + "\n")
        loader = self.loader(words(), tmp_path / "a.txt", 2)
        assert [len(batch["anchors"]["tokens"]["tokens"]) for batch in loader] == [1]
