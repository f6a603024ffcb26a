"""Tests of the reader "sentences".

The oracles are the reader "declutr" without sampling for the contents of a row; the rows as written
for which of them are used; and instances for packed batches.
"""

import copy
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

from declutr.data import document_rows
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.sentence_reader import SentenceReader
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.sampling import document_selection

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


@pytest.fixture(scope="module")
def many_file(tmp_path_factory, documents):
    """Write 47 sentences of 3 to 200 words, in 12 documents."""
    words = " ".join(documents).split()
    rng = np.random.default_rng(0)
    rows = []
    for number in range(47):
        rows += [" ".join(rng.choice(words, rng.integers(3, 200)))] + [""] * (number % 4 == 3)
    file = tmp_path_factory.mktemp("many") / "rows.txt"
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.fixture
def make(pair):
    return lambda **changes: SentenceReader(*pair, **changes)


@pytest.fixture
def loader(make):
    def loader(path, reader=None, **changes) -> DeCLUTRDataLoader:
        options = {"batch_size": 4, "shuffle": True, **changes}
        loader = DeCLUTRDataLoader(reader or make(), str(path), **options)
        loader.index_with(Vocabulary.empty())
        return loader

    return loader


def ids(pair, row: str) -> list[int]:
    return pair[0].tokenizer(" ".join(row.split()))["input_ids"]


def texts(batches) -> list[str]:
    """Return each row of the batches without its padding."""
    found = []
    for batch in batches:
        groups = [batch[field]["tokens"] for field in ("anchors", "positives") if field in batch]
        for row in range(len(groups[0]["token_ids"])):
            found.append(str([g["token_ids"][row][g["mask"][row]].tolist() for g in groups]))
    return found


def assert_same(first, second) -> None:
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for field, value in one.items():
            beside = isinstance(value, torch.Tensor)
            tensors, others = (
                ({0: value}, {0: other[field]})
                if beside
                else (
                    value["tokens"],
                    other[field]["tokens"],
                )
            )
            for key, tensor in tensors.items():
                torch.testing.assert_close(others[key], tensor, rtol=0, atol=0)


def collated(reader, path, rows) -> dict:
    batch = Batch([reader.instance(path, int(row)) for row in rows])
    batch.index_instances(Vocabulary.empty())
    return batch.as_tensor_dict()


class TestSentences:
    def test_blank_rows_are_left_out(self, make, pair, rows_file, caplog):
        reader = make()
        with caplog.at_level(logging.INFO, logger="declutr.data.sentence_reader"):
            assert reader.documents(rows_file).tolist() == SENTENCES
        assert (
            "11 rows; 7 sentences used; 4 skipped (4 blank). 0 are too long and are cut."
            in caplog.text
        )
        for row in SENTENCES:
            instance = reader.instance(rows_file, row)
            assert list(instance.fields) == ["anchors"]
            assert instance["anchors"].human_readable_repr() == [ids(pair, ROWS[row])]

    def test_short_ones_are_left_out(self, make, rows_file, pair, caplog):
        reader = make(min_document_len=4)
        lengths = [len(ids(pair, row)) - 2 for row in ROWS]
        expected = [row for row, length in enumerate(lengths) if length >= 4]
        assert 0 < len(expected) < len(SENTENCES)
        with caplog.at_level(logging.INFO, logger="declutr.data.sentence_reader"):
            assert reader.documents(rows_file).tolist() == expected
        assert f"{11 - len(expected)} skipped (4 blank)" in caplog.text

    def test_tails_are_cut_and_counted(self, pair, checkpoint, many_file, caplog):
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), max_length=20)
        reader = SentenceReader(tokenizer, pair[1])
        with caplog.at_level(logging.INFO, logger="declutr.data.sentence_reader"):
            rows = reader.documents(many_file)
        long = int((reader.corpus(many_file).num_tokens > 18).sum())
        assert long > 10 and f"{long} are too long and are cut" in caplog.text
        lengths = [len(reader.instance(many_file, row)["anchors"]) for row in rows.tolist()]
        assert max(lengths) == 20

    def test_the_same_in_every_epoch(self, make, rows_file):
        reader = make()
        assert not reader.draws_anew
        for epoch in (0, 5):
            assert texts([reader.packed(rows_file, SENTENCES, epoch).tensors()]) == texts(
                [collated(reader, rows_file, SENTENCES)]
            )

    @pytest.mark.parametrize("positives", [None, "next"])
    def test_packed_batches_equal_collated_instances(self, make, rows_file, positives):
        reader = make(positives=positives)
        rows = reader.documents(rows_file)
        packed = reader.packed(rows_file, rows).tensors()
        assert_same([packed], [collated(reader, rows_file, rows)])
        shape = packed["anchors"]["tokens"]["token_ids"].shape
        assert shape[:-1] == ((7,) if positives is None else (4, 1))

    def test_max_instances(self, make, rows_file):
        assert make(max_instances=3).documents(rows_file).tolist() == SENTENCES[:3]
        assert len(list(make(max_instances=3).read(rows_file))) == 3

    def test_any_tokenizer(self, rows_file):
        reader = SentenceReader(positives="next")
        batch = Batch(list(reader.read(rows_file)))
        batch.index_instances(Vocabulary.from_instances(batch.instances))
        assert batch.as_tensor_dict()["positives"]["tokens"]["tokens"].shape == (4, 1, 3)


