"""Tests of the reader "text_pairs".

The oracles are the tokenizer, text by text; instances for packed batches; and the reader "declutr"
without sampling for whole rows.
"""

import json
import logging
import pickle

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from declutr.corpus.documents import SourceError
from declutr.corpus.text_pairs import TextPair
from declutr.data.codecs import WordPieceCodec
from declutr.data.collation import PackedBatch
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.pair_reader import TextPairReader
from declutr.data.pair_rows import TokenizedPairs
from declutr.data.span_reader import DeCLUTRDatasetReader
from tests.conftest import run_config

ROWS = [
    {"anchor": "ka lo", "positive": "mi tu re", "n1": "sa", "n2": "no ve", "label": 2},
    {"anchor": "pi", "positive": "ka lo", "n1": "mi", "n2": "sa", "label": 0},
    {"anchor": "tu  tu tu", "positive": "re", "n1": "pi du", "n2": "ka", "label": 1},
    {"anchor": "no", "positive": "du du", "n1": "re", "n2": "lo", "label": 2},
    {"anchor": "ve", "positive": "sa no", "n1": "ka", "n2": "mi", "label": 0},
]
KEYS = list(ROWS[0])
FULL = {"negative": ["n1", "n2"], "labels": "class"}
BESIDE = {"labels", "ids"}
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
    nli = ["\t".join(row) for row in (("gold_label", "sentence1", "sentence2"),)]
    nli += ["\t".join((label, premise, hypothesis)) for premise, hypothesis, label in NLI]
    (folder / "nli.tsv").write_text("\n".join(nli) + "\n")
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


def ids(pair, text: str) -> list[int]:
    return pair[0].tokenizer(" ".join(text.split()))["input_ids"]


def collated(reader, path, rows) -> dict:
    batch = Batch([reader.instance(path, int(row)) for row in rows])
    batch.index_instances(Vocabulary.empty())
    return batch.as_tensor_dict()


def assert_same(first, second) -> None:
    """Assert that batches are equal: keys in order, shapes, dtypes and values."""
    for one, other in zip(first, second, strict=True):
        assert list(one) == list(other)
        for field, value in one.items():
            groups = value["tokens"] if field not in BESIDE else {field: value}
            others = other[field]["tokens"] if field not in BESIDE else {field: other[field]}
            for key, tensor in groups.items():
                torch.testing.assert_close(others[key], tensor, rtol=0, atol=0)


