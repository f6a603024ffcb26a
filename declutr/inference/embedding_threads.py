"""Threads that embed one batch each with the same model, instead of one batch all together.

Where torch's threads share every operation, they wait for each other at its end, and much is done
by only one of them: small operations, and all that Python does. Threads with a batch each wait for
each other at the end of all batches only. Each computes with one thread of torch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch
from torch.nn import Module

from declutr.transformer.training_products import runs_compiled

Item = TypeVar("Item")
Result = TypeVar("Result")

_KINDS = (
    *("albert", "bert", "camembert", "distilbert", "electra", "ernie", "modernbert", "mpnet"),
    *("mt5", "nomic_bert", "roberta", "t5", "xlm_roberta", "xlm_roberta_xl"),
)
_UNCHANGED = (
    *("torch.nn.", "declutr.", "transformers.activations"),
    *(f"transformers.models.{kind}." for kind in _KINDS),
    *(f"allennlp.modules.{name}" for name in ("feedforward", "scalar_mix", "time_distributed")),
    *(f"allennlp.modules.{name}_embedders." for name in ("text_field", "token")),
    *(f"allennlp.modules.seq2vec_encoders.{name}" for name in ("boe", "cls", "bert")),
)
"""The modules of Python whose classes keep nothing of a forward pass in evaluation mode.

Others may: a position table that grows with the longest text so far, the state of an LSTM.
"""
_BY_LENGTH = ("dynamic", "longrope")  # rotary positions that are made anew for a longer text


def may_embed_in_threads(parts: Iterable[Module]) -> bool:
    """Return whether several threads may compute with the same modules at once.

    It is False for all that is not known to be unchanged by a forward pass.
    """
    return torch.backends.openmp.is_available() and all(
        type(module).__module__.startswith(_UNCHANGED)
        and not runs_compiled(module)
        and not any(kind in str(getattr(module, "rope_type", "")) for kind in _BY_LENGTH)
        for part in parts
        for module in part.modules()
    )


def computed_in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Iterator[Result]:
    """Yield the results of a function for each item, in order, computed by several threads.

    # Parameters

    function : is called in another thread, in which torch computes with one thread.
    items : at least as many as threads.
    threads : the number of threads.
    """
    usual = torch.get_num_threads()
    begun = Barrier(threads + 1)

    def begin() -> None:
        torch.get_num_threads()  # or its first operation would take the number set last anywhere
        torch.set_num_threads(1)
        begun.wait()

    pool = ThreadPoolExecutor(threads, "declutr-embed", initializer=begin)
    try:
        tasks = [pool.submit(function, item) for item in items]
        begun.wait()
    except BaseException:  # such as that no thread can be started
        begun.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    # Each thread has a number of its own, but those that have not computed yet take the last number
    # that was set anywhere.
    torch.set_num_threads(usual)
    try:
        for task in tasks:
            yield task.result()
    finally:
        pool.shutdown(cancel_futures=True)
