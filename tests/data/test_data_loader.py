"""Tests of the loader "declutr".

The oracles are one process without workers for any number of them; the reader, row by row; and
golden learning rates for the number of steps. What any reader gives through the loader is tested in
test_row_reader.py.
"""

import gc
import itertools
import json
import multiprocessing.process
import pickle
import random
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, WhitespaceTokenizer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.random_subset import RandomSubset
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.sampling.document_selection import shuffled, shuffled_batches
from declutr.system.host_memory import on_host
from tests.data.batches import assert_same, collated, loader_of, num_tokens, texts

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "golden_schedule.json").read_text())
SPANS = {"num_anchors": 2, "num_positives": 2, "max_span_len": 24, "min_span_len": 8}


@pytest.fixture(scope="module")
def make_reader(checkpoint):
    tokenizer = PretrainedTransformerTokenizer(str(checkpoint))
    indexers = {"tokens": PretrainedTransformerIndexer(str(checkpoint))}
    return lambda **changes: DeCLUTRDatasetReader(tokenizer, indexers, **{**SPANS, **changes})


@pytest.fixture
def make(make_reader, corpus_file):
    """Return a loader of batches of 5 from 24 documents, unless told otherwise."""

    def make(reader=None, path=corpus_file, **changes) -> DeCLUTRDataLoader:
        return loader_of(reader or make_reader(), path, **changes)

    return make


@pytest.fixture
def processes(monkeypatch):
    """Pretend to be one of several processes."""

    def pretend(rank: int, count: int) -> None:
        monkeypatch.setattr("declutr.data.data_loader.world_size", lambda: count)
        monkeypatch.setattr("declutr.data.data_loader.process_rank", lambda: rank)

    return pretend


@pytest.fixture
def shares(make, processes):
    """Return the batches of rows of each of several processes, whose lengths must be right."""

    def shares(epoch: int, count: int, **changes) -> list[list[np.ndarray]]:
        parts = []
        for rank in range(count):
            processes(rank, count)
            loader = make(**changes)
            parts.append(list(loader.batches(epoch)))
            assert len(loader) == len(parts[-1])
        processes(0, 1)
        return parts

    return shares


def expected(loader, epoch: int, rows) -> list[str]:
    """Return the documents of these rows without padding, straight from the reader."""
    return texts([collated(loader.reader, loader.data_path, rows, epoch)])


class TestEpochs:
    @pytest.mark.parametrize("shuffle", [True, False])
    def test_every_document_once_with_the_spans_of_the_epoch(self, make, shuffle):
        loader = make(shuffle=shuffle)
        for epoch in range(3):
            batches = list(loader)
            assert [len(b["anchors"]["tokens"]["mask"]) for b in batches] == [5, 5, 5, 5, 4]
            assert texts(batches) == expected(loader, epoch, loader.order(epoch))
            assert sorted(loader.order(epoch)) == list(range(24))
            assert (loader.order(epoch).tolist() == list(range(24))) is not shuffle

    @pytest.mark.parametrize("seed", [1, 2])
    def test_the_order_is_drawn_from_seed_and_epoch(self, make, seed):
        loader, neighbours = make(seed=seed), make(seed=seed, consecutive=True)
        rows = np.arange(24)
        for epoch in range(3):
            expected = shuffled(rows, (seed, epoch))
            assert loader.order(epoch).tolist() == expected.tolist() != rows.tolist()
            expected = shuffled_batches(rows, 5, (seed, epoch))
            assert neighbours.order(epoch).tolist() == expected.tolist()

    def test_left_out_documents_stay_out(self, make, make_reader, tmp_path):
        (tmp_path / "a.txt").write_text(("ka lo mi " * 40 + "\n\nka\n") * 5)
        loader = make(make_reader(short_documents="skip"), tmp_path / "a.txt", batch_size=2)
        assert loader.documents.tolist() == [0, 3, 6, 9, 12]
        assert len(loader) == 3
        assert sorted(texts(loader)) == sorted(expected(loader, 0, [0, 3, 6, 9, 12]))