def texts(batches) -> list[str]:
    """Return each pair of the batches without its padding."""
    found = []
    for batch in batches:
        fields = [batch[name]["tokens"] for name in sorted(set(batch) - BESIDE)]
        for row in range(len(fields[0]["token_ids"])):
            parts = [group["token_ids"][row][group["mask"][row]].tolist() for group in fields]
            found.append(str([*parts, batch["labels"][row].item() if "labels" in batch else None]))
    return found


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
            read = [
                instance[field].human_readable_repr()
                for field in ("anchors", "positives", "negatives")
            ]
            assert read == [
                [ids(pair, row["anchor"])],
                [ids(pair, row["positive"])],
                [ids(pair, row["n1"]), ids(pair, row["n2"])],
            ]
            assert instance["labels"].label == row["label"]

    def test_pairs_without_labels_or_negatives(self, make, folder):
        instance = make().instance(folder / "pairs.jsonl", 0)
        assert list(instance.fields) == ["anchors", "positives"]

    def test_one_negative(self, make, pair, folder):
        instance = make(negative="n2").instance(folder / "pairs.tsv", 1)
        assert instance["negatives"].human_readable_repr() == [ids(pair, "sa")]

    def test_negatives_in_a_list(self, make, pair, tmp_path):
        row = {"anchor": "ka", "positive": "lo", "hard": ["mi", "tu", "re"]}
        (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
        instance = make(negative="hard").instance(tmp_path / "a.jsonl", 0)
        assert instance["negatives"].human_readable_repr() == [
            ids(pair, text) for text in ("mi", "tu", "re")
        ]

    def test_scores(self, make, folder):
        reader = make(labels="score", max_score=5)
        batch = collated(reader, folder / "pairs.tsv", range(3))
        assert batch["labels"].dtype == torch.float32 and batch["labels"].shape == (3,)
        torch.testing.assert_close(batch["labels"], torch.tensor([0.4, 0, 0.2]))

    @pytest.mark.parametrize(
        "changes",
        [{}, FULL, {"negative": "n1"}, {"labels": "score", "max_score": 2.0}],
    )
    def test_packed_batches_equal_collated_instances(self, make, folder, changes):
        reader, path = make(**changes), folder / "pairs.tsv"
        packed = reader.packed(path, [3, 0, 4]).tensors()
        assert_same([packed], [collated(reader, path, [3, 0, 4])])
        assert packed["positives"]["tokens"]["token_ids"].shape[:2] == (3, 1)
        if "labels" in packed:
            assert packed["labels"].dtype == (
                torch.int64 if changes["labels"] == "class" else torch.float32
            )

    def test_packed_batches_are_pinned_with_their_labels(self, make, folder, monkeypatch):
        """Pinning needs a GPU, so the test records which tensors are to be pinned."""
        batch = make(**FULL).packed(folder / "pairs.tsv", [0, 1])
        assert isinstance(batch, PackedBatch)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
        assert_same([batch.pin_memory()], [batch.tensors()])

    @pytest.mark.parametrize("changes", [{}, FULL, {"labels": "score", "max_score": 2.0}])
    def test_ids(self, make, folder, changes):
        reader, path = make(**changes, with_ids=True, text_key="anchor"), folder / "pairs.tsv"
        packed = reader.packed(path, np.array([3, 0, 4], dtype=np.int32)).tensors()
        assert_same([packed], [collated(reader, path, [3, 0, 4])])
        assert list(packed)[-1] == "ids" and ("labels" in packed) is ("labels" in changes)
        assert packed["ids"].tolist() == [3, 0, 4] and packed["ids"].dtype == torch.int64
        without = make(**changes).packed(path, [3, 0, 4]).tensors()
        assert list(without) == list(packed)[:-1]
        with reader.no_sample():
            assert list(reader.packed(path, [0, 1]).tensors()) == ["anchors"]
            assert list(reader.instance(path, 0).fields) == ["anchors"]
        for texts_of_no_file in (("ka",), ("ka", "lo")):
            assert "ids" not in reader.text_to_instance(*texts_of_no_file).fields

    def test_ids_of_triplets_count_triplets(self, make, folder):
        reader = make(format="nli", with_ids=True, resample=False)
        assert [one["ids"].label for one in reader.read(folder / "nli.tsv")] == [0, 1]

    def test_tails_are_cut_and_counted(self, pair, checkpoint, folder, caplog):
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), max_length=12)
        reader = TextPairReader(tokenizer, pair[1], negative=["n1", "n2"])
        with caplog.at_level(logging.INFO, logger="declutr.data.pair_rows"):
            batch = reader.packed(folder / "many.tsv", range(43)).tensors()
        assert all(batch[name]["tokens"]["mask"].shape[-1] == 12 for name in batch)
        assert "43 pairs of 172 different texts, of which" in caplog.text

    def test_any_tokenizer(self, folder):
        reader = TextPairReader(**FULL)
        batch = Batch(list(reader.read(folder / "pairs.tsv")))
        batch.index_instances(Vocabulary.from_instances(batch.instances))
        tensors = batch.as_tensor_dict()
        assert tensors["negatives"]["tokens"]["tokens"].shape == (5, 2, 2)
        assert sorted(tensors["labels"].tolist()) == [0, 0, 1, 2, 2]

    def test_max_instances(self, make, folder):
        reader = make(max_instances=2)
        assert reader.documents(folder / "pairs.tsv").tolist() == [0, 1]
        assert len(list(reader.read(folder / "pairs.tsv"))) == 2


class TestTokenizedPairs:
    def test_every_text_is_stored_once(self, pair, monkeypatch):
        codec = WordPieceCodec(pair[0])
        encoded = []
        original = WordPieceCodec.encode
        monkeypatch.setattr("declutr.data.pair_rows._TEXTS_AT_ONCE", 2)
        monkeypatch.setattr(
            WordPieceCodec,
            "encode",
            lambda self, texts: (encoded.append(list(texts)), original(self, texts))[1],
        )
        pairs = TokenizedPairs([TextPair("a", "b", ("c",)), TextPair("a", "c", ("b",))], codec)
        assert encoded == [["a", "b"], ["c"]]
        assert len(pairs) == 2 and pairs.num_texts == 3 and len(pairs.texts(0)) == 3
        assert pairs.labels([0]) is None
        for row, expected in ((0, "abc"), (1, "acb")):
            for array, text in zip(pairs.texts(row), expected, strict=True):
                assert [0, *array.tolist(), 2] == ids(pair, text)

    def test_num_tokens_counts_all_texts_of_a_pair(self, make, folder):
        reader, path = make(**FULL), folder / "many.tsv"
        expected = [
            sum(
                int(group["tokens"]["mask"].sum())
                for name, group in reader.packed(path, [row]).tensors().items()
                if name != "labels"
            )
            for row in range(43)
        ]
        assert reader.corpus(path).num_tokens.tolist() == expected
        units = reader.expected_tokens().units(reader.corpus(path).num_tokens)
        assert (units / 64).tolist() == expected


