"""Repairs of AllenNLP's data workers: random numbers, order of what they read, and their end."""

import contextlib
import importlib
import io
import itertools
import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.reduction import ForkingPickler
from queue import Empty
from types import ModuleType
from typing import Any, NamedTuple

from declutr.bridge.repairs import replaces

DISTRIBUTED = "declutr.system.distributed"  # of a later room


class _Worker(NamedTuple):
    epoch: tuple[int, int]  # equal in all workers that read an epoch together
    place: tuple[int, int]  # in no other of them
    shares: Iterator[int]


_this_worker: _Worker | None = None
_LARGE = 1 << 20  # bytes of a tensor that is sent by a file
_PATIENCE = 1.0  # seconds to wait for a worker before looking whether it is still there


def numbers_of_epochs(module: ModuleType) -> None:
    """Let data workers draw other random numbers in each epoch.

    AllenNLP seeds no worker. In a forked one, numpy and torch go on with the numbers of the parent,
    and drew in every epoch what they had drawn before. Python's own numbers, and all numbers of a
    spawned worker, were others in every run; where a reader drew the order of rows by them, rows
    were missing and repeated, because each worker reads all rows to find its own. So the workers of
    an epoch have the same seed, but for the rows that a reader shares itself: `numbers_of_shares`.

    The seed is the number that torch would have drawn next when the loader was made, and draws
    later. So a run with the same seed repeats itself, training draws what it drew before, and a
    resumed run, which reads the earlier epochs of training again, goes on as it would have done.
    Can be removed when AllenNLP seeds workers.
    """
    loader = module.MultiProcessDataLoader

    @replaces(loader)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        self._seed_of_workers, self._starts_of_workers = _next_number(), 0
        original(self, *args, **kwargs)  # may start workers

    def start(original: Any, self: Any, *args: Any) -> Any:
        self._process_of_workers = importlib.import_module(DISTRIBUTED).process_rank()
        self._starts_of_workers += 1
        return original(self, *args)

    def work(original: Any, self: Any, number: int, *args: Any) -> None:
        global _this_worker
        epoch = self._seed_of_workers, self._starts_of_workers
        _this_worker = _Worker(epoch, (self._process_of_workers, number), itertools.count(1))
        _seed(*epoch)
        original(self, number, *args)

    for name in ("_start_instance_workers", "_start_batch_workers"):
        replaces(loader, name)(start)
    for name in ("_instance_worker", "_batch_worker"):
        replaces(loader, name)(work)


def numbers_of_shares(module: ModuleType) -> None:
    """Let each data worker draw its own random numbers while it reads its share of the rows.

    What a reader draws before and after, such as an order of rows or files, is equal in all workers
    of an epoch. Can be removed together with `numbers_of_epochs`.
    """

    @replaces(module.DatasetReader)
    def shard_iterable(original: Any, self: Any, iterable: Iterable[Any]) -> Iterable[Any]:
        share = original(self, iterable)
        return share if _this_worker is None else _read_by(_this_worker, share)