class TestSameForAnyNumberOfWorkers:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("workers", "method", "changes"),
        [
            *((1, "fork", {}), (2, "fork", {}), (1, "spawn", {})),
            *((workers, "fork", {"batch_size": None, "max_tokens": 1500}) for workers in (1, 2)),
        ],
        ids=str,
    )
    def test_two_epochs(self, make, workers, method, changes):
        plain = make(**changes)
        busy = make(num_workers=workers, start_method=method, **changes)
        for _ in range(2):
            assert_same(list(plain), list(busy))

    @pytest.mark.slow
    def test_an_epoch_that_is_broken_off(self, make):
        for workers in (0, 2):
            loader, whole = make(num_workers=workers), make()
            for _ in loader:
                break
            list(whole)
            assert_same(list(whole), list(loader))

    def test_two_iterations_at_a_time(self, make):
        loader, whole = make(), make()
        first, second = iter(loader), iter(loader)
        got = [(next(first), next(second)) for _ in range(3)]
        for one in zip(*got, strict=True):
            assert_same(list(one), list(whole)[:3])

    @pytest.mark.slow
    def test_a_resumed_run_reads_the_same_batches(self, make):
        whole, loader = (make(consecutive=True, num_workers=workers) for workers in (0, 2))
        epochs = [list(whole) for _ in range(3)]
        loader.resume_at(1, 3)
        assert list(loader) == [{}] * 5
        assert_same(list(loader)[3:], epochs[1][3:])
        assert_same(list(loader), epochs[2])
        loader.begin_at(1)
        assert_same(list(loader)[3:], epochs[1][3:])

    @pytest.mark.slow
    @pytest.mark.parametrize("in_a_cycle", [False, True], ids=["alone", "in a cycle"])
    def test_workers_end_with_their_loader(self, make, in_a_cycle, monkeypatch):
        """Trainers and their models are cycles; torch would wait for the workers, then kill them.

        A loader alone ends with its last reference, so it must not be part of a cycle of its own.
        """
        loader = make(num_workers=2)
        list(loader)
        iterator = weakref.ref(loader._loader._iterator)
        workers = list(iterator()._workers)
        assert len(workers) == 2 and all(worker.is_alive() for worker in workers)
        killed: list[object] = []  # exit codes do not tell: torch lets killed workers exit with 0
        kill = multiprocessing.process.BaseProcess.terminate
        monkeypatch.setattr(
            "multiprocessing.process.BaseProcess.terminate",
            lambda worker: (killed.append(worker), kill(worker)),
        )
        holder = {"loader": loader}
        gc.disable()
        try:
            if in_a_cycle:
                holder["cycle"] = holder
            del holder, loader
            assert (iterator() is not None) == in_a_cycle
            if in_a_cycle:
                gc.collect()
            assert iterator() is None
        finally:
            gc.enable()
        assert [worker.exitcode for worker in workers] == [0, 0] and not killed

    @pytest.mark.slow
    def test_errors_of_workers_arrive(self, make, make_reader, monkeypatch):
        reader = make_reader()
        loader = make(reader, num_workers=1)
        len(loader)
        monkeypatch.setattr(type(reader), "packed", _broken)
        with pytest.raises(RuntimeError, match="cannot be read"):
            list(loader)
        loader._loader._iterator._shutdown_workers()  # The error holds them, so torch would wait.


def _broken(*_: object) -> None:
    raise RuntimeError("this document cannot be read")


class TestSeveralProcesses:
    @pytest.mark.parametrize("count", [2, 3])
    @pytest.mark.parametrize("drop_last", [True, False])
    @pytest.mark.parametrize("changes", [{}, {"consecutive": True}], ids=["any", "consecutive"])
    def test_processes_together_read_the_batches_of_one(
        self, make, shares, count, drop_last, changes
    ):
        whole = make(batch_size=4 * count, drop_last=drop_last, **changes)
        for epoch in range(3):
            one = [rows.tolist() for rows in whole.batches(epoch)]
            parts = shares(epoch, count, batch_size=4, drop_last=drop_last, **changes)
            assert [np.concatenate(rows).tolist() for rows in zip(*parts, strict=True)] == one

    @pytest.mark.parametrize("total", [1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 23, 24])
    def test_every_process_has_as_many_batches_of_the_same_size(
        self, make, make_reader, processes, total
    ):
        reader = make_reader(max_instances=total)
        sizes = []
        for rank in range(3):
            processes(rank, 3)
            loader = make(reader, batch_size=2)
            try:
                sizes.append([len(rows) for rows in loader.batches(0)])
            except ConfigurationError:
                assert total < 3
                return
            assert len(loader) == len(sizes[-1]) and min(sizes[-1]) > 0
        assert sizes[0] == sizes[1] == sizes[2]
        assert sum(sizes[0]) * 3 == total - total % 3

    def test_too_few_documents_for_all_processes(self, make, make_reader, processes):
        processes(1, 4)
        with pytest.raises(
            ConfigurationError,
            match=r"gives 3 document\(s\), but a batch needs 20 \(batch_size 5 in 4 process\(es\)\)"
            ". Lower batch_size .*, or add documents",
        ):
            len(make(make_reader(max_instances=3)))


