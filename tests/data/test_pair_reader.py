"""Tests of the reader "text_pairs"; the oracle is the tokenizer, text by text.

What it shares with the other readers is tested in test_row_reader.py.
"""

import json
import logging
import pickle

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from declutr.corpus.documents import SourceError
from declutr.corpus.text_pairs import TextPair
from declutr.data.codecs import WordPieceCodec
from declutr.data.collation import PackedBatch
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.pair_reader import TextPairReader
from declutr.data.pair_rows import TokenizedPairs
from tests.data.batches import as_tensors, assert_same, collated, num_tokens, read_texts, token_ids

ROWS = [
    {"anchor": "ka lo", "positive": "mi tu re", "n1": "sa", "n2": "no ve", "label": 2},
    {"anchor": "pi", "positive": "ka lo", "n1": "mi", "n2": "sa", "label": 0},
    {"anchor": "tu  tu tu", "positive": "re", "n1": "pi du", "n2": "ka", "label": 1},
    {"anchor": "no", "positive": "du du", "n1": "re", "n2": "lo", "label": 2},
    {"anchor": "ve", "positive": "sa no", "n1": "ka", "n2": "mi", "label": 0},
]
KEYS = list(ROWS[0])
FULL = {"negative": ["n1", "n2"], "labels": "class"}
HEADER = "anchor\tpositive\tlabel"
NLI = [
    ("ka lo", "mi", "entailment"),
    ("ka lo", "tu", "contradiction"),
    ("ka lo", "re", "neutral"),
    ("sa", "no", "entailment"),
    ("sa", "ve pi", "contradiction"),
    ("sa", "du", "-"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    lines = ["\t".join(map(str, row.values())) for row in ROWS]
    (folder / "bare.tsv").write_text("\n".join(lines) + "\n")
    (folder / "pairs.tsv").write_text("\n".join(["\t".join(KEYS), *lines]) + "\n")
    nli = [(label, premise, hypothesis) for premise, hypothesis, label in NLI]
    nli.insert(0, ("gold_label", "sentence1", "sentence2"))
    (folder / "nli.tsv").write_text("".join("\t".join(row) + "\n" for row in nli))
    rng = np.random.default_rng(0)
    syllables = ["ka", "lo", "mi", "tu", "re", "sa", "no", "ve", "pi", "du"]
    many = [
        "\t".join(" ".join(rng.choice(syllables, rng.integers(1, 90))) for _ in range(4))
        + f"\t{number % 5}"
        for number in range(43)
    ]
    (folder / "many.tsv").write_text("\n".join(["\t".join(KEYS), *many]) + "\n")
    return folder


@pytest.fixture
def make(pair):
    return lambda **changes: TextPairReader(*pair, **changes)


class TestInstances:
    @pytest.mark.parametrize(
        ("name", "columns"),
        [
            ("pairs.jsonl", {}),
            ("pairs.tsv", {}),
            ("pairs.tsv", {"anchor": 0, "positive": 1, "negative": [2, 3], "header": True}),
            ("bare.tsv", {"anchor": 0, "positive": 1, "negative": [2, 3], "label": 4}),
            ("bare.tsv", {"negative": [2, 3], "label": 4}),
        ],
    )
    def test_every_part_from_any_format(self, make, pair, folder, name, columns):
        reader = make(**{**FULL, **columns})
        if columns.get("header"):
            reader = make(**{**FULL, **columns, "label": "label"})
        assert reader.documents(folder / name).tolist() == [0, 1, 2, 3, 4]
        for number, row in enumerate(ROWS):
            instance = reader.instance(folder / name, number)
            assert list(instance.fields) == ["anchors", "positives", "negatives", "labels"]
            anchor, positive, *negatives = (token_ids(pair, row[name]) for name in KEYS[:4])
            parts = read_texts(instance, "anchors", "positives", "negatives")
            assert parts == [[anchor], [positive], negatives]
            assert instance["labels"].label == row["label"]

    def test_pairs_without_labels_or_negatives(self, make, folder):
        instance = make().instance(folder / "pairs.jsonl", 0)
        assert list(instance.fields) == ["anchors", "positives"]

    @pytest.mark.parametrize(
        ("negative", "name", "expected"),
        [("n2", "pairs.tsv", ["no ve"]), ("hard", "list.jsonl", ["mi", "tu", "re"])],
        ids=["one", "in-a-list"],
    )
    def test_number_of_negatives(self, make, pair, folder, negative, name, expected):
        row = {"anchor": "ka", "positive": "lo", "hard": ["mi", "tu", "re"]}
        (folder / "list.jsonl").write_text(json.dumps(row) + "\n")
        instance = make(negative=negative).instance(folder / name, 0)
        assert read_texts(instance, "negatives") == [[token_ids(pair, text) for text in expected]]

    def test_scores(self, make, folder):
        reader = make(labels="score", max_score=5)
        batch = collated(reader, folder / "pairs.tsv", range(3))
        assert batch["labels"].dtype == torch.float32 and batch["labels"].shape == (3,)
        torch.testing.assert_close(batch["labels"], torch.tensor([0.4, 0, 0.2]))

    @pytest.mark.parametrize(
        "changes", [{}, FULL, {"negative": "n1"}, {"labels": "score", "max_score": 2.0}]
    )
    def test_packed_batches_equal_collated_instances(self, make, folder, changes):
        reader, path = make(**changes), folder / "pairs.tsv"
        packed = reader.packed(path, [3, 0, 4]).tensors()
        assert_same(packed, collated(reader, path, [3, 0, 4]))
        assert packed["positives"]["tokens"]["token_ids"].shape[:2] == (3, 1)
        assert ("labels" in packed) is ("labels" in changes)
        assert packed.get("labels", torch.zeros(0)).dtype == (
            torch.int64 if changes is FULL else torch.float32
        )

    def test_packed_batches_are_pinned_with_their_labels(self, make, folder, monkeypatch):
        """Pinning needs a GPU, so the test records which tensors are to be pinned."""
        batch = make(**FULL).packed(folder / "pairs.tsv", [0, 1])
        assert isinstance(batch, PackedBatch)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
        assert_same(batch.pin_memory(), batch.tensors())

    def test_ids_of_triplets_count_triplets(self, make, folder):
        reader = make(format="nli", with_ids=True, resample=False)
        assert [one["ids"].label for one in reader.read(folder / "nli.tsv")] == [0, 1]

    def test_texts_that_are_cut_are_counted(self, pair, checkpoint, folder, caplog):
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), max_length=12)
        reader = TextPairReader(tokenizer, pair[1], negative=["n1", "n2"])
        lines = (folder / "many.tsv").read_text().splitlines()[1:]
        cut = sum(len(token_ids(pair, text)) > 12 for row in lines for text in row.split("\t")[:4])
        with caplog.at_level(logging.INFO, logger="declutr.data.pair_rows"):
            reader.corpus(folder / "many.tsv")
        assert f"43 pairs of 172 different texts, of which {cut} are cut" in caplog.text


