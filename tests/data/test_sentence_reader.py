"""Tests of the reader "sentences"; the oracle is the rows as written.

What it shares with the other readers is tested in test_row_reader.py.
"""

import logging
import pickle

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from declutr.data import document_rows
from declutr.data.sentence_reader import SentenceReader
from declutr.sampling import document_selection
from tests.data.batches import (
    allennlp_loader,
    assert_same,
    collated,
    loader_of,
    read_texts,
    texts,
    token_ids,
)

# These are documents, one of them of a single sentence, and rows of white space, which are blank.
ROWS = ["ka lo mi", "tu re", "  sa   no ve ", "", " ", "pi du ka lo", "", "mi", "tu", "re sa", ""]
SENTENCES = [0, 1, 2, 5, 7, 8, 9]
PAIRS = [0, 1, 7, 8]
DOCUMENTS = [0, 0, 0, 0, 1, 2, 2, 3, 3, 3, 3]  # The number of blank rows before each.


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("sentences") / "rows.txt"
    file.write_text("\n".join(ROWS) + "\n")
    return file


@pytest.fixture
def make(pair):
    return lambda **changes: SentenceReader(*pair, **changes)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="declutr.data.sentence_reader")
    return caplog


class TestSentences:
    def test_blank_rows_are_left_out(self, make, pair, rows_file, log):
        reader = make()
        assert reader.documents(rows_file).tolist() == SENTENCES
        summary = "11 rows; 7 sentences used; 4 skipped (4 blank). 0 are too long and are cut."
        assert summary in log.text
        for row in SENTENCES:
            instance = reader.instance(rows_file, row)
            assert list(instance.fields) == ["anchors"]
            assert read_texts(instance) == [[token_ids(pair, ROWS[row])]]

    def test_short_ones_are_left_out(self, make, rows_file, pair, log):
        expected = [row for row in range(11) if len(token_ids(pair, ROWS[row])) - 2 >= 4]
        assert 0 < len(expected) < len(SENTENCES)
        assert make(min_document_len=4).documents(rows_file).tolist() == expected
        assert f"{11 - len(expected)} skipped (4 blank)" in log.text

    def test_those_that_are_cut_are_counted(self, pair, checkpoint, rows_file, log):
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), max_length=5)
        reader = SentenceReader(tokenizer, pair[1])
        reader.documents(rows_file)
        long = sum(len(token_ids(pair, row)) > 5 for row in ROWS)
        assert 0 < long < 7 and f"{long} are too long and are cut" in log.text

    def test_the_same_in_every_epoch(self, make, rows_file, recwarn):
        reader = make()
        expected = collated(reader, rows_file, SENTENCES)
        assert expected["anchors"]["tokens"]["token_ids"].shape[:-1] == (7,)
        assert_same(reader.packed(rows_file, SENTENCES, 5).tensors(), expected)
        loader = allennlp_loader(reader, rows_file, max_instances_in_memory=None)
        assert sorted(texts(loader)) == sorted(texts([expected]))
        assert not [one for one in recwarn if "keeps every instance" in str(one.message)]


class TestNeighbours:
    def test_pairs_stay_inside_documents(self, make, pair, rows_file, log):
        reader = make(positives="next")
        assert reader.documents(rows_file).tolist() == PAIRS
        assert "7 sentences used, which make 4 pairs of neighbours; 4 skipped" in log.text
        for row in PAIRS:
            fields = reader.instance(rows_file, row)
            expected = [[token_ids(pair, text)] for text in ROWS[row : row + 2]]
            assert read_texts(fields, "anchors", "positives") == expected

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            pytest.param("a b\nc d\ne\nf g\nh i\n", [0, 3], id="beside-a-short-one"),
            pytest.param("a b\nc d", [0], id="the-last-row"),
        ],
    )
    def test_a_sentence_may_have_no_neighbour(self, tmp_path, content, expected):
        (tmp_path / "a.txt").write_text(content)
        reader = SentenceReader(positives="next", min_document_len=2)
        assert reader.documents(tmp_path / "a.txt").tolist() == expected

    @pytest.mark.parametrize("at_once", [1, 2, 3, 10, 11, 12])
    def test_pairs_do_not_depend_on_the_block_size(self, make, rows_file, at_once, monkeypatch):
        monkeypatch.setattr(document_selection, "_AT_ONCE", at_once)
        assert make(positives="next").documents(rows_file).tolist() == PAIRS
        assert make().documents(rows_file).tolist() == SENTENCES

    def test_a_corpus_without_neighbours_is_refused(self, tmp_path):
        (tmp_path / "a.txt").write_text("a\n\nb\n")
        with pytest.raises(
            ConfigurationError,
            match=r"2 of 3 rows have at least 1 token\(s\) \(min_document_len\), and no two of "
            r"them follow each other. Write .*split-sentences",
        ):
            SentenceReader(positives="next").documents(tmp_path / "a.txt")


@pytest.mark.parametrize("positives", [None, "next"])
class TestIds:
    def test_documents_are_counted_by_blank_rows(self, make, rows_file, tmp_path, positives):
        reader = make(positives=positives, with_ids=True)
        rows = reader.documents(rows_file)
        packed = reader.packed(rows_file, rows).tensors()
        assert packed["documents"].tolist() == [DOCUMENTS[row] for row in rows]
        (tmp_path / "a.txt").write_text("ka lo\nmi\ntu\n")  # No row is blank.
        assert reader.packed(tmp_path / "a.txt", [1, 0]).tensors()["documents"].tolist() == [0, 0]

    def test_whole_rows_have_none(self, make, rows_file, positives):
        reader = make(positives=positives, with_ids=True)
        assert list(reader.text_to_instance("ka lo").fields) == ["anchors"]

    def test_blank_rows_are_found_once_and_before_workers_start(
        self, make, rows_file, positives, monkeypatch
    ):
        calls = []
        found = document_rows.rows_where

        def counted(chosen, lengths) -> np.ndarray:
            calls.append(len(lengths))
            return found(chosen, lengths)

        monkeypatch.setattr(document_rows, "rows_where", counted)
        batches = loader_of(make(positives=positives, with_ids=True), rows_file, batch_size=2)
        len(batches)
        assert calls == [11]
        list(batches), list(batches)
        assert calls == [11]


class TestSettings:
    def test_from_params(self, checkpoint, rows_file):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        params = {
            "type": "sentences",
            "positives": "next",
            "tokenizer": transformer,
            "token_indexers": {"tokens": dict(transformer)},
            "max_instances": 2,
            "with_ids": True,
        }
        reader = DatasetReader.from_params(Params(params))
        assert isinstance(reader, SentenceReader) and len(list(reader.read(rows_file))) == 2
        assert reader.packed(rows_file, [7]).tensors()["documents"].tolist() == [3]
        twin = pickle.loads(pickle.dumps(reader))
        assert_same(twin.packed(rows_file, [0]).tensors(), collated(reader, rows_file, [0]))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"positives": "previous"}, "Unknown positives 'previous': expected 'next' for the n"),
            ({"min_document_len": 0}, "min_document_len must be at least 1 token, got 0: a blank"),
            ({"encoding_errors": "ignore"}, "Unknown encoding_errors 'ignore': expected one of"),
            (
                {"min_document_len": 99},
                r"0 of 11 rows have at least 99 token\(s\) \(min_document_len\). Add sentences, or "
                "lower min_document_len",
            ),
        ],
    )
    def test_invalid_settings_are_refused(self, make, rows_file, changes, message):
        with pytest.raises(ConfigurationError, match=message):
            list(make(**changes).read(rows_file))
