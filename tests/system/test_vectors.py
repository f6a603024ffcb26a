"""Vectors are scaled to length 1, and inverted lists are set up."""

import numpy as np
import pytest

from declutr.system.vectors import PER_CENTRE, least_effort, number_of_lists, unit_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_length_one_and_zeros_stay(dtype: type) -> None:
    rows = np.array([[3, 4], [0, 0], [1e-3, 0]], dtype=dtype)
    found = unit_rows(rows)
    assert found.dtype == dtype
    assert np.allclose(found, [[0.6, 0.8], [0, 0], [1, 0]])


@pytest.mark.parametrize(
    ("rows", "lists"), [(1, 1), (PER_CENTRE, 1), (10 * PER_CENTRE, 10), (1_000_000, 4000)]
)
def test_number_of_lists(rows: int, lists: int) -> None:
    assert number_of_lists(rows) == lists


@pytest.mark.parametrize(
    ("target", "most", "expected"),
    [(0.0, 9, 1), (0.4, 9, 4), (0.41, 9, 8), (0.9, 9, 9), (2.0, 9, 9), (2.0, 0, 1)],
)
def test_the_least_sufficient_effort_is_returned(target: float, most: int, expected: int) -> None:
    tried: list[int] = []

    def recall(effort: int) -> float:
        tried.append(effort)
        return effort / 10

    assert least_effort(recall, most, target) == (expected, expected / 10)
    assert tried[0] == 1 and tried[-1] == expected and tried == sorted(set(tried))