class TestTokenizedPairs:
    def test_every_text_is_stored_once(self, pair, monkeypatch):
        encoded = []

        class Recording(WordPieceCodec):
            def encode(self, texts):
                encoded.append(list(texts))
                return super().encode(texts)

        monkeypatch.setattr("declutr.data.pair_rows._TEXTS_AT_ONCE", 2)
        rows = [TextPair("a", "b", ("c",)), TextPair("a", "c", ("b",))]
        pairs = TokenizedPairs(rows, Recording(pair[0]))
        assert encoded == [["a", "b"], ["c"]]
        assert len(pairs) == 2 and pairs.num_texts == 3 and len(pairs.texts(0)) == 3
        assert pairs.labels([0]) is None
        for row, expected in ((0, "abc"), (1, "acb")):
            for array, text in zip(pairs.texts(row), expected, strict=True):
                assert [0, *array.tolist(), 2] == token_ids(pair, text)

    def test_num_tokens_counts_all_texts_of_a_pair(self, make, folder):
        reader, path = make(**FULL), folder / "many.tsv"
        expected = [num_tokens(reader.packed(path, [row]).tensors()) for row in range(43)]
        assert reader.corpus(path).num_tokens.tolist() == expected
        units = reader.expected_tokens().units(reader.corpus(path).num_tokens)
        assert (units / 64).tolist() == expected


