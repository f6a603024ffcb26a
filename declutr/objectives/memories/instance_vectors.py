"""Storage of a vector for every training instance, and checks of the ids of instances.

Ids are read on the host, without waiting for a GPU where the host remembers their values
(`declutr.system.host_memory`).
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.memories.bank_search import BLOCK
from declutr.objectives.numerics import above_zero, one_of
from declutr.system.host_memory import on_host, to_device

STORAGES = ("memory", "disk")
PRECISIONS = {"float32": torch.float32, "float16": torch.float16}


def require_ids(ids: Tensor, instances: int) -> None:
    """Check that ids `(n,)` are integers from 0 to `instances - 1`.

    # Raises

    `ValueError` : if an id is outside of that range.
    """
    numbers = on_host(ids).tolist() or [0]
    low, high = min(numbers), max(numbers)
    if not 0 <= low <= high < instances:
        raise ValueError(
            f"Expected ids from 0 to {instances - 1} (instances is {instances}), got {low} to "
            f"{high}. Set instances to the rows of train_data_path, blank ones included."
        )


def last_rows(ids: Tensor) -> Tensor | None:
    """Return the rows `(m,)`, in ascending order, in which each of `ids` `(n,)` occurs last.

    `None` means that no id is repeated, so that these are all rows.
    """
    last = {number: row for row, number in enumerate(on_host(ids).tolist())}
    if len(last) == len(ids):
        return None
    return to_device(torch.tensor(sorted(last.values())), ids.device)


class InstanceVectors(torch.nn.Module):
    """A module that stores a vector, zero at first, for every training instance.

    Checkpoints contain all vectors wherever they are stored. The vectors are not a buffer, because
    DistributedDataParallel would send buffers to all processes in every step.

    # Parameters

    instances : the number M of instances in the training data.
    width : the width d of vectors.
    storage : `"memory"` for the memory of the model's device, or `"disk"` for a memory-mapped file,
        of which the system keeps as much in main memory as it has space for. With `"disk"` the host
        waits for a GPU when rows are read.
    folder : the folder of that file; by default the folder for temporary files. The file has no
        name and disappears with the process.
    precision : the dtype of vectors, `"float32"` or `"float16"`.

    # Raises

    `ConfigurationError` : if a setting is invalid.
    """

    lengths: Tensor

    def __init__(
        self, instances: int, width: int, storage: str, folder: str | None, precision: str
    ) -> None:
        super().__init__()
        self.instances = above_zero("instances", instances)
        self.width = above_zero("width", width)
        self.storage = one_of("storage", storage, STORAGES)
        dtype = PRECISIONS[one_of("precision", precision, PRECISIONS)]
        if storage == "disk":
            self.vectors = _on_disk(instances, width, dtype, folder)
        else:
            self.vectors = torch.zeros(instances, width, dtype=dtype)
        self.fixed_shapes = self.vectors.device.type != "cpu"
        """Whether shapes must not depend on the contents of slots, as on a GPU.

        The host would have to wait for the GPU to know such shapes. On a CPU they save work on
        empty slots.
        """
        self.register_buffer("lengths", torch.ones(instances), persistent=False)
        self.measure()

    def check(self, features: Tensor, ids: Tensor, texts: Tensor | None) -> None:
        """Check the shapes of features `(n, d)`, ids `(n,)` and keys of texts `(n,)`, and the ids.

        # Raises

        `ValueError` : if shapes do not fit, or if an id is not that of an instance.
        """
        if features.dim() != 2 or features.size(1) != self.width or ids.shape != features.shape[:1]:
            raise ValueError(
                f"Expected features (n, {self.width}) and ids (n,), got {tuple(features.shape)} "
                f"and {tuple(ids.shape)}."
            )
        if texts is not None and texts.shape != ids.shape:
            raise ValueError(f"Expected texts {tuple(ids.shape)}, got {tuple(texts.shape)}.")
        require_ids(ids, self.instances)

    def rows(self, slots: Tensor) -> Tensor:
        """Return a copy `(..., d)` of the vectors of `slots` `(...)`, on the device of `slots`."""
        rows = self.vectors[self._where_vectors_are(slots)]
        return rows.to(slots.device).to(self.lengths.dtype)

    def write(self, slots: Tensor, rows: Tensor) -> None:
        """Write rows `(n, d)` into `slots` `(n,)`, clamped to the range of the dtype of vectors."""
        largest = torch.finfo(self.vectors.dtype).max
        rows = rows.clamp(-largest, largest).to(self.vectors)
        self.vectors[self._where_vectors_are(slots)] = rows
        self.lengths[slots] = _lengths(rows).to(self.lengths)

    def fill_with_noise(self, seed: int) -> None:
        """Fill all slots with normal noise, which is the same in all processes."""
        generator = torch.Generator().manual_seed(seed)
        for block in self.vectors.split(max(1, BLOCK // self.width)):
            block.copy_(torch.randn(block.shape, generator=generator))
        self.measure()

    def measure(self) -> None:
        """Compute the lengths of all vectors anew."""
        blocks = self.vectors.split(max(1, BLOCK // self.width))
        self.lengths.copy_(torch.cat([_lengths(block) for block in blocks]))

    def get_extra_state(self) -> Tensor:
        return self.vectors

    def set_extra_state(self, state: Tensor) -> None:
        if state.shape != self.vectors.shape:
            raise ConfigurationError(
                f"The checkpoint has a bank {tuple(state.shape)} of instances and their width, "
                f"this one is {tuple(self.vectors.shape)}: train on the data and with the model "
                "that it was made with."
            )
        with torch.no_grad():
            self.vectors.copy_(state)
        self.measure()

    def _where_vectors_are(self, slots: Tensor) -> Tensor:
        return slots if slots.device == self.vectors.device else on_host(slots)

    def _apply(self, fn: Any, recurse: bool = True) -> InstanceVectors:
        super()._apply(fn, recurse)
        if self.storage == "memory" and self.vectors.itemsize >= 4:
            self.vectors = fn(self.vectors)
        elif self.storage == "memory":
            # Only the device follows the model: float16 vectors stay float16 in any model.
            self.vectors = self.vectors.to(fn(self.vectors[:0]).device)
        self.fixed_shapes = self.vectors.device.type != "cpu"
        return self


def _lengths(rows: Tensor) -> Tensor:
    """Return the lengths of rows `(b, d)`, 1e-12 or more, in float32 at least."""
    wide = rows if rows.itemsize >= 4 else rows.float()
    return torch.linalg.vector_norm(wide, dim=1).clamp_min(1e-12)


def _on_disk(instances: int, width: int, dtype: torch.dtype, folder: str | None) -> Tensor:
    """Return zeros `(M, d)`, memory-mapped from a file that is deleted already."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = os.path.join(scratch, "bank")
        rows = torch.from_file(file, shared=True, size=instances * width, dtype=dtype)
    return rows.view(instances, width)