class TestNeighbours:
    def test_pairs_stay_inside_documents(self, make, pair, rows_file, caplog):
        reader = make(positives="next")
        with caplog.at_level(logging.INFO, logger="declutr.data.sentence_reader"):
            assert reader.documents(rows_file).tolist() == PAIRS
        assert "7 sentences used, which make 4 pairs of neighbours; 4 skipped" in caplog.text
        for row in PAIRS:
            fields = reader.instance(rows_file, row)
            assert fields["anchors"].human_readable_repr() == [ids(pair, ROWS[row])]
            assert fields["positives"].human_readable_repr() == [ids(pair, ROWS[row + 1])]

    def test_a_sentence_beside_a_short_one_has_no_neighbour(self, tmp_path):
        (tmp_path / "a.txt").write_text("a b\nc d\ne\nf g\nh i\n")
        reader = SentenceReader(positives="next", min_document_len=2)
        assert reader.documents(tmp_path / "a.txt").tolist() == [0, 3]

    @pytest.mark.parametrize("at_once", [1, 2, 3, 10, 11, 12])
    def test_pairs_do_not_depend_on_the_block_size(self, make, rows_file, at_once, monkeypatch):
        monkeypatch.setattr(document_selection, "_AT_ONCE", at_once)
        assert make(positives="next").documents(rows_file).tolist() == PAIRS
        assert make().documents(rows_file).tolist() == SENTENCES

    def test_the_last_row_has_no_next(self, tmp_path):
        (tmp_path / "a.txt").write_text("a\nb")
        assert SentenceReader(positives="next").documents(tmp_path / "a.txt").tolist() == [0]

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
    def test_row_and_document(self, make, rows_file, positives):
        reader = make(positives=positives, with_ids=True)
        rows = reader.documents(rows_file)
        packed = reader.packed(rows_file, rows).tensors()
        assert list(packed) == ["anchors", *["positives"] * bool(positives), "ids", "documents"]
        assert packed["ids"].tolist() == rows.tolist()
        assert packed["documents"].tolist() == [DOCUMENTS[row] for row in rows]
        assert packed["ids"].dtype == packed["documents"].dtype == torch.int64
        assert list(packed) == list(collated(reader, rows_file, rows))
        assert_same([packed], [collated(reader, rows_file, rows)])

    def test_rows_in_any_order(self, make, many_file, positives):
        reader, plain = make(positives=positives, with_ids=True), make(positives=positives)
        rows = np.random.default_rng(1).permutation(reader.documents(many_file))
        assert len(rows) > 30
        lines = many_file.read_text().splitlines()
        packed = reader.packed(many_file, rows).tensors()
        assert packed["documents"].tolist() == [lines[:row].count("") for row in rows]
        assert_same([packed], [collated(reader, many_file, rows)])
        without = plain.packed(many_file, rows).tensors()
        assert not {"ids", "documents"} & set(without)
        assert texts([without]) == texts([packed])

    def test_a_corpus_without_blank_rows(self, make, tmp_path, positives):
        path = _written(tmp_path, ["ka lo", "mi", "tu"])
        reader = make(positives=positives, with_ids=True)
        assert reader.packed(path, [1, 0]).tensors()["documents"].tolist() == [0, 0]

    def test_whole_rows_have_none(self, make, rows_file, positives):
        reader = make(positives=positives, with_ids=True)
        assert list(reader.text_to_instance("ka lo").fields) == ["anchors"]
        with reader.no_sample():
            assert list(reader.packed(rows_file, range(11)).tensors()) == ["anchors"]
            for instance in (reader.instance(rows_file, 3), *reader.read(rows_file)):
                assert list(instance.fields) == ["anchors"]

    def test_blank_rows_are_found_once_and_before_workers_start(
        self, make, loader, rows_file, positives, monkeypatch
    ):
        calls = []
        original = document_rows.rows_where
        monkeypatch.setattr(
            document_rows,
            "rows_where",
            lambda chosen, some: (calls.append(len(some)), original(chosen, some))[1],
        )
        batches = loader(
            rows_file, make(positives=positives, with_ids=True), batch_size=2, num_workers=0
        )
        len(batches)
        assert calls == [11]
        list(batches), list(batches)
        assert calls == [11]

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    def test_through_the_loaders(self, make, loader, many_file, positives, workers):
        reader = make(positives=positives, with_ids=True)
        theirs = MultiProcessDataLoader(
            reader, str(many_file), batch_size=4, num_workers=workers, quiet=True
        )
        theirs.index_with(Vocabulary.empty())
        rows = reader.documents(many_file)
        expected = collated(reader, many_file, rows)
        wanted = sorted(
            zip(texts([expected]), rows, expected["documents"].tolist(), strict=True),
            key=lambda one: one[1],
        )
        for batches in (list(theirs), list(loader(many_file, reader, num_workers=workers))):
            ids, places = (
                torch.cat([one[name] for one in batches]) for name in ("ids", "documents")
            )
            assert ids.dtype == places.dtype == torch.int64
            got = zip(texts(batches), ids.tolist(), places.tolist(), strict=True)
            assert sorted(got, key=lambda one: one[1]) == wanted

    def test_a_pickled_reader_gives_the_same_ids(self, make, rows_file, positives):
        reader = make(positives=positives, with_ids=True)
        rows = reader.documents(rows_file)
        for twin in (pickle.loads(pickle.dumps(reader)), copy.deepcopy(reader)):
            assert_same(
                [twin.packed(rows_file, rows).tensors()], [reader.packed(rows_file, rows).tensors()]
            )