class TestSubset:
    """Epochs, processes and vocabularies see the chosen rows, whatever the batches are."""

    @pytest.mark.parametrize("changes", [{}, {"batch_size": None, "max_tokens": 900}])
    def test_every_epoch_has_these_rows(self, make, changes):
        loader = make(subset=RandomSubset(12, seed=1), drop_last=False, **changes)
        rows = loader.documents.tolist()
        for epoch in range(2):
            assert sorted(np.concatenate([*loader.batches(epoch)]).tolist()) == rows
        assert len(list(loader.iter_instances())) == 12

    def test_processes_together_read_the_subset(self, make, shares):
        subset = RandomSubset(fraction=0.5, seed=1)
        each = shares(1, 2, batch_size=3, subset=subset, drop_last=True)
        together = [np.concatenate(both).tolist() for both in zip(*each, strict=True)]
        one = make(batch_size=6, subset=subset, drop_last=True)
        assert together == [rows.tolist() for rows in one.batches(1)]

    def test_a_resumed_run_reads_the_same(self, make):
        whole, resumed = (make(subset=RandomSubset(10)) for _ in range(2))
        resumed.resume_at(0, 1)
        first, second = list(whole), list(resumed)
        assert second[0] == {} and len(first) == len(second)
        assert_same(first[1], second[1])

    def test_of_any_reader(self, tmp_path):
        (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "t{n}"}}\n' for n in range(9)))
        reader = DatasetReader.by_name("text_classification_json")(tokenizer=WhitespaceTokenizer())
        params = {"type": "declutr", "batch_size": 2, "subset": {"size": 4, "seed": 3}}
        loader = DataLoader.from_params(
            Params(params), reader=reader, data_path=str(tmp_path / "rows.jsonl")
        )
        texts = [str(one["tokens"].tokens[0]) for one in loader.iter_instances()]
        assert texts == [f"t{row}" for row in RandomSubset(4, seed=3).of(np.arange(9), "")]


def follow_each_other(rows, count: int = 24) -> bool:
    """Return whether the rows follow each other; the first row follows the last."""
    return all((first + 1) % count == second for first, second in itertools.pairwise(rows))


class TestConsecutive:
    @pytest.mark.parametrize("drop_last", [True, False])
    @pytest.mark.parametrize("batch_size", [4, 5])
    def test_batches_of_rows_that_follow_each_other(self, make, batch_size, drop_last):
        loader = make(consecutive=True, batch_size=batch_size, drop_last=drop_last)
        for epoch in range(4):
            batches = [rows.tolist() for rows in loader.batches(epoch)]
            assert len(batches) == len(loader)
            assert all(follow_each_other(rows) for rows in batches)
            # The corpus is a ring: at most one batch holds its end and its beginning.
            assert sum(rows != sorted(rows) for rows in batches) <= 1
            rows = list(itertools.chain(*batches))
            assert len(set(rows)) == len(rows) == (20 if drop_last and batch_size == 5 else 24)

    def test_without_shuffling_in_order(self, make):
        loader = make(consecutive=True, shuffle=False)
        assert loader.order(3).tolist() == list(range(24))

    def test_a_batch_larger_than_the_corpus(self, make):
        loader = make(consecutive=True, batch_size=25)
        (batch,) = loader.batches(0)
        assert sorted(batch.tolist()) == list(range(24)) and follow_each_other(batch.tolist())


