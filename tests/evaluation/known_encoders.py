"""Encoders with known scores, for sentences that end with the name of their class: `... kind3`."""

import re
from collections.abc import Sequence

import numpy as np

from tests.evaluation.fakes import hashed

WIDTH = 12


def revealing(sentences: Sequence[str]) -> np.ndarray:
    """Return one-hot vectors of the class that each sentence names; every classifier is right."""
    kinds = [int(re.search(r"kind(\d+)", sentence).group(1)) for sentence in sentences]
    return 20 * np.eye(WIDTH, dtype=np.float32)[kinds]


def random(sentences: Sequence[str]) -> np.ndarray:
    """Return random vectors that depend on the sentence alone; every classifier guesses."""
    return hashed(sentences, WIDTH)


def sentence(number: int, kind: int) -> str:
    return f"this is sentence number {number} and it is of kind{kind}"