def test_words_have_ids(rows_file):
    batch = Batch(list(SentenceReader(with_ids=True, resample=False).read(rows_file)))
    batch.index_instances(Vocabulary.from_instances(batch.instances))
    assert batch.as_tensor_dict()["ids"].tolist() == SENTENCES


class TestWholeRows:
    """While `sample_spans` is false, instances equal those of "declutr" without sampling."""

    @pytest.mark.parametrize("positives", [None, "next"])
    def test_every_row_in_order(self, make, pair, rows_file, positives):
        reader, plain = make(positives=positives), DeCLUTRDatasetReader(*pair)
        with reader.no_sample():
            read = [one["anchors"].human_readable_repr() for one in reader.read(rows_file)]
            assert read == [one["anchors"].human_readable_repr() for one in plain.read(rows_file)]
            assert read == [[ids(pair, row)] for row in ROWS]
            assert reader.documents(rows_file).tolist() == list(range(11))
            assert_same(
                [reader.packed(rows_file, range(11)).tensors()],
                [plain.packed(rows_file, range(11)).tensors()],
            )
            assert list(reader.instance(rows_file, 3).fields) == ["anchors"]
        assert reader.sample_spans and len(reader.documents(rows_file)) < 11

    def test_a_text_alone_is_whole(self, make, pair):
        for reader in (make(), make(positives="next")):
            for sample in (True, False):
                reader.sample_spans = sample
                for text in (" ka  lo", ""):
                    instance = reader.text_to_instance(text)
                    assert instance["anchors"].human_readable_repr() == [ids(pair, text)]
                assert reader.sample_spans is sample

    def test_texts_that_lose_their_tail_are_counted(self, make, documents):
        reader = make()
        assert len(reader.text_to_instance(documents[0])["anchors"]) == 128
        assert reader.truncated_texts == 1