@pytest.fixture(scope="module")
def uneven_file(tmp_path_factory, documents) -> Path:
    """Write 48 documents of 10 to 300 words, and a blank one."""
    rng = np.random.default_rng(0)
    rows = [
        " ".join(documents[number % 24].split()[: rng.integers(10, 300)]) for number in range(48)
    ]
    file = tmp_path_factory.mktemp("uneven") / "rows.txt"
    file.write_text("\n".join([*rows, ""]) + "\n")
    return file


BUDGET = {"batch_size": None, "max_tokens": 700}  # Documents of `uneven_file` have about 20 to 150.


class TestMaxTokens:
    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.parametrize("drop_last", [True, False])
    def test_every_document_once(self, make, uneven_file, shuffle, drop_last):
        loader = make(path=uneven_file, shuffle=shuffle, drop_last=drop_last, **BUDGET)
        sizes = []
        for epoch in range(3):
            batches = list(loader)
            assert len(batches) == len(loader) > 4
            sizes.append([len(batch["anchors"]["tokens"]["mask"]) for batch in batches])
            assert texts(batches) == expected(loader, epoch, loader.order(epoch))
        assert (sizes[0] != sizes[1]) is shuffle
        assert len(set(sizes[0])) > 1 and min(sizes[0]) >= 2

    def test_about_as_many_tokens_in_each(self, make, uneven_file):
        loader = make(path=uneven_file, **BUDGET)
        tokens = [num_tokens(batch) for _ in range(20) for batch in loader]
        assert 0.85 * 700 < np.mean(tokens) <= 1.02 * 700

    def test_whole_texts_count_as_they_are(self, make, make_reader, uneven_file):
        loader = make(make_reader(num_anchors=None), uneven_file, **BUDGET)
        tokens = [int(batch["anchors"]["tokens"]["mask"].sum()) for batch in loader]
        assert np.mean(tokens) <= 700 and max(tokens) < 700 + 128

    @pytest.mark.parametrize("count", [2, 3])
    def test_several_processes(self, make, uneven_file, shares, count):
        """Processes get equal shares, which together are the order of the epoch."""
        whole = make(path=uneven_file, batch_size=None, max_tokens=700 * count)
        for epoch in range(2):
            parts = shares(epoch, count, path=uneven_file, **BUDGET)
            assert len(parts[0]) == len(whole)
            joined = []
            for rows in zip(*parts, strict=True):
                assert len(set(map(len, rows))) == 1 and len(rows[0]) >= 2
                joined.append(np.concatenate(rows))
            order = whole.order(epoch)
            assert np.concatenate(joined).tolist() == order[: 48 - 48 % count].tolist()
            cuts = np.cumsum([len(rows) for rows in whole.batches(epoch)])
            mine = np.cumsum([len(rows) for rows in joined])
            assert np.abs(cuts - mine).max() <= count

    def test_the_process_group_may_be_started_later(self, make, uneven_file, processes):
        loader = make(path=uneven_file, **BUDGET)
        alone = len(loader)
        processes(0, 2)
        assert len(loader) < alone

    def test_too_small_a_budget_is_refused(self, make, uneven_file):
        loader = make(path=uneven_file, batch_size=None, max_tokens=150)
        said = "rows.txt: max_tokens is 150, but a batch holds two documents at least, and two of "
        said += r"the largest give 2\d\d tokens .*Raise max_tokens to that"
        for use in (len, list):
            with pytest.raises(ConfigurationError, match=said):
                use(loader)

    def test_too_few_documents_are_refused(self, make, make_reader, processes):
        processes(1, 4)
        with pytest.raises(ConfigurationError, match=r"7 document\(s\) are not enough for a batch"):
            len(make(make_reader(max_instances=7), batch_size=None, max_tokens=9999))


class TestLength:
    @pytest.mark.parametrize(
        ("batch_size", "drop_last", "length"),
        [
            (5, True, 4),
            (5, False, 5),
            (6, True, 4),
            (6, False, 4),
            (24, True, 1),
            (25, False, 1),
            (1, True, 24),
        ],
    )
    def test_is_known_before_and_right(self, make, batch_size, drop_last, length):
        loader = make(batch_size=batch_size, drop_last=drop_last)
        assert len(loader) == length == len(list(loader)) == len(list(loader))

    def test_too_few_documents_are_refused(self, make):
        loader = make(batch_size=25, drop_last=True)
        said = r"gives 24 document\(s\), but a batch needs 25 .*Lower"
        for use in (len, list):
            with pytest.raises(ConfigurationError, match=said):
                use(loader)

    def test_the_published_corpus(self, make, monkeypatch):
        loader = make(batch_size=16, drop_last=True)
        monkeypatch.setattr(type(loader), "documents", np.arange(497_868))
        assert len(loader) == GOLDEN["values"]["steps_per_epoch_497868_docs_batch16_drop_last"]


