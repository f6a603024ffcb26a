"""A vector for every training instance, in memory or on disk, and the ids that instances go by.

What ids hold is told from what the host knows of them (`declutr.system.host_memory`).
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.checks import above_zero, one_of
from declutr.objectives.memories.bank_search import BLOCK
from declutr.system.host_memory import on_host, to_device

STORAGES = ("memory", "disk")
PRECISIONS = {"float32": torch.float32, "float16": torch.float16}


def require_ids(ids: Tensor, instances: int) -> None:
    """Check that ids `(n,)` are from 0 to `instances - 1`.

    # Raises

    `ValueError` : some are not.
    """
    numbers = on_host(ids).tolist() or [0]
    low, high = min(numbers), max(numbers)
    if not 0 <= low <= high < instances:
        raise ValueError(
            f"Expected ids from 0 to {instances - 1} (instances is {instances}), got {low} to "
            f"{high}. Set instances to the rows of train_data_path, blank ones included."
        )


def last_rows(ids: Tensor) -> Tensor | None:
    """Return the last row of each of ids `(n,)`, in ascending order `(m,)`; `None` where no id is
    repeated, so that it is every row."""
    last = {number: row for row, number in enumerate(on_host(ids).tolist())}
    if len(last) == len(ids):
        return None
    return to_device(torch.tensor(sorted(last.values())), ids.device)


class InstanceVectors(torch.nn.Module):
    """A vector for every training instance, zero at first.

    Vectors are part of checkpoints, and whole in them wherever they are kept. They are no buffer,
    which DistributedDataParallel would send around with every step.

    # Parameters

    instances : M, how many the training data has.
    width : d.
    storage : `"memory"` of the model's device, or `"disk"`: mapped into main memory from a file,
        of which the system holds as much as it has room for. The host then waits for a GPU that
        asks for rows.
    folder : where that file lies; `None` is the folder for temporary files. It has no name and goes
        with the process.
    precision : `"float32"` or `"float16"`.
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
        """Whether shapes never depend on what slots hold, so that the host has no need to wait for
        a look at them: where vectors lie on a GPU. A CPU spares itself empty slots instead."""
        self.register_buffer("lengths", torch.ones(instances), persistent=False)
        self.measure()

    def check(self, features: Tensor, ids: Tensor, texts: Tensor | None) -> None:
        """Check that features `(n, d)` and keys of texts `(n,)` are of instances `ids` `(n,)`.

        # Raises

        `ValueError` : shapes that do not fit, or ids of no instance.
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
        """Return copies `(..., d)` of slots `(...)`, on their device."""
        rows = self.vectors[self._where_vectors_are(slots)]
        return rows.to(slots.device).to(self.lengths.dtype)

    def write(self, slots: Tensor, rows: Tensor) -> None:
        """Put rows `(n, d)` into slots `(n,)`."""
        largest = torch.finfo(self.vectors.dtype).max
        rows = rows.clamp(-largest, largest).to(self.vectors)
        self.vectors[self._where_vectors_are(slots)] = rows
        self.lengths[slots] = _lengths(rows).to(self.lengths)

    def fill_with_noise(self, seed: int) -> None:
        """Fill all slots with normal deviates, which are equal in all processes."""
        generator = torch.Generator().manual_seed(seed)
        for block in self.vectors.split(max(1, BLOCK // self.width)):
            block.copy_(torch.randn(block.shape, generator=generator))
        self.measure()

    def measure(self) -> None:
        """Fill in the lengths of vectors."""
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
        elif self.storage == "memory":  # narrow it stays, whatever the model becomes
            self.vectors = self.vectors.to(fn(self.vectors[:0]).device)
        self.fixed_shapes = self.vectors.device.type != "cpu"
        return self


def _lengths(rows: Tensor) -> Tensor:
    """Return those of rows `(b, d)`, in float32 at least; one below 1e-12 counts as 1e-12."""
    wide = rows if rows.itemsize >= 4 else rows.float()
    return torch.linalg.vector_norm(wide, dim=1).clamp_min(1e-12)


def _on_disk(instances: int, width: int, dtype: torch.dtype, folder: str | None) -> Tensor:
    """Return zeros `(M, d)`, mapped from a file that has no name any more."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = os.path.join(scratch, "bank")
        rows = torch.from_file(file, shared=True, size=instances * width, dtype=dtype)
    return rows.view(instances, width)
