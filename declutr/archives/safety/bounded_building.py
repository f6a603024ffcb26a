"""Parameters in proportion to the weights that are there for them.

A configuration of some KB can ask for a vocabulary of billions. What is built is counted as
modules get their parameters, which is before these are initialised: no memory has been touched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from declutr.archives.refusal import TRUST, UnsafeArchive
from declutr.archives.safety.extraction import MAX_RATIO, MAX_UNQUESTIONED_BYTES

MAX_PARAMETERS = 100_000  # tensors; a model of 100 layers has two thousand


@contextmanager
def parameters_in_proportion(weights_bytes: int) -> Iterator[None]:
    """A context in which this thread builds modules of at most 1 GiB, or 20 times the weights.

    Parameters count as often as they are registered: when tied, and when they are loaded.

    # Raises

    `UnsafeArchive` : more is built, whatever became of the error inside.
    """
    allowed = max(MAX_UNQUESTIONED_BYTES, MAX_RATIO * weights_bytes)
    thread, count, size = threading.get_ident(), 0, 0
    refused: list[UnsafeArchive] = []

    def take(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal count, size
        if parameter is None or threading.get_ident() != thread:
            return
        count += 1
        size += parameter.numel() * parameter.element_size()
        if count > MAX_PARAMETERS or size > allowed:
            refused.append(
                UnsafeArchive(
                    f"Its configuration asks for {count:,} parameters of {size:,} bytes or more "
                    f"(the last is {name} of {type(module).__name__}, {tuple(parameter.shape)}), "
                    f"its weights have {weights_bytes:,} bytes. {TRUST}"
                )
            )
            raise refused[0]

    handle = register_module_parameter_registration_hook(take)
    try:
        yield
    except Exception as error:
        if refused and error is not refused[0]:
            raise refused[0] from error
        raise
    finally:
        handle.remove()