class TestSchedule:
    """The scheduler `slanted_triangular` gets the right length of an epoch."""

    def scheduler(self, steps: int, epochs: int = 1):
        inputs = GOLDEN["inputs"]
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=inputs["lr"])
        params = {"type": "slanted_triangular"}
        params |= {key: inputs[key] for key in ("cut_frac", "ratio")}
        scheduler = LearningRateScheduler.from_params(
            Params(params), optimizer=optimizer, num_epochs=epochs, num_steps_per_epoch=steps
        )
        return scheduler, optimizer

    def rates(self, loader, epochs: int = 1) -> list[float]:
        """Return the learning rates before the first step and after each step."""
        scheduler, optimizer = self.scheduler(len(loader), epochs)
        rates, step = [optimizer.param_groups[0]["lr"]], 0
        for _ in range(epochs):
            for _ in range(len(loader)):
                step += 1
                scheduler.step_batch(step)
                rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
        return rates

    @pytest.mark.parametrize("epochs", [1, 4])
    def test_learning_rates_of_each_step(self, make, monkeypatch, epochs):
        loader = make(batch_size=16, drop_last=True)
        steps = GOLDEN["inputs"]["T"] // epochs
        monkeypatch.setattr(type(loader), "documents", np.arange(steps * 16 + 15))
        rates = self.rates(loader, epochs)
        assert len(rates) == GOLDEN["inputs"]["T"] + 1
        chosen = [rates[t] for t in GOLDEN["inputs"]["t"]]
        assert chosen == pytest.approx(GOLDEN["values"]["lr"], rel=1e-6)

    def test_a_real_epoch_peaks_where_it_should(self, make):
        rates = self.rates(make(batch_size=1), epochs=2)  # Of 48 steps, the rate peaks at step 4.
        assert int(np.argmax(rates)) == 4
        assert rates[-1] == pytest.approx(rates[0]) == pytest.approx(max(rates) / 32)


class TestResume:
    def test_skipped_batches_are_empty_and_nothing_is_read(self, make, make_reader, monkeypatch):
        reader = make_reader()
        whole = make(reader)
        epochs = [list(whole) for _ in range(4)]
        read, packed = [], reader.packed

        def recorded(path, rows, epoch):
            read.extend((int(row), epoch) for row in rows)
            return packed(path, rows, epoch)

        monkeypatch.setattr(reader, "packed", recorded)
        loader = make(reader)
        loader.resume_at(2, 3)
        assert list(loader) == [{}] * 5 and list(loader) == [{}] * 5
        assert read == []
        batches = list(loader)
        assert batches[:3] == [{}] * 3
        assert_same(batches[3:], epochs[2][3:])
        assert read == [(int(row), 2) for row in loader.order(2)[15:]]
        assert_same(list(loader), epochs[3])

    @pytest.mark.parametrize("batch", [0, 1, 4, 5, 99])
    def test_resuming_at_any_batch(self, make, batch):
        loader, whole = make(), make()
        loader.resume_at(0, batch)
        assert len(loader) == 5
        batches, right = list(loader), list(whole)
        skipped = min(batch, 5)
        assert batches[:skipped] == [{}] * skipped
        assert_same(batches[skipped:], right[skipped:])
        assert_same(list(loader), list(whole))


class TestRandomNumbers:
    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    def test_global_state_is_left_alone(self, make, workers):
        def state():
            return (
                random.getstate(),
                pickle.dumps(np.random.get_state()),
                torch.random.get_rng_state().tolist(),
            )

        before = state()
        loader = make(num_workers=workers)
        for _ in range(2):
            for _ in loader:
                assert state() == before
        assert state() == before

    def test_global_seeds_do_not_matter(self, make):
        batches = []
        for seed in (0, 1):
            random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
            batches.append(list(make()))
        assert_same(*batches)