class TestInference:
    def test_triplets(self, make, pair, folder):
        reader = make(format="nli")
        fields = [
            [one[name].human_readable_repr() for name in ("anchors", "positives", "negatives")]
            for one in (reader.instance(folder / "nli.tsv", row) for row in range(2))
        ]
        expected = [("ka lo", "mi", "tu"), ("sa", "no", "ve pi")]
        assert fields == [[[ids(pair, text)] for text in texts] for texts in expected]
        assert len(reader.documents(folder / "nli.tsv")) == 2
        assert "labels" not in reader.instance(folder / "nli.tsv", 0).fields

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


class TestWholeRows:
    """While `sample_spans` is false, instances equal those of "declutr" without sampling."""

    def test_every_row_in_order(self, make, pair, tmp_path):
        (tmp_path / "rows.txt").write_text("ka lo\n\n mi\ttu\n")
        reader, plain = make(**FULL), DeCLUTRDatasetReader(*pair)
        with reader.no_sample():
            for path in (tmp_path / "rows.txt",):
                read = [one["anchors"].human_readable_repr() for one in reader.read(path)]
                assert read == [[ids(pair, text)] for text in ("ka lo", "", "mi tu")]
                assert reader.documents(path).tolist() == [0, 1, 2]
                assert_same(
                    [reader.packed(path, range(3)).tensors()],
                    [plain.packed(path, range(3)).tensors()],
                )
                assert reader.instance(path, 1)["anchors"].human_readable_repr() == [ids(pair, "")]
                assert reader.expected_tokens().units(np.array([3])) == [5 * 64]
        assert reader.sample_spans

    def test_a_text_alone_is_whole(self, make, pair):
        reader = make()
        for sample in (True, False):
            reader.sample_spans = sample
            instance = reader.text_to_instance(" ka  lo")
            assert list(instance.fields) == ["anchors"]
            assert instance["anchors"].human_readable_repr() == [ids(pair, "ka lo")]
            assert reader.sample_spans is sample

    def test_a_pair_of_texts(self, make, pair, folder):
        reader = make(**FULL)
        mine = reader.text_to_instance("ka lo", "mi  tu re", ["sa", "no ve"], 2)
        batch = Batch([mine])
        batch.index_instances(Vocabulary.empty())
        assert_same([batch.as_tensor_dict()], [collated(reader, folder / "pairs.tsv", [0])])
        assert list(reader.text_to_instance("ka", "lo").fields) == ["anchors", "positives"]
        assert reader.text_to_instance("ka", "lo", label=0.5)["labels"].tensor == 0.5


