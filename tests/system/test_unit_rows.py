"""Rows of length 1."""

import numpy as np
import pytest

from declutr.system.unit_rows import unit_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_length_one_and_zeros_stay(dtype: type) -> None:
    rows = np.array([[3, 4], [0, 0], [1e-3, 0]], dtype=dtype)
    found = unit_rows(rows)
    assert found.dtype == dtype
    assert np.allclose(found, [[0.6, 0.8], [0, 0], [1, 0]])