class TestSettings:
    @pytest.mark.parametrize(
        "params",
        [
            {"batch_size": 8, "drop_last": True, "num_workers": 1},
            {"max_tokens": 700},
            {"batch_size": 8, "shuffle": True, "consecutive": True},
        ],
    )
    def test_from_params(self, make_reader, corpus_file, params):
        loader = DataLoader.from_params(
            Params({"type": "declutr", **params}), reader=make_reader(), data_path=str(corpus_file)
        )
        assert isinstance(loader, DeCLUTRDataLoader)
        unset = {"batch_size": None, "max_tokens": None, "shuffle": False, "consecutive": False}
        for name, value in {**unset, "num_workers": 0, "drop_last": False, **params}.items():
            assert getattr(loader, name) == value

    def test_max_tokens_of_another_reader_is_refused(self, corpus_file):
        reader = DatasetReader.by_name("text_classification_json")(tokenizer=WhitespaceTokenizer())
        with pytest.raises(
            ConfigurationError,
            match=r"max_tokens needs a dataset reader of this package, .* got TextClassification",
        ):
            DeCLUTRDataLoader(reader, str(corpus_file), max_tokens=2)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"batch_size": 0}, "batch_size must be at least 1 and num_workers at least 0, got 0"),
            ({"num_workers": -1}, "batch_size must be at least 1 and num_workers at least 0, got"),
            ({"batch_size": None}, "Got batch_size None and max_tokens None; expected one of"),
            ({"max_tokens": 700}, "Got batch_size 5 and max_tokens 700; expected one of them"),
            ({"batch_size": None, "max_tokens": 0}, "max_tokens must be at least 1 and num_work"),
            (
                {"batch_size": None, "max_tokens": 700, "consecutive": True},
                "consecutive is for .*: set batch_size, and max_tokens and subset to null",
            ),
            (
                {"subset": RandomSubset(3), "consecutive": True},
                "consecutive is for batches of equally many documents that follow each other: set",
            ),
        ],
    )
    def test_settings_out_of_range_are_refused(self, make, changes, message):
        with pytest.raises(ConfigurationError, match=message):
            make(**changes)

    def test_iterating_needs_a_vocabulary(self, make_reader, corpus_file):
        loader = DeCLUTRDataLoader(make_reader(), str(corpus_file), batch_size=2)
        with pytest.raises(ConfigurationError, match=r"Call index_with\(vocab\) before"):
            next(iter(loader))

    def test_a_corpus_without_documents_is_refused(self, make, tmp_path):
        with pytest.raises(ConfigurationError, match=r"Found no documents at '.*missing"):
            len(make(path=tmp_path / "missing.txt"))
        (tmp_path / "a.txt").touch()
        with pytest.raises(ConfigurationError, match="corpus is empty: not a single row"):
            list(make(path=tmp_path / "a.txt"))

    def test_instances_for_a_vocabulary(self, make):
        loader = make()
        assert len(list(loader.iter_instances())) == 24
        assert_same(list(loader), list(make()))  # They do not count as an epoch.

    @pytest.mark.parametrize("max_length", [None, 5])
    def test_a_vocabulary_has_all_words_of_the_documents(self, make, corpus_file, max_length):
        reader = DeCLUTRDatasetReader(max_length=max_length, **SPANS)
        counts = {"tokens": Counter()}
        for instance in make(reader).iter_instances():
            instance.count_vocab_items(counts)
        assert counts["tokens"] == Counter(corpus_file.read_text().split())

    @pytest.mark.parametrize("device", [-1, "cpu", torch.device("cpu")])
    def test_the_number_of_the_cpu_is_a_device(self, make, device):
        assert (
            next(iter(make(cuda_device=device)))["anchors"]["tokens"]["mask"].device.type == "cpu"
        )

    def test_batches_are_moved_to_the_device(self, make):
        loader = make(cuda_device="cpu")
        loader.set_target_device(torch.device("meta"))
        ids = next(iter(loader))["anchors"]["tokens"]["token_ids"]
        assert ids.device.type == "meta"
        expected = next(iter(make()))["anchors"]["tokens"]["token_ids"]
        assert torch.equal(on_host(ids), expected)  # A meta tensor has no values itself.
