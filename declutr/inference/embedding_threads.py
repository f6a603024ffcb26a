"""Threads that embed one batch each with the same model, instead of one batch all together.

Where torch's threads share every operation, they wait for each other at its end, and much is done
by only one of them: small operations, and all that Python does. Threads with a batch each wait for
each other at the end of all batches only. Each computes with one thread of torch.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from threading import Barrier, BrokenBarrierError, Lock, Thread
from typing import TypeVar

import torch
from torch.nn import Module

from declutr.system import free_after_fork
from declutr.transformer.pooling import LAYERS
from declutr.transformer.training_products import runs_compiled

_SETTING = free_after_fork(Lock())  # held while torch's number of threads is not the usual one

Item = TypeVar("Item")
Result = TypeVar("Result")

_KINDS = (
    *("albert", "bert", "camembert", "distilbert", "electra", "ernie", "modernbert", "mpnet"),
    *("mt5", "nomic_bert", "roberta", "t5", "xlm_roberta", "xlm_roberta_xl"),
)
_UNCHANGED = (
    *("torch.nn.", "declutr.", "transformers.activations"),
    *(f"transformers.models.{kind}." for kind in _KINDS),
    *(f"allennlp.modules.{name}" for name in ("feedforward", "time_distributed")),
    *(f"allennlp.modules.{name}_embedders." for name in ("text_field", "token")),
    *(f"allennlp.modules.seq2vec_encoders.{name}" for name in ("boe", "cls", "bert")),
)
"""The modules of Python whose classes keep nothing of a forward pass in evaluation mode.

Others may: a position table that grows with the longest text so far, the state of an LSTM.
"""
_BY_LENGTH = ("dynamic", "longrope")  # rotary positions that are made anew for a longer text


def may_embed_in_threads(parts: Iterable[Module]) -> bool:
    """Return whether several threads may compute with the same modules at once.

    It is False for all that is not known to be unchanged by a forward pass, and for embeddings of
    several layers: some releases of transformers change all layers while they collect their
    outputs.
    """
    return torch.backends.openmp.is_available() and all(
        type(module).__module__.startswith(_UNCHANGED)
        and not runs_compiled(module)
        and not any(kind in str(getattr(module, "rope_type", "")) for kind in _BY_LENGTH)
        and getattr(module, "layers", None) not in tuple(LAYERS)
        for part in parts
        for module in part.modules()
    )


def computed_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield the results of a function for each item, in order, computed by several threads.

    Where so many threads cannot be started, because of a limit or because the interpreter ends,
    this thread computes them.

    # Parameters

    function : is called in other threads, in each of which torch computes with one thread.
    items : the items, of which the first ones are computed first.
    threads : the number of threads.
    """
    begun = Barrier(threads + 1)
    tasks: deque[tuple[Item, Future[Result]]] = deque((item, Future()) for item in items)
    waiting = tasks.copy()

    def work() -> None:
        torch.get_num_threads()  # or the first operation would take the number set last anywhere
        torch.set_num_threads(1)
        try:
            begun.wait()
        except BrokenBarrierError:
            return
        while True:
            try:
                item, future = waiting.popleft()
            except IndexError:
                return
            try:
                future.set_result(function(item))
            except BaseException as error:
                future.set_exception(error)
            finally:
                del item, future  # an error keeps this frame, and the future keeps the error

    # Unlike those of a ThreadPoolExecutor, they neither keep a program from ending, nor need it to
    # go on, if it was another thread of it that embeds.
    workers = [Thread(target=work, name=f"declutr-embed-{n}", daemon=True) for n in range(threads)]
    # Each thread has a number of its own, but those that have not computed yet take the last number
    # that was set anywhere.
    with _SETTING:
        usual = torch.get_num_threads()
        try:
            for worker in workers:
                worker.start()
            begun.wait()
        except BaseException as error:
            begun.abort()
            for worker in filter(Thread.is_alive, workers):
                worker.join()
            if not isinstance(error, RuntimeError):
                raise
        finally:
            torch.set_num_threads(usual)
    if begun.broken:
        yield from map(function, (item for item, _ in tasks))
        return
    try:
        while tasks:
            yield tasks.popleft()[1].result()
    finally:
        waiting.clear()
        tasks.clear()  # what failed need not keep its tensors
        for worker in workers:
            worker.join()


def threads_here() -> int:
    """Return the number of threads that torch computes with in this thread.

    A thread that has not computed yet does not take the number of those that are just started.
    """
    with _SETTING:
        return torch.get_num_threads()