class TestInference:
    def test_triplets(self, make, pair, folder):
        reader = make(format="nli")
        fields = [read_texts(reader.instance(folder / "nli.tsv", row)) for row in range(2)]
        expected = [("ka lo", "mi", "tu"), ("sa", "no", "ve pi")]
        assert fields == [[[token_ids(pair, text)] for text in texts] for texts in expected]
        assert len(reader.documents(folder / "nli.tsv")) == 2

    @pytest.mark.parametrize("format", [None, "nli"])
    def test_pairs_with_classes(self, make, pair, folder, format):
        reader = make(format=format, labels="nli")
        batch = reader.packed(folder / "nli.tsv", range(5)).tensors()
        assert batch["labels"].tolist() == [0, 2, 1, 0, 2] and "negatives" not in batch
        assert len(reader.documents(folder / "nli.tsv")) == 5

    def test_given_columns(self, make, tmp_path):
        lines = [json.dumps(dict(zip("phl", row, strict=True))) for row in NLI]
        (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
        reader = make(format="nli", anchor="p", positive="h", label="l")
        assert len(reader.documents(tmp_path / "a.jsonl")) == 2

    def test_several_files_are_one(self, make, tmp_path):
        for number, row in enumerate(NLI[:2]):
            (tmp_path / f"{number}.tsv").write_text("\t".join(row) + "\n")
        assert len(make(format="nli", header=False).documents(tmp_path)) == 1


class TestTexts:
    @pytest.mark.parametrize("sample", [True, False])
    def test_a_text_alone_is_whole(self, make, pair, sample):
        reader = make()
        reader.sample_spans = sample
        instance = reader.text_to_instance(" ka  lo")
        assert list(instance.fields) == ["anchors"]
        assert read_texts(instance) == [[token_ids(pair, "ka lo")]]
        assert reader.sample_spans is sample

    def test_a_pair_of_texts(self, make, folder):
        reader = make(**FULL, with_ids=True)
        mine = reader.text_to_instance("ka lo", "mi  tu re", ["sa", "no ve"], 2)
        expected = collated(reader, folder / "pairs.tsv", [0])
        del expected["ids"]
        assert_same(as_tensors([mine]), expected)
        assert list(reader.text_to_instance("ka", "lo").fields) == ["anchors", "positives"]
        assert reader.text_to_instance("ka", "lo", label=0.5)["labels"].tensor == 0.5


def test_errors_of_the_loader_name_the_file_and_line(make, tmp_path):
    (tmp_path / "a.tsv").write_text("anchor\tpositive\nka\n")
    loader = DeCLUTRDataLoader(make(), str(tmp_path / "a.tsv"), batch_size=1)
    with pytest.raises(ConfigurationError, match=r"a.tsv', line 2 has 1 field\(s\), exp"):
        len(loader)


class TestSettings:
    def test_from_params(self, checkpoint, folder):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        params = {
            "type": "text_pairs",
            "anchor": 0,
            "positive": "positive",
            "negative": ["n1", 3],
            "labels": "class",
            "header": True,
            "tokenizer": transformer,
            "token_indexers": {"tokens": dict(transformer)},
        }
        reader = DatasetReader.from_params(Params(params))
        assert isinstance(reader, TextPairReader)
        expected = TextPairReader(reader._tokenizer, reader._token_indexers, **FULL)
        path = folder / "pairs.tsv"
        assert_same(collated(reader, path, range(5)), collated(expected, path, range(5)))
        twin = pickle.loads(pickle.dumps(reader))
        assert_same(twin.packed(path, [1]).tensors(), reader.packed(path, [1]).tensors())

    @pytest.mark.parametrize("negative", ["n1", 2])
    def test_one_negative_from_params(self, folder, negative):
        params = {"type": "text_pairs", "negative": negative, "header": True}
        reader = DatasetReader.from_params(Params(params))
        assert len(reader.instance(folder / "pairs.tsv", 0)["negatives"].field_list) == 1

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"format": "csv"}, "Unknown format 'csv': expected 'nli' .* Names of files tell"),
            ({"labels": "int"}, "Unknown labels 'int': expected one of class, score, nli"),
            ({"format": "nli", "labels": "class"}, "labels can be 'nli' only, got 'class'"),
            ({"label": "y"}, "The label is in column 'y', but labels does not say what it is"),
            ({"format": "nli", "negative": "n"}, r"Got negative \['n'\], but natural language inf"),
            ({"labels": "score", "max_score": 0}, "max_score must be above 0, got 0"),
            ({"header": False, "anchor": "a"}, r"columns have no names, got \['a'\]. Expected num"),
            ({"anchor": -1}, "Columns are numbered from 0; got a number below that"),
        ],
    )
    def test_contradictory_settings_are_refused(self, make, changes, message):
        with pytest.raises(ConfigurationError, match=message):
            make(**changes)

    @pytest.mark.parametrize(
        ("changes", "content", "message"),
        [
            ({}, "x\ty\n", r"no row holds a pair"),
            ({"encoding_errors": "ignore"}, "x\ty\n", "Unknown encoding_errors 'ignore'"),
            ({}, "x\ty\nka\tlo\n", r"a.tsv', line 2: no column 'anchor', found \['x', 'y'\]"),
            ({"anchor": 5}, "ka\tlo\n", r"line 1: no column 5, found 2 column\(s\), counted "),
            ({"labels": "class"}, f"{HEADER}\nka\tlo\thigh\n", "label is 'high', e"),
            ({"labels": "score"}, f"{HEADER}\nka\tlo\t4\n", "of at most 1. Set max"),
            ({"format": "nli"}, "premise\thypothesis\tlabel\nka\tlo\t4\n", "expected entail"),
        ],
    )
    def test_data_that_does_not_fit_the_settings_is_refused(
        self, make, tmp_path, changes, content, message
    ):
        (tmp_path / "a.tsv").write_text(content)
        with pytest.raises(ConfigurationError, match=message):
            list(make(**changes).read(tmp_path / "a.tsv"))
        with pytest.raises(SourceError, match=message):
            make(**changes).documents(tmp_path / "a.tsv")
