"""Data workers draw other random numbers in each epoch and for each row, and miss no row."""

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.data_loaders.multiprocess_data_loader import WorkerError
from allennlp.data.fields import MetadataField, TensorField

from declutr.bridge import data_workers

pytestmark = pytest.mark.slow

NAME = "allennlp.data.data_loaders.multiprocess_data_loader"
Rows = list[list[float]]


class Drawing(DatasetReader):
    """A reader that draws a number of each kind for each row, and shares rows if it is told to."""

    def __init__(self, shares: bool) -> None:
        sharding = {"manual_multiprocess_sharding": shares, "manual_distributed_sharding": shares}
        super().__init__(**sharding)

    def _read(self, file_path: Any) -> Iterator[Instance]:
        rows = range(6)
        for row in self.shard_iterable(rows) if self.manual_multiprocess_sharding else rows:
            numbers = [row, random.random(), np.random.rand(), torch.rand(()).item()]
            yield Instance({"x": TensorField(torch.tensor(numbers, dtype=torch.float64))})


class Shuffling(DatasetReader):
    """A reader that draws the order of rows in each of three files."""

    def __init__(self, shares: bool) -> None:
        sharding = {"manual_multiprocess_sharding": shares, "manual_distributed_sharding": shares}
        super().__init__(**sharding)

    def _read(self, file_path: Any) -> Iterator[Instance]:
        for file in range(3):
            rows = [10 * file + row for row in range(7)]
            random.shuffle(rows)
            for row in self.shard_iterable(rows) if self.manual_multiprocess_sharding else rows:
                yield Instance({"x": TensorField(torch.tensor([row, random.random()]))})


def epochs(
    reader: DatasetReader, cls: Any = MultiProcessDataLoader, count: int = 2, start: str = "fork"
) -> list[Rows]:
    """Return the rows of each epoch of a loader with two workers, by their number."""
    torch.manual_seed(1)
    options = {"num_workers": 2, "max_instances_in_memory": 2, "start_method": start, "quiet": True}
    loader = cls(reader, "", batch_size=1, **options)
    loader.index_with(Vocabulary())
    return [sorted(batch["x"][0].tolist() for batch in loader) for _ in range(count)]


@pytest.mark.parametrize("shares", [True, False])
def test_numbers_differ_by_epoch_and_row_and_come_again(shares: bool, bare: Any) -> None:
    plain = bare(NAME).MultiProcessDataLoader
    first, second = ([row[2:] for row in rows] for rows in epochs(Drawing(shares), plain))
    assert first == second  # of numpy and torch; Python seeds `random` in each forked process
    assert (first[0] == first[1]) is shares  # those of the two workers

    random.seed(0)
    np.random.seed(0)
    found = epochs(Drawing(shares))
    assert [row[0] for row in found[0]] == [row[0] for row in found[1]] == list(range(6))
    drawn = [number for rows in found for row in rows for number in row[1:]]
    assert len(set(drawn)) == len(drawn) == 2 * 6 * 3
    assert epochs(Drawing(shares)) == found  # though other numbers were drawn in between


