"""Scaling of vectors to length 1, and settings for inverted lists of faiss (IVF)."""

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from declutr.system.processors import usable_processors

PER_CENTRE = 64
"""The number of rows per centre by which inverted lists are trained; faiss needs at least 39."""


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return vectors `(n, d)` scaled to length 1; zeros stay zeros.

    Lengths below 1e-12 count as 1e-12, as in `torch.nn.functional.normalize`.
    """
    squares = np.einsum("nd,nd->n", vectors, vectors)  # in less time than `np.linalg.norm`
    return vectors / np.maximum(np.sqrt(squares), 1e-12)[:, None]


def loaded_faiss() -> Any:
    """Import faiss, limit its threads to the processors of this process, and return the module.

    # Raises

    `ImportError` : if faiss is not installed.
    """
    # At level INFO, faiss logs each of its builds that it tries to load, with tracebacks.
    loader = logging.getLogger("faiss.loader")
    if loader.level == logging.NOTSET:
        loader.setLevel(logging.WARNING)
    import faiss

    # By default faiss uses all processors of the host, even in a container with a quota.
    faiss.omp_set_num_threads(min(faiss.omp_get_max_threads(), usable_processors()))
    return faiss


def number_of_lists(rows: int) -> int:
    """Return the number of inverted lists for a number of rows.

    It is 4 times the square root of `rows`, as faiss recommends for up to a million rows, but no
    more than can be trained with `PER_CENTRE` rows each.
    """
    return max(1, min(round(4 * math.sqrt(rows)), rows // PER_CENTRE))


def least_effort(recall: Callable[[int], float], most: int, target: float) -> tuple[int, float]:
    """Return the least power of 2 as effort that reaches a recall, and its recall.

    # Parameters

    recall : a function that returns the recall at an effort, such as a number of lists to scan.
    most : the maximum effort. It is returned if no smaller one reaches the target.
    target : the recall to reach, between 0 and 1.
    """
    effort = 1
    while (found := recall(effort)) < target and effort < most:
        effort = min(2 * effort, most)
    return effort, found
