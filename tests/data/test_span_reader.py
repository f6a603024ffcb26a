"""Tests of the reader "declutr".

The oracles are `SpanSampler` with the same random numbers, and slices of the documents. What it
shares with the other readers is tested in test_row_reader.py.
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
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from declutr.corpus.documents import SourceError
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.sampling.row_draws import document_rng, text_digest
from declutr.sampling.spans import PLACEMENTS, DocumentTooShort, SpanSampler
from tests.data.batches import allennlp_loader, as_tensors, collated, read_texts, texts, token_ids

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
    return str(read_texts(instance, "anchors", "positives"))


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

    @pytest.mark.parametrize("changes", [{"sampling_strategy": "ADJACENT"}, {"placement": "grid"}])
    def test_settings_reach_the_sampler(self, words, lengths_file, changes):
        reader = words(num_anchors=1, **changes)
        for epoch in range(20):
            ((start, end),), ((positive,),) = reader.sample(lengths_file, 6, epoch)
            if "placement" in changes:
                assert start // 10 == (end - 1) // 10  # The span lies inside one block.
            else:
                assert positive[0] == end or positive[1] == start

    @pytest.mark.parametrize(
        "changes",
        [{"anchor_beta": [1, 9]}, {"positive_beta": [9.0, 1]}, {"placement": "grid"}],
    )
    def test_lengths_follow_the_beta_laws_that_are_given(self, words, lengths_file, changes):
        settings = {"placement": "uniform", "anchor_beta": (4, 2), "positive_beta": (2, 4)}
        oracle = SpanSampler(2, 1, 2, 10, **{**settings, **changes})
        reader, usual = words(**changes), words()
        drawn = [reader.sample(lengths_file, 6, epoch) for epoch in range(30)]
        for epoch, spans in enumerate(drawn):
            expected = oracle.sample(200, document_rng(SEED, epoch, 6))
            assert all(map(np.array_equal, spans, expected))
        units = reader.expected_tokens().units(np.array([200])) / 64
        lengths = [np.diff(part).sum() for spans in drawn for part in spans]
        assert sum(lengths) / 30 == pytest.approx(units.item(), rel=0.15)
        assert str(drawn) != str([usual.sample(lengths_file, 6, epoch) for epoch in range(30)])

    def test_the_laws_of_the_paper_are_the_default(self, words, lengths_file):
        paper = words(anchor_beta=[4, 2], positive_beta=[2, 4])
        assert epoch_of(paper, lengths_file, 3) == epoch_of(words(), lengths_file, 3)

    def test_from_params(self, checkpoint, corpus_file):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        params = {
            "type": "declutr",
            **SPANS,
            "anchor_beta": [1, 2],
            "tokenizer": transformer,
            "token_indexers": {"tokens": dict(transformer)},
            "max_instances": 3,
        }
        reader = DatasetReader.from_params(Params(params))
        assert isinstance(reader, DeCLUTRDatasetReader)
        assert len(list(reader.read(str(corpus_file)))) == 3


class TestIds:
    def test_rows_are_counted_over_files(self, words, tmp_path):
        for number in range(2):
            (tmp_path / f"{number}.txt").write_text("w " * 50 + "\n" + "w " * 60 + "\n")
        reader = words(with_ids=True, resample=False)
        assert [one["ids"].label for one in reader.read(tmp_path)] == [0, 1, 2, 3]

    def test_a_text_of_no_corpus_has_none(self, make, documents):
        instance = make(with_ids=True).text_to_instance(documents[3], row=3)
        assert list(instance.fields) == ["anchors", "positives"]


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
        summary = "7 documents; 5 used, of which 2 with shrunken spans; 2 skipped (1 blank)"
        assert summary in caplog.text
        assert len(list(reader.read(lengths_file))) == 5
        anchors, _ = reader.sample(lengths_file, 4, 0)  # It has 39 words, so spans have up to 9.
        assert (anchors[:, 1] - anchors[:, 0]).max() <= 9

    def test_skip(self, words, lengths_file, caplog):
        with caplog.at_level(logging.INFO, logger="declutr.sampling.document_selection"):
            assert words(short_documents="skip").documents(lengths_file).tolist() == [0, 5, 6]
        summary = "7 documents; 3 used, of which 0 with shrunken spans; 4 skipped (1 blank)"
        assert summary in caplog.text

    def test_error(self, words, lengths_file):
        said = r"lengths.txt: row 4 has 4 tokens, and 2 of 7 documents have fewer than .* = 40. "
        said += "Set short_documents to 'shrink' or 'skip', or lower max_span_len"
        with pytest.raises(ConfigurationError, match=said):
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
        ("changes", "content", "longest", "needed"),
        [
            ({"short_documents": "skip"}, "one two\n\nthree\n", 2, 40),
            ({}, "one two\n\nthree\n", 2, 4),
            ({"min_document_len": 7}, "one two\n\nthree\n", 2, 7),
            ({}, "\n\n\n", 0, 4),
        ],
    )
    def test_a_corpus_of_short_documents_is_refused(
        self, words, tmp_path, changes, content, longest, needed
    ):
        (tmp_path / "a.txt").write_text(content)
        with pytest.raises(
            ConfigurationError,
            match=f"none of the 3 documents is long enough. The longest has {longest} tokens, and "
            f"at least {needed} are needed .*Lower max_span_len",
        ):
            words(**changes).documents(tmp_path / "a.txt")

    @pytest.mark.parametrize("strategy", [None, "subsuming", "adjacent"])
    @pytest.mark.parametrize("placement", PLACEMENTS)
    @pytest.mark.parametrize("anchors", [1, 3])
    def test_every_shrunken_document_gives_spans(
        self, words, tmp_path, strategy, placement, anchors
    ):
        (tmp_path / "a.txt").write_text("".join("w " * count + "\n" for count in range(70)))
        reader = words(
            num_anchors=anchors, sampling_strategy=strategy, placement=placement, min_span_len=5
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
        with reader.no_sample():
            assert len(list(reader.read(lengths_file))) == 2
            assert reader.documents(lengths_file).tolist() == [0, 1]


class TestWholeTexts:
    def test_without_num_anchors_rows_are_whole(self, make, pair, tmp_path):
        rows = ["first row", "", "  third   row ", "", "last"]
        (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
        reader = make(num_anchors=None, cache_dir=str(tmp_path / "stores"))
        assert not reader.sample_spans and not reader.draws_anew
        instances = list(reader.read(tmp_path / "rows.txt"))
        assert [list(instance.fields) for instance in instances] == [["anchors"]] * 5
        expected = [token_ids(pair, row) for row in rows]
        assert [read_texts(one) for one in instances] == [[[ids]] for ids in expected]
        assert not (tmp_path / "stores").exists()  # Whole texts are streamed and not kept.
        mask = as_tensors(instances)["anchors"]["tokens"]["mask"]
        assert mask.sum(1).tolist() == list(map(len, expected))

    def test_sampling_is_refused(self, make, corpus_file):
        reader = make(num_anchors=None)
        with pytest.raises(ConfigurationError, match="has no num_anchors: it cannot sample spans"):
            reader.sample(corpus_file, 0, 0)
        reader.sample_spans = True
        with pytest.raises(ConfigurationError, match="has no num_anchors: it cannot sample spans"):
            list(reader.read(corpus_file))

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

    def test_blank_rows_of_words(self, words, tmp_path):
        (tmp_path / "rows.txt").write_text("two words\n\n")
        batch = as_tensors(list(words(num_anchors=None).read(tmp_path / "rows.txt")))
        assert batch["anchors"]["tokens"]["tokens"].shape == (2, 2)


class TestTextToInstance:
    def test_sampled_like_the_corpus(self, make, corpus_file, documents):
        reader = make()
        for row, epoch in ((0, 0), (3, 2)):
            mine = reader.text_to_instance(documents[row], row=row, epoch=epoch)
            assert spans(mine) == spans(reader.instance(corpus_file, row, epoch))

    @pytest.mark.parametrize(
        ("settings", "given", "draws"),
        [
            ({}, {}, [(SEED, 0, 0), (SEED, 0, 1), (SEED, 0, 2)]),
            ({"seed": 1}, {}, [(1, 0, 0), (1, 0, 1), (1, 0, 2)]),
            ({}, {"epoch": 2}, [(SEED, 2, 0)] * 3),
            ({"resample": False}, {}, [(SEED, 0, 0)] * 3),
            ({"resample": False}, {"epoch": 2}, [(SEED, 0, 0)] * 3),
        ],
    )
    def test_spans_are_drawn_by_the_digest_of_the_text_and_the_call(
        self, words, settings, given, draws
    ):
        """Seed, epoch and number of the call are given for three calls with each text."""
        reader = words(**settings)
        for seed, epoch, call in draws:
            for text in TEXTS:
                rng = document_rng(seed, epoch, text_digest(text), call)
                anchors, positives = SpanSampler(2, 1, 2, 10).sample(60, rng)
                drawn = [*anchors.tolist(), *positives[:, 0].tolist()]
                instance = reader.text_to_instance(text.replace(" ", "  "), **given)
                assert self.places(instance) == drawn

    def test_whole_texts_are_not_counted(self, words):
        reader, fresh = words(), words()
        with reader.no_sample():
            first = [str(reader.text_to_instance(TEXTS[0])["anchors"]) for _ in range(2)]
        assert first[0] == first[1]
        assert spans(reader.text_to_instance(TEXTS[0])) == spans(fresh.text_to_instance(TEXTS[0]))

    def places(self, instance) -> list[list[int]]:
        """Return the interval of words of each span in its text."""
        spans = [text for key in ("anchors", "positives") for text in instance[key].field_list]
        ends = [[int(str(span.tokens[place])[1:]) for place in (0, -1)] for span in spans]
        return [[first, last + 1] for first, last in ends]

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

    def test_a_missing_key_is_refused(self, words, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"body": "a"}\n')
        said = r"no key 'text'. Found \['body'\]; set text_key"
        for reader in (words(), words(num_anchors=None)):
            with pytest.raises(ConfigurationError, match=said):
                list(reader.read(tmp_path / "a.jsonl"))

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
            ({"max_span_len": 129}, "max_span_len is 129, but the transformer takes 128 tokens. L"),
            ({"anchor_beta": [4]}, r"anchor_beta must be two positive numbers, not \[4\]"),
            (
                {"positive_beta": [2, 0]},
                r"positive_beta must be two positive numbers, not \[2, 0\]",
            ),
            ({"sampling_strategy": "adjacnet"}, "unknown strategy 'adjacnet'.*mean 'adjacent'"),
            ({"placement": "gird"}, "unknown placement 'gird'; known: uniform, uniform_v1, grid"),
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

    @pytest.mark.slow
    def test_fresh_spans_in_workers_that_are_not_forked(self, make, corpus_file):
        reader = make()
        loader = allennlp_loader(reader, corpus_file, 1, start_method="forkserver")
        for epoch in range(2):
            expected = collated(reader, corpus_file, range(24), epoch)
            assert sorted(texts(loader)) == sorted(texts([expected]))

    @pytest.mark.slow
    def test_a_subclass_with_its_own_read_gets_fresh_spans(self, tmp_path):
        """AllenNLP starts the workers anew in every epoch, whatever their number."""
        file = tmp_path / "texts.txt"
        file.write_text("\n".join(TEXTS) + "\n")
        epochs = []
        for workers in (0, 2):
            loader = allennlp_loader(LineReader(**WORDS), file, workers)
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
        loaders = [allennlp_loader(kind(**WORDS), file, workers) for _ in range(2)]

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
            loader = allennlp_loader(make(), corpus_file, max_instances_in_memory=None)
        assert texts(loader) == texts(loader)

    @pytest.mark.slow
    def test_loaders_that_share_a_reader_each_read_every_epoch(self, make, corpus_file):
        """Training and validation may have different numbers of workers."""
        reader = make()
        loaders = [allennlp_loader(reader, corpus_file, workers) for workers in (2, 1, 0)]
        for epoch in range(3):
            expected = sorted(texts([collated(reader, corpus_file, range(24), epoch)]))
            for loader in loaders:
                assert sorted(texts(loader)) == expected

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
        loader = allennlp_loader(reader, corpus_file, workers)
        assert sum(len(batch["anchors"]["tokens"]["mask"]) for batch in loader) == 5

    @pytest.mark.slow
    def test_more_workers_than_documents(self, words, tmp_path):
        (tmp_path / "a.txt").write_text("a " * 50 + "\n")
        loader = allennlp_loader(words(), tmp_path / "a.txt", 2)
        assert [len(batch["anchors"]["tokens"]["tokens"]) for batch in loader] == [1]
