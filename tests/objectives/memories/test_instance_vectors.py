"""Tests of ids of instances that the host reads without waiting."""

import pytest
import torch

from declutr.objectives.memories.instance_vectors import last_rows, require_ids
from declutr.system.host_memory import remember


@pytest.mark.parametrize("ids", [[4, 1, 4, 0, 1, 4], [2, 2], [3]])
def test_last_rows_of_repeated_ids(ids: list[int]) -> None:
    expected = [row for row, number in enumerate(ids) if number not in ids[row + 1 :]]
    rows = last_rows(torch.tensor(ids))
    assert (list(range(len(ids))) if rows is None else rows.tolist()) == expected
    assert last_rows(torch.tensor([5, 0, 2])) is None


def test_ids_that_the_host_remembers_are_not_read_from_the_device() -> None:
    there = torch.empty(3, dtype=torch.long, device="meta")  # Tensors there have no values to read.
    remember(there, torch.tensor([7, 0, 9]))
    assert last_rows(there) is None
    require_ids(there, 10)
    with pytest.raises(ValueError, match=r"from 0 to 8 \(instances is 9\), got 0 to 9"):
        require_ids(there, 9)
    require_ids(torch.empty(0, dtype=torch.long), 1)