class TestLoader:
    @pytest.fixture
    def loader(self, make, folder):
        def loader(reader=None, **changes) -> DeCLUTRDataLoader:
            options = {"batch_size": 5, "shuffle": True, **changes}
            loader = DeCLUTRDataLoader(reader or make(**FULL), str(folder / "many.tsv"), **options)
            loader.index_with(Vocabulary.empty())
            return loader

        return loader

    def everything(self, folder, reader) -> list[str]:
        return sorted(texts([collated(reader, folder / "many.tsv", range(43))]))

    @pytest.mark.slow
    def test_every_pair_once_for_any_number_of_workers(self, loader, make, folder):
        plain, busy = loader(), loader(num_workers=2)
        epochs = [list(plain) for _ in range(2)]
        for epoch in epochs:
            assert sorted(texts(epoch)) == self.everything(folder, make(**FULL))
            assert_same(epoch, list(busy))
        assert texts(epochs[0]) != texts(epochs[1])  # The order differs.

    def test_a_resumed_run_reads_the_same_batches(self, loader):
        whole, resumed = loader(), loader()
        epochs = [list(whole) for _ in range(2)]
        resumed.resume_at(1, 3)
        assert list(resumed) == [{}] * len(whole)
        assert_same(list(resumed)[3:], epochs[1][3:])

    def test_max_tokens(self, loader, make, folder):
        batches = loader(batch_size=None, max_tokens=1500)
        tokens = [
            sum(int(batch[name]["tokens"]["mask"].sum()) for name in set(batch) - {"labels"})
            for _ in range(4)
            for batch in batches
        ]
        assert 0.7 * 1500 < np.mean(tokens) <= 1500
        assert sorted(texts(batches)) == self.everything(folder, make(**FULL))

    def test_any_tokenizer(self, loader):
        batches = loader(TextPairReader(**FULL))
        batches.index_with(Vocabulary.from_instances(batches.iter_instances()))
        assert sum(len(batch["labels"]) for batch in batches) == 43

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_loader_of_allennlp(self, make, folder, workers):
        reader = make(**FULL, with_ids=True)
        loader = MultiProcessDataLoader(
            reader, str(folder / "many.tsv"), batch_size=5, num_workers=workers, quiet=True
        )
        loader.index_with(Vocabulary.empty())
        batches = list(loader)
        assert sorted(texts(batches)) == self.everything(folder, make(**FULL))
        rows = torch.cat([batch["ids"] for batch in batches]).tolist()
        assert sorted(rows) == list(range(43))
        assert texts(batches) == texts([collated(reader, folder / "many.tsv", rows)])

    def test_whole_texts(self, loader, make):
        reader = make(text_key="anchor")  # Any column of a table will do.
        with reader.no_sample():
            batches = list(loader(reader, shuffle=False))
        assert [list(batch) for batch in batches] == [["anchors"]] * 9
        assert sum(len(batch["anchors"]["tokens"]["mask"]) for batch in batches) == 43

    def test_errors_name_the_file_and_line(self, make, tmp_path):
        (tmp_path / "a.tsv").write_text("anchor\tpositive\nka\n")
        loader = DeCLUTRDataLoader(make(), str(tmp_path / "a.tsv"), batch_size=1)
        with pytest.raises(ConfigurationError, match=r"a.tsv', line 2 has 1 field\(s\), exp"):
            len(loader)


class TestOrderOfReading:
    def test_depends_on_seed_and_epoch(self, make, folder):
        def epochs(**changes) -> list[list]:
            reader = make(**changes)
            path = folder / "pairs.tsv"
            return [
                [one["anchors"].human_readable_repr() for one in reader.read(path)]
                for _ in range(3)
            ]

        first, again, other = epochs(), epochs(), epochs(seed=1)
        assert first == again and first[0] != first[1] and first != other
        assert len(set(map(str, epochs(resample=False)))) == 1
        assert not make().draws_anew


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
        assert_same([collated(reader, path, range(5))], [collated(expected, path, range(5))])
        twin = pickle.loads(pickle.dumps(reader))
        assert_same([twin.packed(path, [1]).tensors()], [reader.packed(path, [1]).tensors()])

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
            ({}, "x\ty\nka\tlo\n", r"a.tsv', line 2: no column 'anchor', found \['x', 'y'\]"),
            (
                {"anchor": 5},
                "ka\tlo\n",
                r"line 1: no column 5, found 2 column\(s\), counted ",
            ),
            (
                {"labels": "class"},
                "anchor\tpositive\tlabel\nka\tlo\thigh\n",
                "label is 'high', e",
            ),
            (
                {"labels": "score"},
                "anchor\tpositive\tlabel\nka\tlo\t4\n",
                "of at most 1. Set max",
            ),
            (
                {"format": "nli"},
                "premise\thypothesis\tlabel\nka\tlo\t4\n",
                "expected entailment",
            ),
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


@pytest.mark.slow
def test_a_model_trains_on_pairs_and_embeds(make, folder, checkpoint, tmp_path):
    """A predictor needs the reader of the archive to read whole texts, blank ones included."""
    from allennlp.commands.train import train_model
    from allennlp.models.archival import load_archive
    from allennlp.predictors import Predictor

    import declutr.plugin  # noqa: F401
    from declutr.inference.encoder import Encoder

    config = run_config(checkpoint, folder / "many.tsv")
    config["dataset_reader"] = {
        "type": "text_pairs",
        **{key: config["dataset_reader"][key] for key in ("tokenizer", "token_indexers")},
    }
    train_model(Params(config), str(tmp_path / "run"))
    rows = ["ka lo", "", "mi tu re"]
    embeddings = Encoder(str(tmp_path / "run"), dtype="float32")(rows)
    predictor = Predictor.from_archive(load_archive(tmp_path / "run"), "declutr")
    expected = [predictor.predict(row)["embeddings"] for row in rows]
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
