"""Rows of vectors scaled to length 1, and divided among inverted lists of faiss (IVF)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from declutr.system.processors import usable_processors

PER_CENTRE = 64
"""Rows that each centre of a list is trained on; faiss wants 39 at least."""


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return rows `(n, d)` of length 1; a length below 1e-12 counts as 1e-12, so zeros stay."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(min=1e-12)


def loaded_faiss() -> Any:
    """Return the module faiss, which computes on as many processors as this process may use.

    # Raises

    `ImportError` : it is not installed.
    """
    # It logs at INFO which of its builds it tries, and with a traceback those that are not there.
    loader = logging.getLogger("faiss.loader")
    if loader.level == logging.NOTSET:
        loader.setLevel(logging.WARNING)
    import faiss

    # It counts the processors of the host, too.
    faiss.omp_set_num_threads(min(faiss.omp_get_max_threads(), usable_processors()))
    return faiss


def number_of_lists(rows: int) -> int:
    """Return how many lists faiss advises for up to a million rows, no more than can be trained."""
    return max(1, min(round(4 * math.sqrt(rows)), rows // PER_CENTRE))


def least_effort(recall: Callable[[int], float], most: int, target: float) -> tuple[int, float]:
    """Return the least effort, doubling from 1, that has a recall of `target`; and its recall.

    # Parameters

    recall : of an effort, such as how many lists are looked into.
    most : with which nothing more can be found, whatever the recall.
    """
    effort = 1
    while (found := recall(effort)) < target and effort < most:
        effort = min(2 * effort, most)
    return effort, found
