"""torch's variable-length kernels of CUDA devices, on CPU tensors.

The kernels of the pretend GPU, registered for the CPU, let everything but the kernels themselves
run for real without a GPU: the arguments we pass, torch's own derivatives of these operators,
`torch.compile`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from declutr.transformer import packed_attention
from declutr.transformer.variable_length_kernels import kernels_of
from tests.pretend_gpu.packed_attention_kernels import PACKED_ATTENTION

CALLS: Counter[str] = Counter()

_SAVES_SUMS = 10  # where `compute_log_sumexp` stands among the arguments

NAMES = {
    "aten::_flash_attention_forward": "flash",
    "aten::_flash_attention_backward": "flash backward",
    "aten::_efficient_attention_forward": "efficient",
    "aten::_efficient_attention_backward": "efficient backward",
}


@contextmanager
def registered() -> Iterator[Counter[str]]:
    """torch's operators work on CPU tensors; gives what is called, which is empty at first."""
    CALLS.clear()
    with torch.library._scoped_library("aten", "IMPL") as library:
        for operator, kernel in PACKED_ATTENTION.items():
            name = operator._schema.name
            library.impl(name.removeprefix("aten::"), _counted(NAMES[name], kernel), "CPU")
        yield CALLS


def _counted(name: str, kernel: Callable) -> Callable:
    def run(*args: Any, **kwargs: Any) -> Any:
        sums = name == "efficient" and args[_SAVES_SUMS : _SAVES_SUMS + 1] == (True,)
        CALLS["efficient for a gradient" if sums else name] += 1
        return kernel(*args, **kwargs)

    return run


@contextmanager
def as_on_a_gpu() -> Iterator[Counter[str]]:
    """And attention over packed texts on the CPU goes the way that it goes on a GPU."""
    kernels_of.cache_clear()
    try:
        with registered() as calls, pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed_attention, "_WITHOUT_KERNELS", ())
            assert all(kernels_of(torch.device("cpu"))) and calls["flash"] == 1  # they are tried
            calls.clear()
            yield calls
    finally:
        kernels_of.cache_clear()
