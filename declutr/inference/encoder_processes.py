"""Several devices as one encoder: a process for each, which opens the model for itself."""

from __future__ import annotations

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
from declutr.system.processors import set_threads
from declutr.transformer.dtype_speed import KEEP

_BLOCK = 2048  # texts of a task
_AHEAD = 2  # tasks for each process that are on their way

_encoder: Any = None  # that of a process of the pool


class EncoderProcesses:
    """Processes that embed, one for each device.

    They are spawned: a script that uses them keeps what it does under
    `if __name__ == "__main__":`.

    # Parameters

    opener : makes an encoder of a `device`; each process gets a copy of it.
    devices : one for each process. Those of a CPU share its cores.
    choose : finds out what is quickest for the model on a CPU (`declutr.system.kernel_choices`), so
        that all processes compute by the same.
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
            _with_threads(threads, choose)
        self._count = len(devices)
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
        """Rows and their embeddings, in parts; together those of all texts.

        # Raises

        `RuntimeError` : a process died.
        """
        size = max(1, min(_BLOCK, math.ceil(len(texts) / self._count)))
        # Long and short texts in turn, so that no process has only the long ones.
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

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _result(self, rows: np.ndarray, task: Future) -> tuple[np.ndarray, np.ndarray]:
        vectors, truncated = task.result()
        self.truncated_texts += truncated
        return rows, vectors


def _with_threads(threads: int, ask: Callable[[], None]) -> None:
    """Call with so many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ask()
    finally:
        torch.set_num_threads(before)


def _open(opener: Callable[..., Any], queue: Any, threads: int, choices: dict[str, str]) -> None:
    global _encoder
    CHOICES.adopt(choices)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    set_threads(threads)
    os.environ[KEEP] = "1"  # the dtype is decided: the same in all processes
    _encoder = opener(device=queue.get())


def _embed(texts: list[str], batch_size: int | None, prompt: str) -> tuple[np.ndarray, int]:
    before = _encoder.truncated_texts
    vectors = _encoder(texts, batch_size, prompt=prompt)
    return vectors, _encoder.truncated_texts - before