def test_numbers_of_the_run_stay_as_they_are() -> None:
    """What a resumed run draws must not depend on how often workers were started in it."""
    torch.manual_seed(1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    epochs(Drawing(True))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


@pytest.mark.parametrize("shares", [True, False])
def test_an_order_of_rows_is_the_same_in_all_workers(shares: bool, bare: Any) -> None:
    numbers = [10 * file + row for file in range(3) for row in range(7)]

    def read(cls: Any) -> list[list[float]]:
        return [[row[0] for row in rows] for rows in epochs(Shuffling(shares), cls, count=3)]

    assert read(bare(NAME).MultiProcessDataLoader) != [numbers] * 3  # rows are missing
    assert read(MultiProcessDataLoader) == [numbers] * 3


def test_other_workers_draw_what_forked_ones_draw() -> None:
    expected = epochs(Drawing(True), count=1)
    assert epochs(Drawing(True), count=1, start="forkserver") == expected


def test_instances_that_are_kept_are_drawn_once() -> None:
    torch.manual_seed(1)
    loader = MultiProcessDataLoader(Drawing(True), "", batch_size=6, num_workers=2, quiet=True)
    loader.index_with(Vocabulary())
    (first,), (second,) = list(loader), list(loader)
    assert torch.equal(first["x"], second["x"])
    assert len(set(first["x"][:, 1:].flatten().tolist())) == 18


class Waiting(DatasetReader):
    """A reader of seven rows whose first worker is slower than the second."""

    def _read(self, file_path: Any) -> Iterator[Instance]:
        for row in range(7):
            if self._worker_info is not None and self._worker_info.id == 0:
                time.sleep(0.02)
            yield Instance({"x": TensorField(torch.tensor([float(row)]))})


@pytest.mark.parametrize("kept", [None, 3], ids=["kept", "read in each epoch"])
def test_rows_come_in_the_order_of_one_process(kept: int | None, bare: Any) -> None:
    """Else a run that goes on within an epoch skips other rows than it has read."""

    def read(cls: Any) -> list[float]:
        options = {"num_workers": 2, "max_instances_in_memory": kept, "quiet": True}
        loader = cls(Waiting(), "", batch_size=1, **options)
        loader.index_with(Vocabulary())
        first, second = ([float(batch["x"]) for batch in loader] for _ in range(2))
        assert sorted(first) == sorted(second) == list(range(7))
        return second

    assert read(bare(NAME).MultiProcessDataLoader) != list(range(7))
    assert read(MultiProcessDataLoader) == list(range(7))


@pytest.mark.parametrize("plain", [True, False])
def test_a_worker_that_has_ended_before_it_is_told_to_is_joined(plain: bool, bare: Any) -> None:
    cls = bare(NAME).MultiProcessDataLoader if plain else MultiProcessDataLoader
    loader = cls(Drawing(True), "", batch_size=1, max_instances_in_memory=2)
    reading, writing = multiprocessing.Pipe(duplex=False)
    reading.close()
    with pytest.raises(BrokenPipeError) if plain else contextlib.nullcontext():
        loader._join_workers([], multiprocessing.JoinableQueue(), [writing])


class Killed(Drawing):
    """A reader whose second worker is killed at its second row."""

    def _read(self, file_path: Any) -> Iterator[Instance]:
        for row, instance in enumerate(super()._read(file_path)):
            if row == 1 and self._worker_info is not None and self._worker_info.id == 1:
                time.sleep(0.2)  # the first row is on its way
                os.kill(os.getpid(), signal.SIGKILL)
            yield instance


@pytest.mark.parametrize("kept", [None, 2], ids=["kept", "read in each epoch"])
def test_a_worker_that_is_killed_ends_the_epoch_with_an_error(
    kept: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_workers, "_PATIENCE", 0.1)

    def read() -> None:
        options = {"num_workers": 2, "max_instances_in_memory": kept, "quiet": True}
        loader = MultiProcessDataLoader(Killed(True), "", batch_size=1, **options)
        loader.index_with(Vocabulary())
        for batch in loader:
            rows.append(int(batch["x"][0, 0]))

    rows: list[int] = []
    others = set(multiprocessing.active_children())  # of earlier tests
    with pytest.raises(RuntimeError, match=r"worker 1 ended with exit code -9 .* num_workers"):
        read()
    for worker in {*multiprocessing.active_children()} - others:  # AllenNLP does not wait for them
        worker.join(10)
    assert not {*multiprocessing.active_children()} - others
    assert rows == ([] if kept is None else [0, 1, 2])


def _killed_amid_its_item(number: int, queue: Any) -> None:
    if number == 0:
        queue.put((bytes(1 << 20), None))  # more than a pipe holds
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def test_a_worker_that_is_killed_amid_an_item_is_not_waited_for() -> None:
    own = data_workers._OwnQueues(multiprocessing.get_context("fork"), ())
    workers = []
    for number in range(2):
        args = number, None
        workers.append(own.Process(target=_killed_amid_its_item, args=args, daemon=True))
        workers[-1].start()
    turns, told = data_workers._Turns(own.all_started(), workers), []

    def get() -> None:
        try:
            turns.get()
        except RuntimeError as error:
            told.append(str(error))

    workers[0].join()
    reading = threading.Thread(target=get, daemon=True)  # it waited without end
    reading.start()
    reading.join(10)
    workers[1].kill()
    workers[1].join()
    assert told and "Data worker 0 ended with exit code -9" in told[0]


def test_an_error_in_this_process_is_not_one_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when too many files are open here."""

    class Full:
        def get(self, timeout: float) -> Any:
            raise OSError(24, "Too many open files")

    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    worker.start()
    monkeypatch.setattr(data_workers, "_PATIENCE", 0.1)
    with pytest.raises(OSError, match="Too many open files"):
        data_workers._Turns([Full()], [worker]).get()
    worker.kill()
    worker.join()


def test_batches_on_their_way_need_no_files() -> None:
    """torch opens a file in `/dev/shm` for each tensor, and containers have 64 MB there."""
    wide = torch.arange(60, dtype=torch.float16).view(3, 4, 5)
    tensors = {
        "ids": torch.arange(12).view(3, 4),
        "mask": torch.tensor([[True, False]]),
        "number": torch.tensor(2.5, dtype=torch.float64),
        "columns": wide.transpose(0, 2)[1:],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "empty": torch.zeros(0, 3),
    }
    before = len(os.listdir("/proc/self/fd"))
    sent = [pickle.dumps(data_workers.Pickled(tensors)) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) == before
    arrived = pickle.loads(sent[0])
    assert list(arrived) == list(tensors)
    for name, tensor in tensors.items():
        assert arrived[name].dtype == tensor.dtype and arrived[name].equal(tensor), name
        arrived[name].add_(1) if name != "mask" else arrived[name].zero_()  # and can be changed


class Large(DatasetReader):
    """A reader of two tensors that are sent by a file, and one of numbers that numpy lacks."""

    def _read(self, file_path: Any) -> Iterator[Instance]:
        numbers = torch.arange(300_000)
        tensors = {"x": numbers, "y": numbers.double(), "z": numbers[:3].bfloat16()}
        yield Instance({name: TensorField(tensor) for name, tensor in tensors.items()})


def test_large_tensors_arrive() -> None:
    loader = MultiProcessDataLoader(Large(), "", batch_size=1, num_workers=1, quiet=True)
    loader.index_with(Vocabulary())
    (batch,) = loader
    expected = next(iter(Large().read("")))
    for name, field in expected.fields.items():
        assert batch[name].dtype == field.tensor.dtype and batch[name][0].equal(field.tensor)


class Unsendable(Drawing):
    """A reader with a row that has something which no other process can be sent."""

    def _read(self, file_path: Any) -> Iterator[Instance]:
        for instance in super()._read(file_path):
            if instance["x"].tensor[0] == 3:
                instance.add_field("what", MetadataField(lambda: None))
            yield instance


@pytest.mark.parametrize("kept", [None, 2], ids=["kept", "read in each epoch"])
def test_rows_that_cannot_be_sent_are_an_error(kept: int | None, bare: Any) -> None:
    def rows(cls: Any) -> list[int]:
        options = {"num_workers": 2, "max_instances_in_memory": kept, "quiet": True}
        loader = cls(Unsendable(True), "", batch_size=1, **options)
        loader.index_with(Vocabulary())
        return sorted(int(batch["x"][0, 0]) for batch in loader)

    assert rows(bare(NAME).MultiProcessDataLoader) == [0, 1, 2, 4, 5]
    with pytest.raises(WorkerError, match="pickle"):
        rows(MultiProcessDataLoader)
