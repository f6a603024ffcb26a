"""Lets SentEval's engine run on today's libraries; see `official_senteval.py`.

No file of the clone is changed. What today's libraries or a machine without a GPU need is put in
place of names that the engine's modules imported (`patched`), and nothing else:

* `torch.device("cuda")`, `.cuda()` and `torch.cuda.FloatTensor` are those of the processor;
* `torch.from_numpy` takes a list too, as SNLI's labels are one;
* `np.array` of sentences of unequal length has dtype object, as numpy made it before 1.24;
* `inspect.getargspec`, which Python 3.11 removed, is `getfullargspec`.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch


class _StandIn(ModuleType):
    """A module with some names replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _array(values: Any) -> np.ndarray:
    try:
        return np.array(values)
    except ValueError:
        return np.array(values, dtype=object)


@contextmanager
def patched() -> Iterator[None]:
    """Let the engine run on today's libraries and without a GPU."""
    from senteval import rank, sts, utils
    from senteval.tools import classifier, ranking, relatedness

    cuda = SimpleNamespace(
        is_available=lambda: True,
        manual_seed=lambda seed: None,
        FloatTensor=torch.FloatTensor,
        LongTensor=torch.LongTensor,
    )
    own_torch = _StandIn(
        torch,
        cuda=cuda,
        device=lambda name: torch.device("cpu"),
        from_numpy=lambda values: torch.from_numpy(np.asarray(values)),
    )
    own_inspect = _StandIn(inspect, getargspec=inspect.getfullargspec)
    with ExitStack() as stack:
        for holder in (torch.Tensor, torch.nn.Module):
            stack.enter_context(patch.object(holder, "cuda", lambda self: self))
        for module in (classifier, ranking, relatedness):
            stack.enter_context(patch.object(module, "torch", own_torch))
        for module in (rank, sts):
            stack.enter_context(patch.object(module, "np", _StandIn(np, array=_array)))
        stack.enter_context(patch.object(utils, "inspect", own_inspect))
        yield
