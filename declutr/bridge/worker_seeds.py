"""Repairs of the random numbers of AllenNLP's data workers."""

import importlib
import itertools
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from declutr.bridge.repairs import replaces

DISTRIBUTED = "declutr.system.distributed"  # of a later room


class _Worker(NamedTuple):
    epoch: tuple[int, int]  # equal in all workers that read an epoch together
    place: tuple[int, int]  # in no other of them
    shares: Iterator[int]


_this_worker: _Worker | None = None


def numbers_of_epochs(module: ModuleType) -> bool:
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
    return True


def numbers_of_shares(module: ModuleType) -> bool:
    """Let each data worker draw its own random numbers while it reads its share of the rows.

    What a reader draws before and after, such as an order of rows or files, is equal in all workers
    of an epoch. Can be removed together with `numbers_of_epochs`.
    """

    @replaces(module.DatasetReader)
    def shard_iterable(original: Any, self: Any, iterable: Iterable[Any]) -> Iterable[Any]:
        share = original(self, iterable)
        return share if _this_worker is None else _read_by(_this_worker, share)

    return True


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
