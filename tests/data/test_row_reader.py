"""Tests of what the readers have in common; each reader has its own tests as well.

The oracles are instances for packed batches, the reader "declutr" without sampling for whole rows,
and one process for any number of workers.
"""

import copy
import inspect
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.from_params import infer_params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor

import declutr.plugin  # noqa: F401
from declutr.components import registered_name
from declutr.corpus.documents import SourceError
from declutr.data.augmented_reader import AugmentedReader
from declutr.data.pair_reader import TextPairReader
from declutr.data.row_augmentation import TrainingAugmentation
from declutr.data.row_reader import EpochCounts, RowReader
from declutr.data.sentence_reader import SentenceReader
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.data.word_edits import EasyDataAugmentation
from declutr.inference.encoder import Encoder
from declutr.sampling.row_draws import RowDraws
from tests.conftest import run_config
from tests.data.batches import (
    allennlp_loader,
    assert_same,
    collated,
    loader_of,
    num_tokens,
    read_texts,
    texts,
    token_ids,
)

READERS = [DeCLUTRDatasetReader, SentenceReader, AugmentedReader, TextPairReader]
SPANS = {"num_anchors": 2, "num_positives": 3, "max_span_len": 24, "min_span_len": 8}
SWAPS = {"augmentation": EasyDataAugmentation(replacement=0, insertion=0)}
KINDS = {
    "spans": (DeCLUTRDatasetReader, SPANS),
    "sentences": (SentenceReader, {}),
    "neighbours": (SentenceReader, {"positives": "next"}),
    "augmented": (AugmentedReader, SWAPS),
    "both augmented": (AugmentedReader, {**SWAPS, "both": True}),
    "pairs": (TextPairReader, {"negative": ["n1", "n2"], "labels": "class"}),
}
DRAWING = ("spans", "augmented", "both augmented")
COLUMNS = ("anchor", "positive", "n1", "n2", "label")


