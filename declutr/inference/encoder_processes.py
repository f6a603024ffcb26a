"""Embedding on several devices: one process for each, which opens its own copy of the model."""

import math
import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import torch

from declutr.system.kernel_choices import CHOICES
from declutr.system.processors import set_threads, torch_threads
from declutr.transformer.dtype_speed import KEEP

_BLOCK = 2048  # texts of one task
_AHEAD = 2  # tasks that are submitted ahead, for each process

_ONE_PROCESS = (
    "an encoder on several devices belongs to the process that made it. Make one with a single "
    "device in each process."
)
_encoder: Any = None  # in a process of the pool, its encoder


class EncoderProcesses:
    """A pool of processes that embed texts, one for each device.

    The processes are spawned, so a script that uses them must keep its main code under
    `if __name__ == "__main__":`.

    # Parameters

    opener : a function of the keyword argument `device` that returns an encoder; each process gets
        a copy of it.
    devices : the name of the device of each process. Processes on the CPU share its cores.
    choose : called once if there are processes on the CPU: it prepares the model that is open
        here, and measures which kernels are fastest (`declutr.system.kernel_choices`), so that all
        processes use the same.
    """

    def __init__(
        self, opener: Callable[..., Any], devices: Sequence[str], choose: Callable[[], None]
    ) -> None:
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        for device in devices:
            queue.put(device)
        on_cpu = sum(device == "cpu" for device in devices)
        threads = max(1, torch.get_num_threads() // max(on_cpu, 1))
        if on_cpu:
            with torch_threads(threads):
                choose()
        self._count, self._owner = len(devices), os.getpid()
        self._pool = ProcessPoolExecutor(
            self._count,
            context,
            initializer=_open,
            initargs=(opener, queue, threads, CHOICES.taken()),
        )
        self.truncated_texts = 0
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    def embed(
        self, texts: list[str], batch_size: int | None, prompt: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the embeddings of all texts in parts: row numbers `(k,)` and embeddings `(k, d)`.

        # Raises

        `RuntimeError` : a process died, or this process was forked from that of the pool.
        """
        if os.getpid() != self._owner:  # There, the pool would be waited for without end.
            raise RuntimeError(f"This process was forked, and {_ONE_PROCESS}")
        size = max(1, min(_BLOCK, math.ceil(len(texts) / self._count)))
        # Each task takes texts at equal distances in this order, so that no process gets only the
        # long ones.
        order = np.argsort([-len(text) for text in texts], kind="stable")
        blocks = math.ceil(len(texts) / size)
        waiting: list[tuple[np.ndarray, Future]] = []
        try:
            for number in range(blocks):
                rows = order[number::blocks]
                task = self._pool.submit(_embed, [texts[row] for row in rows], batch_size, prompt)
                waiting.append((rows, task))
                if len(waiting) > _AHEAD * self._count:
                    yield self._result(*waiting.pop(0))
            while waiting:
                yield self._result(*waiting.pop(0))
        except BrokenProcessPool as error:
            raise RuntimeError(
                "A process that embeds ended before its work was done: it was killed, most often "
                "for want of memory, or could not open the model (see above). Use fewer devices, "
                "or a smaller batch_tokens."
            ) from error
        finally:
            for _, task in waiting:
                task.cancel()

    def __reduce__(self) -> Any:
        raise TypeError(f"It cannot be copied or pickled: {_ONE_PROCESS}")

    def close(self) -> None:
        """End the processes, and wait until they have ended."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _result(self, rows: np.ndarray, task: Future) -> tuple[np.ndarray, np.ndarray]:
        vectors, truncated = task.result()
        self.truncated_texts += truncated
        return rows, vectors


def _open(opener: Callable[..., Any], queue: Any, threads: int, choices: dict[str, str]) -> None:
    global _encoder
    CHOICES.adopt(choices)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    set_threads(threads)
    # The parent process has chosen the dtype; a process that measured again might choose another.
    os.environ[KEEP] = "1"
    _encoder = opener(device=queue.get())


def _embed(texts: list[str], batch_size: int | None, prompt: str) -> tuple[np.ndarray, int]:
    before = _encoder.truncated_texts
    vectors = _encoder(texts, batch_size, prompt=prompt)
    return vectors, _encoder.truncated_texts - before
