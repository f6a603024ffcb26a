"""Communication between training processes.

Apart from `declutr.training.sharding`, only this module calls `torch.distributed`.
Unless its docstring says otherwise, a function works without a process group too, as if there were
a group of one process.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)


def is_distributed() -> bool:
    """Return whether this process belongs to a process group."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Return the number of processes in the group; 1 without a group."""
    return dist.get_world_size() if is_distributed() else 1


def process_rank() -> int:
    """Return the rank of this process in the group; 0 without a group."""
    return dist.get_rank() if is_distributed() else 0


def is_sharded(module: torch.nn.Module) -> bool:
    """Return whether the parameters of a module are sharded over processes.

    All processes must call the forward pass of a sharded module equally often, because each call
    gathers its parameters (see `declutr.training.sharding`).
    """
    if not is_distributed():
        return False
    from torch.distributed.fsdp import FSDPModule  # Its import is slow and rarely needed.

    return any(isinstance(part, FSDPModule) for part in module.modules())


_UNEQUAL = (
    "Processes hold different numbers of rows. Every process needs the same batch size: use the "
    'data loader "declutr", or drop_last.'
)


def gather_rows(rows: torch.Tensor, gradient_factor: float = 1) -> torch.Tensor:
    """Gather the rows of all processes, with a gradient for the rows of this process.

    If every process computes the same loss from the result, the *sum* of the gradients of all
    processes equals the gradient in one process with all rows. DistributedDataParallel computes the
    average instead. With W processes, a `gradient_factor` of W (`scale_fix` of the model) makes the
    average right for the parameters that computed the rows. It is right anyway for parameters of
    the loss, which see all rows in every process.

    # Parameters

    rows : `(n, d)`, with the same n in each of W processes.
    gradient_factor : a factor for the gradient of `rows`.

    # Returns

    The rows of all processes, `(W * n, d)`, in order of rank.

    # Raises

    `ValueError` : if the processes have different numbers of rows. On a GPU, this is checked on the
        device so that the host need not wait for it: the message is printed and the process ends.
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
    """Gather the rows of processes that may have different numbers of rows.

    # Parameters

    rows : `(n, d)`, where n may differ between processes.
    gradient_factor : a factor for the gradient of `rows`, as in `gather_rows`.

    # Returns

    The rows of all processes in order of rank, with a gradient for the rows of this process.
    """
    if not is_distributed():
        return rows
    counts = _row_counts(rows).tolist()
    missing = max(counts) - len(rows)
    padded = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
    parts = _of_all(_GradientTimes.apply(padded, gradient_factor))
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def _row_counts(rows: torch.Tensor) -> torch.Tensor:
    """Return the number of rows in each process, `(W,)`, on the device of `rows`."""
    counts = torch.zeros(world_size(), dtype=torch.int64, device=rows.device)
    counts[process_rank()] = len(rows)
    return all_reduced(counts)


def _of_all(rows: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors of all processes by rank; only that of this process has a gradient."""
    gathered = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(gathered, rows.detach())
    gathered[process_rank()] = rows
    return gathered


def gather_numbers(numbers: torch.Tensor) -> torch.Tensor:
    """Gather one number per row from all processes, from `(n,)` to `(W * n,)`.

    # Raises

    `ValueError` : if the processes have different numbers of rows; see `gather_rows` for GPUs.
    """
    if not is_distributed():
        return numbers
    return gather_rows(numbers.unsqueeze(1))[:, 0]


def gather_tokens(
    vectors: torch.Tensor, mask: torch.Tensor, gradient_factor: float = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather token embeddings and their mask from all processes, padded to the longest length.

    # Parameters

    vectors : token embeddings `(n, T, c)`, where T may differ between processes.
    mask : `(n, T)`, true for tokens and false for padding.
    gradient_factor : a factor for the gradient of `vectors`, as in `gather_rows`.

    # Returns

    Token embeddings `(W * n, L, c)` and their mask `(W * n, L)` in order of rank, where L is the
    largest T.

    # Raises

    `ValueError` : if the processes have different numbers of rows; see `gather_rows` for GPUs.
    """
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
    """An identity function that multiplies the gradient by a factor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        """Return a view of `tensor` and keep the factor."""
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient times the factor; the factor itself has no gradient."""
        return gradient * ctx.factor, None


def all_reduced(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of `tensor` over all processes as a new tensor without a gradient."""
    total = tensor.detach().clone()
    if is_distributed():
        dist.all_reduce(total)
    return total


def with_value(carrier: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a scalar with the value of `value` and the gradient of `carrier`.

    A loss that is scaled because DistributedDataParallel averages gradients can thereby be logged
    with its true value, the same as in one process.
    """
    return carrier + (value - carrier).detach()


def copy_from_first(tensors: Iterable[torch.Tensor], device: torch.device) -> None:
    """Copy the content of tensors in place from the first process; a process group is required.

    # Parameters

    tensors : tensors on any devices, in the same order in all processes.
    device : the device on which processes exchange tensors; it holds one tensor at a time.
    """
    for tensor in tensors:
        sent = tensor.detach().to(device)
        dist.broadcast(sent, src=0)
        tensor.data.copy_(sent)


def groups_of_processes(
    groups: Iterable[list[Any]],
    size: int | None,
    device: torch.device,
    passed_over: Callable[[], bool],
) -> Iterator[list[Any]]:
    """Yield the batches of each step, as many in every process as in the one with the fewest.

    It ends where the first process has no batches left. So each process can divide its losses by
    the number of batches of a step, and none counts more than another. A process group is required,
    and all processes must read to the end.

    # Parameters

    groups : the batches of this process in lists of `size`, of which the last may be shorter.
    size : the number of batches of a step; `None` if it has all batches of an epoch.
    device : the device on which processes exchange numbers.
    passed_over : whether the next step is one that a resumed run does not take again. All processes
        have these, and need not ask each other.
    """
    fewest = torch.tensor(size or 0, device=device)
    for group in groups:
        if not passed_over():
            fewest.fill_(len(group))
            dist.all_reduce(fewest, dist.ReduceOp.MIN)
            if fewest < len(group):
                logger.warning("Another process has no batches left; this one leaves out some.")
                group = group[: int(fewest)]
        if group:
            yield group
        if size is None or fewest < size:
            return
    dist.all_reduce(fewest.zero_(), dist.ReduceOp.MIN)  # answers processes with batches left


def wait_for_all() -> None:
    """Wait until all processes have called this."""
    if is_distributed():
        dist.barrier()


def of_all_processes(value: Any) -> list[Any]:
    """Return the values of all processes in order of rank.

    The values are pickled, so they should be small.
    """
    values = [value] * world_size()
    if is_distributed():
        dist.all_gather_object(values, value)
    return values
