"""Repairs of how AllenNLP's readers share data between processes."""

import itertools
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def shares_of_processes(module: ModuleType) -> None:
    """Let `shard_iterable` follow what a reader was told of processes, like the rest of a reader.

    AllenNLP asks the process itself. So the base reader of "sharded", which is told to read all,
    read its share of a share, and half of the data were never seen. And a data worker that was
    spawned, which is no process of training, read the data of all of them. Can be removed when
    `shard_iterable` looks at `_distributed_info`.
    """

    @replaces(module.DatasetReader)
    def _set_distributed_info(original: Any, self: Any, info: Any) -> None:
        original(self, info)
        self._was_told_of_processes = True

    @replaces(module.DatasetReader)
    def shard_iterable(original: Any, self: Any, iterable: Iterable[Any]) -> Iterator[Any]:
        if not (self.manual_distributed_sharding and self.manual_multiprocess_sharding):
            return original(self, iterable)  # which refuses
        processes, worker = self._distributed_info, self._worker_info
        told = getattr(self, "_was_told_of_processes", False)
        if processes is None and module.util.is_distributed() and not told:  # begun after it
            group = module.dist
            processes = module.DistributedInfo(group.get_world_size(), group.get_rank())
        if processes is not None:
            first, every = processes.global_rank, processes.world_size
            iterable = itertools.islice(iterable, first, None, every)
        if worker is not None:
            iterable = itertools.islice(iterable, worker.id, None, worker.num_workers)
        return itertools.islice(iterable, self.max_instances)


def shares_of_parts(module: ModuleType) -> None:
    """Let "interleaving" read all that its readers give it, which is the share of the process.

    AllenNLP takes a share of these shares: a quarter of the data with two processes or workers.
    Can be removed when the reader says that it shards by itself.
    """

    @replaces(module.InterleavingDatasetReader)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.manual_distributed_sharding = self.manual_multiprocess_sharding = True
