"""Numbers of instances: whether a bank has them, and which rows of a batch share one.

Both are told from what the host knows of them (`declutr.system.host_memory`).
"""

from __future__ import annotations

from torch import Tensor, tensor

from declutr.system.host_memory import on_host, to_device


def require_ids(ids: Tensor, instances: int) -> None:
    """See that ids `(n,)` are from 0 to `instances - 1`.

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
    """The last row of each of ids `(n,)`, in ascending order `(m,)`; `None` where no id is
    repeated, so that it is every row."""
    last = {number: row for row, number in enumerate(on_host(ids).tolist())}
    return None if len(last) == len(ids) else to_device(tensor(sorted(last.values())), ids.device)