@pytest.mark.parametrize("positives", [None, "next"])
class TestLoader:
    @pytest.mark.slow
    def test_every_sentence_once_for_any_number_of_workers(
        self, loader, make, many_file, positives
    ):
        reader = make(positives=positives)
        plain, busy = (loader(many_file, reader, num_workers=workers) for workers in (0, 2))
        expected = texts([collated(reader, many_file, reader.documents(many_file))])
        epochs = [list(plain) for _ in range(2)]
        for epoch in epochs:
            assert sorted(texts(epoch)) == sorted(expected)
            assert_same(epoch, list(busy))
        assert texts(epochs[0]) != texts(epochs[1])  # The order differs.

    def test_a_resumed_run_reads_the_same_batches(self, loader, make, many_file, positives):
        whole, resumed = (loader(many_file, make(positives=positives)) for _ in range(2))
        epochs = [list(whole) for _ in range(2)]
        resumed.resume_at(1, 2)
        assert list(resumed) == [{}] * len(whole)
        assert_same(list(resumed)[2:], epochs[1][2:])

    def test_max_tokens(self, loader, make, many_file, positives):
        reader = make(positives=positives)
        batches = loader(many_file, reader, batch_size=None, max_tokens=800)
        tokens = [
            sum(int(group["tokens"]["mask"].sum()) for group in batch.values())
            for _ in range(8)
            for batch in batches
        ]
        assert 0.75 * 800 < np.mean(tokens) <= 1.1 * 800
        assert sorted(texts(batches)) == sorted(
            texts([collated(reader, many_file, reader.documents(many_file))])
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_loader_of_allennlp(self, make, many_file, positives, workers, recwarn):
        reader = make(positives=positives)
        loader = MultiProcessDataLoader(
            reader, str(many_file), batch_size=4, num_workers=workers, quiet=True
        )
        loader.index_with(Vocabulary.empty())
        expected = texts([collated(reader, many_file, reader.documents(many_file))])
        assert sorted(texts(loader)) == sorted(expected)
        assert not [one for one in recwarn if "keeps every instance" in str(one.message)]


class TestOrderOfReading:
    def test_depends_on_seed_and_epoch(self, make, rows_file):
        def epochs(**changes) -> list[list]:
            reader = make(**changes)
            return [
                [one["anchors"].human_readable_repr() for one in reader.read(rows_file)]
                for _ in range(3)
            ]

        first, again, other = epochs(), epochs(), epochs(seed=1)
        assert first == again and first[0] != first[1] and first != other
        assert len(set(map(str, epochs(resample=False)))) == 1


class TestSettings:
    def test_from_params(self, checkpoint, rows_file):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        reader = DatasetReader.from_params(
            Params(
                {
                    "type": "sentences",
                    "positives": "next",
                    "tokenizer": transformer,
                    "token_indexers": {"tokens": dict(transformer)},
                    "max_instances": 2,
                    "with_ids": True,
                }
            )
        )
        assert isinstance(reader, SentenceReader) and len(list(reader.read(rows_file))) == 2
        assert reader.packed(rows_file, [7]).tensors()["documents"].tolist() == [3]
        twin = pickle.loads(pickle.dumps(reader))
        assert_same([twin.packed(rows_file, [0]).tensors()], [collated(reader, rows_file, [0])])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"positives": "previous"}, "Unknown positives 'previous': expected 'next' for the n"),
            ({"min_document_len": 0}, "min_document_len must be at least 1 token, got 0: a blank"),
            ({"encoding_errors": "ignore"}, "Unknown encoding_errors 'ignore': expected one of"),
        ],
    )
    def test_invalid_settings_are_refused(self, make, rows_file, changes, message):
        with pytest.raises(ConfigurationError, match=message):
            list(make(**changes).read(rows_file))

    def test_a_corpus_of_short_rows_is_refused(self, make, rows_file):
        with pytest.raises(
            ConfigurationError,
            match=r"0 of 11 rows have at least 99 token\(s\) \(min_document_len\). Add sentences, "
            "or lower min_document_len",
        ):
            make(min_document_len=99).documents(rows_file)

    def test_a_missing_corpus_is_refused(self, make, tmp_path):
        with pytest.raises(ConfigurationError, match=r"Found no documents at '.*none.txt'"):
            list(make().read(tmp_path / "none.txt"))


@pytest.mark.slow
def test_a_model_trains_on_neighbours_and_embeds(make, pair, many_file, checkpoint, tmp_path):
    """A predictor needs the reader of the archive to read whole rows, blank ones included."""
    from allennlp.commands.train import train_model

    import declutr.plugin  # noqa: F401
    from declutr.inference.encoder import Encoder
    from tests.conftest import run_config

    config = run_config(checkpoint, many_file)
    config["dataset_reader"] = {
        "type": "sentences",
        "positives": "next",
        **{key: config["dataset_reader"][key] for key in ("tokenizer", "token_indexers")},
    }
    model = train_model(Params(config), str(tmp_path / "run")).eval()
    encoder = Encoder(str(tmp_path / "run"), dtype="float32")
    embeddings = encoder(ROWS)
    assert embeddings.shape == (11, 32) and np.isfinite(embeddings).all()
    reader = make()
    with reader.no_sample(), torch.no_grad():
        expected = model(**reader.packed(_written(tmp_path, ROWS), range(11)).tensors())
    np.testing.assert_allclose(embeddings, expected["embeddings"].numpy(), atol=1e-5)


def _written(folder, rows):
    (folder / "rows.txt").write_text("\n".join(rows) + "\n")
    return folder / "rows.txt"