@pytest.fixture(scope="module")
def rows(documents) -> list[str]:
    """47 texts of 3 to 200 words, with a blank one after each fourth."""
    words, rng = " ".join(documents).split(), np.random.default_rng(0)
    rows = []
    for number in range(47):
        rows += [" ".join(rng.choice(words, rng.integers(3, 200)))] + [""] * (number % 4 == 3)
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows) -> Path:
    """`rows`, one a line, and pairs of them in a table."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.txt").write_text("\n".join(rows) + "\n")
    texts = [row for row in rows if row]
    lines = [
        "\t".join([*(texts[(first + more) % 47] for more in (0, 1, 5, 9)), str(first % 5)])
        for first in range(43)
    ]
    (folder / "pairs.tsv").write_text("\n".join(["\t".join(COLUMNS), *lines]) + "\n")
    return folder


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def make(kind, pair):
    """Return a reader of this kind."""
    cls, settings = KINDS[kind]
    pretrained = {"tokenizer": pair[0], "token_indexers": pair[1]}
    return lambda **changes: cls(**{**pretrained, **settings, **changes})


@pytest.fixture
def path(kind, folder) -> Path:
    return folder / ("pairs.tsv" if kind == "pairs" else "rows.txt")


class TestInstances:
    @pytest.mark.parametrize("with_ids", [False, True])
    def test_packed_batches_equal_collated_instances(self, make, kind, path, rows, with_ids):
        reader = make(with_ids=with_ids)
        used = np.random.default_rng(1).permutation(reader.documents(path))[:20].astype(np.int32)
        expected = collated(reader, path, used, 2)
        for twin in (reader, pickle.loads(pickle.dumps(reader)), copy.deepcopy(reader)):
            assert_same(twin.packed(path, used, 2).tensors(), expected)
        numbers = [name for name in expected if torch.is_tensor(expected[name])]
        beside = ["labels"] * (kind == "pairs") + ["ids"] * with_ids
        beside += ["documents"] * (with_ids and kind not in ("pairs", "spans"))
        assert numbers == beside == list(expected)[len(expected) - len(beside) :]
        assert {expected[name].dtype for name in numbers} <= {torch.int64}
        if with_ids:
            assert expected["ids"].tolist() == used.tolist()
        if "documents" in numbers:
            assert expected["documents"].tolist() == [rows[:row].count("") for row in used]
        without = make().packed(path, used, 2).tensors()
        assert_same(without, {name: expected[name] for name in without})

    def test_rows_are_read_in_an_order_of_the_seed_and_epoch(self, make, kind, path):
        def epochs(**changes) -> list[list]:
            reader = make(**changes)
            assert reader.draws_anew is (kind in DRAWING and "resample" not in changes)
            return [[read_texts(one) for one in reader.read(path)] for _ in range(2)]

        first, again, other = epochs(), epochs(), epochs(seed=1)
        assert first == again and first[0] != first[1] and first != other
        repeated, same = epochs(resample=False)
        assert repeated == same
        reader = make()
        of_rows = [read_texts(reader.instance(path, row, 1)) for row in reader.documents(path)]
        assert sorted(first[1]) == sorted(of_rows)

    def test_max_instances(self, make, path):
        reader = make(max_instances=3)
        assert len(list(reader.read(path))) == 3
        assert reader.documents(path).tolist() == make().documents(path).tolist()[:3]

    @pytest.mark.parametrize("whole", [False, True], ids=["always", "in training alone"])
    def test_tails_are_cut(self, make, path, checkpoint, documents, whole):
        limit = {"max_length": 12}
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), **({} if whole else limit))
        reader = make(tokenizer=tokenizer, **(limit if whole else {}))
        batch = reader.packed(path, reader.documents(path)).tensors()
        names = [name for name in batch if name != "labels"]
        assert {batch[name]["tokens"]["mask"].shape[-1] for name in names} == {12}
        with reader.no_sample():
            assert len(reader.text_to_instance(documents[0])["anchors"]) == (128 if whole else 12)

    def test_a_length_without_room_for_text_is_refused(self, make):
        told = "max_length is 2, of which special tokens take 2. Set it to 3 or more"
        with pytest.raises(ConfigurationError, match=told):
            make(max_length=2)


class TestWholeRows:
    """While `sample_spans` is false, instances equal those of "declutr" without sampling."""

    def test_every_row_in_order(self, make, pair, tmp_path):
        rows = ["ka lo", "", "  mi \t tu", " ", "re"]
        (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
        reader, plain = make(with_ids=True), DeCLUTRDatasetReader(*pair)
        every = range(len(rows)), tmp_path / "a.txt"
        with reader.no_sample():
            instances = list(reader.read(every[1]))
            assert [list(one.fields) for one in instances] == [["anchors"]] * 5
            assert [read_texts(one) for one in instances] == [
                [[token_ids(pair, row)]] for row in rows
            ]
            assert reader.documents(every[1]).tolist() == list(every[0])
            expected = plain.packed(every[1], every[0]).tensors()
            assert list(expected) == ["anchors"]
            assert_same(reader.packed(every[1], every[0]).tensors(), expected)
            assert_same(collated(reader, every[1], every[0]), expected)
            assert reader.expected_tokens().units(np.array([3])) == [5 * 64]
            assert not reader.draws_anew
        assert reader.sample_spans

    def test_a_text_alone_is_whole(self, make, pair, documents):
        reader = make(with_ids=True)
        for text in (" ka  lo", ""):
            with reader.no_sample():
                instance = reader.text_to_instance(text)
            assert list(instance.fields) == ["anchors"]
            assert read_texts(instance) == [[token_ids(pair, text)]]
        with reader.no_sample():
            assert len(reader.text_to_instance(documents[0])["anchors"]) == 128
        assert reader.truncated_texts == 1

    def test_any_column_of_a_table_will_do(self, make, folder):
        reader = make(text_key="positive")
        with reader.no_sample():
            assert len(list(reader.read(folder / "pairs.tsv"))) == 43


class TestLoaders:
    def check(self, batches, reader, path, epoch: int) -> None:
        """Assert that batches hold every row once, each as the reader makes it in this epoch."""
        numbers = torch.cat([batch["ids"] for batch in batches]).tolist()
        assert sorted(numbers) == reader.documents(path).tolist()
        assert texts(batches) == texts([collated(reader, path, numbers, epoch)])

    @pytest.mark.slow
    def test_batches_are_the_same_for_any_number_of_workers(self, make, path):
        reader = make(with_ids=True)
        plain, busy = (loader_of(reader, path, num_workers=count) for count in (0, 2))
        epochs = [list(plain) for _ in range(2)]
        for number, epoch in enumerate(epochs):
            self.check(epoch, reader, path, number)
            assert_same(list(busy), epoch)
        assert texts(epochs[0]) != texts(epochs[1])  # The order differs.

    def test_a_resumed_run_reads_the_same_batches(self, make, path):
        whole, resumed = (loader_of(make(), path) for _ in range(2))
        epochs = [list(whole) for _ in range(2)]
        resumed.resume_at(1, 3)
        assert list(resumed) == [{}] * len(whole)
        assert_same(list(resumed)[3:], epochs[1][3:])

    def test_batches_have_about_max_tokens(self, make, path):
        reader = make(with_ids=True)
        loader = loader_of(reader, path, batch_size=None, max_tokens=1500)
        epochs = [list(loader) for _ in range(4)]
        self.check(epochs[3], reader, path, 3)
        tokens = [num_tokens(batch) for epoch in epochs for batch in epoch]
        assert 0.75 * 1500 < np.mean(tokens) <= 1.1 * 1500

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_loader_of_allennlp(self, make, path, workers):
        reader = make(with_ids=True)
        loader = allennlp_loader(reader, path, workers)
        for epoch in range(2):
            self.check(list(loader), reader, path, epoch)

    def test_whole_texts_in_order(self, make, folder):
        reader, path = make(), folder / "rows.txt"
        with reader.no_sample():
            batches = list(loader_of(reader, path, shuffle=False))
            assert texts(batches) == texts([collated(reader, path, range(58))])

    def test_words(self, kind, path):
        """Any tokenizer and indexer work; the default splits at white space."""
        cls, settings = KINDS[kind]
        loader = loader_of(cls(**settings, with_ids=True, resample=False), path)
        loader.index_with(Vocabulary.from_instances(loader.iter_instances()))
        batches = list(loader)
        ids = torch.cat([batch["ids"] for batch in batches]).tolist()
        assert sorted(ids) == loader.documents.tolist()
        assert all(batch["anchors"]["tokens"]["tokens"].max() > 1 for batch in batches)
        again = allennlp_loader(cls(**settings, with_ids=True), path)
        again.index_with(Vocabulary.from_instances(loader.iter_instances()))
        assert sorted(torch.cat([batch["ids"] for batch in again]).tolist()) == sorted(ids)


class TestUnreadable:
    @pytest.mark.parametrize("whole", [True, False])
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("missing.txt", None, r"Found no documents at '.*missing\.txt'"),
            ("bad.tsv", b"text\tanchor\tpositive\nfine\xff\n", "byte .* is not valid UTF-8"),
        ],
    )
    def test_files_are_refused(self, make, kind, tmp_path, whole, name, content, message):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        reader = make(**{"negative": [], "labels": None} if kind == "pairs" else {})
        reader.sample_spans = not whole
        with pytest.raises(ConfigurationError, match=message):
            list(reader.read(tmp_path / name))
        with pytest.raises(SourceError, match=message):
            reader.corpus(tmp_path / name)

    def test_encoding_errors_may_be_replaced(self, make, kind, tmp_path):
        words = b"\t".join([b"w\xff " * 50] * 4)
        (tmp_path / "a.tsv").write_bytes(b"text\tanchor\tpositive\tlabel\n" + words + b"\n" + words)
        changes = {"negative": [], "labels": None} if kind == "pairs" else {}
        reader = make(encoding_errors="replace", **changes)
        assert len(list(reader.read(tmp_path / "a.tsv"))) == (1 if kind == "neighbours" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["neighbours", "pairs"], indirect=True)
def test_a_model_trains_and_embeds(make, kind, path, checkpoint, tmp_path):
    """A predictor needs the reader of the archive to read whole rows, blank ones included."""
    config = run_config(checkpoint, path)
    config["dataset_reader"] = {
        "type": "text_pairs" if kind == "pairs" else "sentences",
        **({} if kind == "pairs" else {"positives": "next"}),
        **{key: config["dataset_reader"][key] for key in ("tokenizer", "token_indexers")},
    }
    model = train_model(Params(config), str(tmp_path / "run")).eval()
    rows = ["ka lo", "", "mi tu re"]
    embeddings = Encoder(str(tmp_path / "run"), dtype="float32")(rows)
    predictor = Predictor.from_archive(load_archive(tmp_path / "run"), "declutr")
    expected = [predictor.predict(row)["embeddings"] for row in rows]
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
    reader = make()
    with reader.no_sample(), torch.no_grad():
        expected = model(**reader.packed(tmp_path / "a.txt", range(3)).tensors())
    np.testing.assert_allclose(embeddings, expected["embeddings"].numpy(), atol=1e-5)


@pytest.mark.parametrize("reader", READERS)
class TestParameters:
    def test_inherits_row_reader_alone_and_overrides_nothing_of_it(self, reader):
        assert reader.__bases__ == (RowReader,)
        shared = {name for name in vars(RowReader) if not name.startswith("__")}
        assert not shared & set(vars(reader))

    def test_takes_the_parameters_of_every_reader(self, reader):
        known = infer_params(reader)
        for name, parameter in inspect.signature(RowReader).parameters.items():
            assert (known[name].annotation, known[name].default) == (
                parameter.annotation,
                parameter.default,
            )

    def test_refuses_unknown_parameters(self, reader):
        config = {"type": registered_name(DatasetReader, reader), "nonsense": 1}
        if reader is AugmentedReader:
            config["augmentation"] = {"type": "eda"}
        with pytest.raises(
            ConfigurationError,
            match=rf"Extra parameters passed to {reader.__name__}: {{'nonsense': 1}}",
        ):
            DatasetReader.from_params(Params(config))


class TestEpochCounts:
    def test_each_worker_of_each_number_of_workers_has_its_own_count(self):
        counts = EpochCounts()
        workers = [None, *(WorkerInfo(n, i) for n in (1, 2, 3, 256) for i in range(n))]
        for epoch in range(2):
            assert {counts.begin(worker) for worker in workers} == {epoch}
        assert {counts.read(worker) for worker in workers} == {0}

    def test_reading_inside_unchanged_does_not_count(self):
        counts = EpochCounts()
        counts.begin(None), counts.read(None)
        with counts.unchanged():
            assert counts.begin(None) == counts.read(None) == 1
            counts.begin(WorkerInfo(2, 1))
        assert counts.begin(None) == counts.read(None) == 1
        assert counts.begin(WorkerInfo(2, 1)) == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["fork", "forkserver"])
    def test_copies_in_other_processes_count_together(self, method):
        counts = EpochCounts()
        context = multiprocessing.get_context(method)
        for _ in range(2):
            worker = context.Process(target=counts.begin, args=(WorkerInfo(2, 1),))
            worker.start()
            worker.join()
        assert counts.begin(WorkerInfo(2, 1)) == 2
        assert copy.deepcopy(counts).begin(None) == 0

    def test_a_container_may_have_no_shared_memory(self, monkeypatch):
        """As with AWS Lambda, or where `/dev/shm` is full: archives have readers, too."""

        def refused(*args):
            raise RuntimeError("unable to allocate shared memory(shm)")

        monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", refused)
        monkeypatch.setattr(torch.UntypedStorage, "_share_filename_cpu_", refused)
        counts = EpochCounts()
        augmented = TrainingAugmentation(EasyDataAugmentation(), RowDraws(0, True))
        assert counts.begin(None) == 0 and augmented