def shares_in_turn(module: ModuleType) -> None:
    """Let the instances and batches of data workers come in turn, one of each worker after another.

    AllenNLP takes what is there first, so that the same run had another order each time it was
    begun. A run that went on within an epoch skipped as many batches of another order, and read
    some rows twice and others never. Predictions that `evaluate` writes were not in the order of
    the data. In turn, instances are in the order in which a process without workers reads them: a
    worker reads each n-th row. To be applied before `worker_processes`, whose processes it gives
    their queues. Can be removed when AllenNLP takes from its workers in turn.
    """

    def start(original: Any, self: Any, queue: Any, ctx: Any, most: int | None) -> Any:
        sizes = () if most is None else (max(1, most // self.num_workers),)
        own = _OwnQueues(ctx, sizes)
        workers, pipes = original(self, queue, own)
        turns = _Turns(own.all_started(), workers)
        # The caller of this method reads from the queue that it made, which is not used otherwise.
        queue.get, queue.task_done, queue.close = turns.get, turns.task_done, turns.close
        return workers, pipes

    @replaces(module.MultiProcessDataLoader)
    def _start_instance_workers(original: Any, self: Any, queue: Any, ctx: Any) -> Any:
        return start(original, self, queue, ctx, self._max_instance_queue_size)

    @replaces(module.MultiProcessDataLoader)
    def _start_batch_workers(original: Any, self: Any, queue: Any, ctx: Any) -> Any:
        return start(original, self, queue, ctx, self._max_batch_queue_size)


def unsent_rows(module: ModuleType) -> None:
    """Let a data worker end with an error where rows that it has read cannot be sent.

    A queue pickles in a thread of its own, which prints an error and goes on, so that such rows
    were missing from the epoch. Can be removed when AllenNLP pickles what it puts into its queues.
    """

    @replaces(module.MultiProcessDataLoader)
    def _safe_queue_put(original: Any, self: Any, number: int, item: Any, *args: Any) -> bool:
        return original(self, number, Pickled(item), *args)


class Pickled:
    """An object that has been pickled for another process, and arrives there as what it was.

    Its tensors are in it if they are not large. torch sends each as a file in `/dev/shm`, open in
    both processes: hundreds of batches under way were more than the usual limit of 1,024 files, or
    than the 64 MB there that a container has.

    # Raises

    `Exception` : of whatever kind, if the object cannot be pickled.
    """

    def __init__(self, item: Any) -> None:
        buffer = io.BytesIO()
        _WithTensors(buffer).dump(item)
        self._bytes = buffer.getvalue()

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._bytes,)


class _WithTensors(ForkingPickler):
    """Pickles tensors of up to a MiB by their numbers."""

    def reducer_override(self, item: Any) -> Any:
        import torch

        plain = type(item) is torch.Tensor and item.layout == torch.strided
        if not plain or item.is_cuda or item.requires_grad or item.nbytes > _LARGE:
            return NotImplemented
        try:
            return torch.from_numpy, (item.numpy(),)
        except (RuntimeError, TypeError):  # a device or a dtype that numpy does not have
            return NotImplemented


def ended_workers(module: ModuleType) -> None:
    """Let a data loader tell its workers to stop, also if one of them has just ended.

    After the last instance or batch, AllenNLP lets the workers end and then tells each to stop. On
    a busy machine a worker may be gone by then, and the loader failed with a `BrokenPipeError`.
    Can be removed when AllenNLP ignores that.
    """

    @replaces(module.MultiProcessDataLoader)
    def _join_workers(original: Any, self: Any, workers: Any, queue: Any, txs: Any) -> None:
        original(self, workers, queue, [_MayBeGone(tx) for tx in txs])


class _MayBeGone:
    """The writing end of a pipe to a process that may have ended."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def send(self, message: Any) -> None:
        """Send a message, unless the other end has been closed."""
        with contextlib.suppress(ConnectionError):
            self._connection.send(message)


class _Turns:
    """The queues of all workers, read in turn as if they were one.

    # Parameters

    queues : the queue of each worker, which ends with `(None, None)`.
    workers : the processes that write into them.
    """

    def __init__(self, queues: list[Any], workers: list[Any]) -> None:
        self._workers = workers
        self._queues, self._waiting = queues, deque(range(len(queues)))
        self._taken: Any = None
        self._ended: list[Any] = []

    def get(self) -> Any:
        """Return the next item of the worker whose turn it is.

        # Raises

        `RuntimeError` : if that worker was killed. AllenNLP would wait for it for good.
        """
        number = self._waiting.popleft()
        queue, item = self._queues[number], self._next_of(number)
        if item == (None, None):  # The worker waits until all have ended, and this is done.
            self._taken = None
            self._ended.append(queue)
        else:
            self._taken = queue
            self._waiting.append(number)
        return item

    def _next_of(self, number: int) -> Any:
        worker, gone = self._workers[number], False
        while True:
            try:
                return self._queues[number].get(timeout=_PATIENCE)
            except (Empty, EOFError, OSError) as error:
                # It was gone before this look, so nothing is on its way, or amid an item.
                if gone or not isinstance(error, Empty):
                    worker.join(_PATIENCE)
                    if worker.exitcode is None:
                        raise  # It is well: too many files are open in this process, for example.
                    raise RuntimeError(
                        f"Data worker {number} ended with exit code {worker.exitcode} before it "
                        "had read all its rows (-9: killed, most often because memory ran out). "
                        "Start again, with a lower num_workers, or max_instances_in_memory, of the "
                        "data loader."
                    ) from None
                gone = not worker.is_alive()

    def task_done(self) -> None:
        """Tell the worker of the last item that it is done, and then all that have ended."""
        if self._taken is not None:
            self._taken.task_done()
            self._taken = None
        elif self._ended:
            self._ended.pop().task_done()
        else:
            raise ValueError("All is done that was taken.")  # as a queue does

    def close(self) -> None:
        """Close the queues of all workers, as a loader does when an epoch is over."""
        for queue in self._queues:
            queue.close()


class _OwnQueues:
    """A `multiprocessing` context that gives the process of each worker a queue of its own.

    Only that worker can write into it, so that reading ends where a worker is killed amid an item.

    # Parameters

    context : the context of all processes.
    sizes : the arguments of each queue.
    """

    def __init__(self, context: Any, sizes: tuple[int, ...]) -> None:
        self._context, self._sizes = context, sizes
        self._queues: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, target: Any, args: tuple, **options: Any) -> Any:
        number, _, *others = args
        self.all_started()  # a forked process has what is open here
        self._queues.append(self._context.JoinableQueue(*self._sizes))
        own = (number, self._queues[-1], *others)
        return self._context.Process(target=target, args=own, **options)

    def all_started(self) -> list[Any]:
        """Return the queues, whose workers have been started, so that these alone write."""
        for queue in self._queues:
            queue._writer.close()
        return self._queues


def _read_by(worker: _Worker, share: Iterable[Any]) -> Iterator[Any]:
    number = next(worker.shares)
    _seed(*worker.epoch, number, *worker.place)
    yield from share
    _seed(*worker.epoch, number)


def _next_number() -> int:
    """Return the number that torch would draw next."""
    import torch

    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def _seed(*numbers: int) -> None:
    import random

    import numpy as np
    import torch

    seeds = np.random.SeedSequence(numbers).generate_state(3)
    random.seed(int(seeds[0]))
    np.random.seed(seeds[1])
    torch.manual_seed(int(seeds[2]))
