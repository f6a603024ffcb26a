"""Several processes as one: the only user of `torch.distributed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist


def is_distributed() -> bool:
    """Whether this process is one of a group."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Processes in the group; 1 without one."""
    return dist.get_world_size() if is_distributed() else 1


def process_rank() -> int:
    """Which of them this is; 0 without a group."""
    return dist.get_rank() if is_distributed() else 0


def is_sharded(module: torch.nn.Module) -> bool:
    """Whether parameters of a module are spread over processes (`declutr.training.sharding`).

    All processes must then call it equally often, for it gathers parameters with every call.
    """
    if not is_distributed():
        return False
    from torch.distributed.fsdp import FSDPModule  # takes a while to import

    return any(isinstance(part, FSDPModule) for part in module.modules())


_UNEQUAL = (
    "Processes hold different numbers of rows. Every process needs the same batch size: use the "
    'data loader "declutr", or drop_last.'
)


def gather_rows(rows: torch.Tensor, gradient_factor: float = 1) -> torch.Tensor:
    """The rows of every process, in order of rank, with a gradient for this process's rows only.

    `rows` is `(n, d)` in each of W processes, the result `(W * n, d)`. If every process computes
    the same loss from it, the gradients of all processes *summed* are those of one process with
    all rows. DistributedDataParallel averages instead: with W as `gradient_factor` (`scale_fix` of
    the model) the average is right, for what made the rows and for parameters of the loss, which
    see all rows in every process, alike.

    # Raises

    `ValueError` : the processes hold different numbers of rows. A GPU finds that out for itself, so
        that the host need not wait for it: the message is printed, and the process ends.
    """
    if not is_distributed():
        return rows
    counts = _row_counts(rows)
    if rows.device.type == "cuda":
        torch._assert_async((counts == counts[0]).all(), _UNEQUAL)
    elif len(set(counts.tolist())) > 1:
        raise ValueError(f"{_UNEQUAL} Here: {counts.tolist()}.")
    return torch.cat(_of_all(_GradientTimes.apply(rows.contiguous(), gradient_factor)))


def gather_ragged_rows(rows: torch.Tensor, gradient_factor: float = 1) -> torch.Tensor:
    """`gather_rows` of processes that may each have an n of their own: all their rows."""
    if not is_distributed():
        return rows
    counts = _row_counts(rows).tolist()
    missing = max(counts) - len(rows)
    padded = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
    parts = _of_all(_GradientTimes.apply(padded, gradient_factor))
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def _row_counts(rows: torch.Tensor) -> torch.Tensor:
    """How many rows each process has, `(W,)`, on the device of the rows."""
    counts = torch.zeros(world_size(), dtype=torch.int64, device=rows.device)
    counts[process_rank()] = len(rows)
    return all_reduced(counts)


def _of_all(rows: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of all processes, which have the same shape; only the own one has a gradient."""
    gathered = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(gathered, rows.detach())
    gathered[process_rank()] = rows
    return gathered


def gather_numbers(numbers: torch.Tensor) -> torch.Tensor:
    """`gather_rows` of `(n,)`, one number a row, without a gradient: `(W * n,)`."""
    if not is_distributed():
        return numbers
    return gather_rows(numbers.unsqueeze(1))[:, 0]


def gather_tokens(
    vectors: torch.Tensor, mask: torch.Tensor, gradient_factor: float = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gather_rows` of token vectors `(n, T, c)` and their mask `(n, T)`, each process with a T of
    its own; the result is as long as the longest."""
    if not is_distributed():
        return vectors, mask
    _, length, width = vectors.shape
    longest = max(of_all_processes(length))
    missing = longest - length
    vectors = torch.nn.functional.pad(vectors, (0, 0, 0, missing))
    mask = torch.nn.functional.pad(mask, (0, missing))
    vectors = gather_rows(vectors.flatten(1), gradient_factor)
    return vectors.view(-1, longest, width), gather_rows(mask.long()).bool()


class _GradientTimes(torch.autograd.Function):
    """The same tensor; its gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


def all_reduced(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of `tensor` over all processes, without a gradient; `tensor` itself is untouched."""
    total = tensor.detach().clone()
    if is_distributed():
        dist.all_reduce(total)
    return total


def with_value(carrier: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A scalar that reads as `value` and has the gradient of `carrier`.

    Losses that must be scaled for DistributedDataParallel's averaging are so logged as what they
    are, the same number as in one process.
    """
    return carrier + (value - carrier).detach()


def copy_from_first(tensors: Iterable[torch.Tensor], device: torch.device) -> None:
    """Overwrite each tensor, wherever it lies, by that of the first process.

    `device` is where processes exchange tensors; one at a time is put there.
    """
    for tensor in tensors:
        sent = tensor.detach().to(device)
        dist.broadcast(sent, src=0)
        tensor.data.copy_(sent)


def any_process(value: bool, device: torch.device) -> bool:
    """Whether it is true in any process; all must call this, and wait for each other.

    `device` is where processes exchange tensors.
    """
    return all_reduced(torch.tensor(int(value), device=device)).item() > 0


def wait_for_all() -> None:
    """Return when all processes have called this."""
    if is_distributed():
        dist.barrier()


def of_all_processes(value: Any) -> list[Any]:
    """What each process gives, by rank; small things, for they are pickled."""
    values = [value] * world_size()
    if is_distributed():
        dist.all_gather_object(values, value)
    return values
