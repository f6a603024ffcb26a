"""The metrics of GLUE's tasks, over all texts of a data set."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from allennlp.training.metrics import Metric
from torch import Tensor

from declutr.modules.text_batches import wide
from declutr.system.distributed import all_reduced, gather_ragged_rows

OF_CLASSES = ("accuracy", "f1", "matthews")
OF_SCORES = ("pearson", "spearman")
_OF_TASKS = {
    "cola": ("matthews", "accuracy"),
    "mrpc": ("accuracy", "f1"),
    "qqp": ("accuracy", "f1"),
}
Counts = np.ndarray | Sequence[Sequence[int]]
"""Counts of texts, by class and prediction `(gold, predicted)`."""
PARTS = ("", "matched", "mismatched")
"""The parts of a data set that have metrics of their own: MNLI's, and the rest."""


def metrics_of(task: str | None, scores: bool) -> tuple[str, ...]:
    """Return the names of the metrics of a task: GLUE's own, or else accuracy or correlations."""
    return OF_SCORES if scores else _OF_TASKS.get(task or "", ("accuracy",))


class ClassMetrics(Metric):
    """Accuracy, F1 and Matthews correlation over all texts since the last `reset`.

    Counts of each class and prediction are kept, so that the metrics are exact and do not depend
    on batches. Texts of MNLI's parts also count for metrics of their own, `matched_accuracy` and
    `mismatched_accuracy`.

    # Parameters

    num_labels : C, the number of classes.
    names : the metrics, of `OF_CLASSES`.
    positive : the class that F1 is about.
    """

    def __init__(
        self, num_labels: int, names: Sequence[str] = ("accuracy",), positive: int = 1
    ) -> None:
        self._num_labels, self._names, self._positive = num_labels, tuple(names), positive
        self._counts: Tensor | None = None  # (parts, gold, predicted)

    @torch.no_grad()
    def __call__(  # type: ignore[override]
        self, predictions: Tensor, labels: Tensor, parts: Sequence[str] | None = None
    ) -> None:
        """Add a batch of n texts.

        # Parameters

        predictions, labels : classes `(n,)`; a text whose label is below 0 has none, and does not
            count.
        parts : of each text one of `PARTS`; by default `""`.
        """
        c = self._num_labels
        if self._counts is None:
            self._counts = labels.new_zeros((len(PARTS), c, c), dtype=torch.long)
        cells = labels.clamp(min=0) * c + predictions
        if parts is not None and any(parts):
            numbers = torch.tensor([PARTS.index(part) if part in PARTS else 0 for part in parts])
            cells = cells + (c * c * numbers).to(cells.device)
        self._counts.view(-1).index_add_(0, cells, (labels >= 0).long())

    def get_metric(self, reset: bool = False) -> dict[str, float]:
        """Return the metrics by name; without texts there are none.

        # Parameters

        reset : compute them over the texts of all processes, which must call this together, and
            discard all recorded batches.
        """
        if self._counts is None:
            return {}
        counts = (all_reduced(self._counts) if reset else self._counts).cpu().numpy()
        if reset:
            self.reset()
        found = self._of_counts(counts.sum(axis=0))
        for part, of_part in zip(PARTS[1:], counts[1:], strict=True):
            if of_part.any():
                own = self._of_counts(of_part)
                found |= {f"{part}_{name}": value for name, value in own.items()}
        return found

    def _of_counts(self, counts: Counts) -> dict[str, float]:
        measures = {"accuracy": accuracy, "matthews": matthews}
        return {
            name: measures[name](counts) if name in measures else f1(counts, self._positive)
            for name in self._names
        }

    def reset(self) -> None:
        """Discard all recorded batches."""
        self._counts = None


def accuracy(counts: Counts) -> float:
    """Return the share of texts whose class is predicted, from counts `(gold, predicted)`."""
    total = int(np.sum(counts))
    return int(np.trace(counts)) / total if total else 0.0


def f1(counts: Counts, positive: int = 1) -> float:
    """Return the F1 of a class; 0 if it is neither there nor predicted.

    # Parameters

    counts : of texts, by class and prediction `(gold, predicted)`.
    positive : the class.
    """
    if positive >= len(counts):
        return 0.0
    gold, predicted = _totals(counts)
    both = gold[positive] + predicted[positive]
    return 2 * int(counts[positive][positive]) / both if both else 0.0


def matthews(counts: Counts) -> float:
    """Return the Matthews correlation of any number of classes (Gorodkin, 2004).

    It is 0 if all texts have the same class, or the same prediction, as in scikit-learn.

    # Parameters

    counts : of texts, by class and prediction `(gold, predicted)`.
    """
    gold, predicted = _totals(counts)
    total, right = sum(gold), int(np.trace(counts))
    shared = total * right - sum(g * p for g, p in zip(gold, predicted, strict=True))
    spread = [total**2 - sum(n**2 for n in numbers) for numbers in (gold, predicted)]
    return shared / math.sqrt(spread[0] * spread[1]) if all(spread) else 0.0


def _totals(counts: Counts) -> tuple[list[int], list[int]]:
    """Return how many texts have each class, and each prediction, as numbers without a limit."""
    return np.sum(counts, axis=1).tolist(), np.sum(counts, axis=0).tolist()


class ScoreMetrics(Metric):
    """Pearson and Spearman correlations over all texts since the last `reset`, as scipy's.

    They are 0 if all scores or all predictions are equal, where scipy has no number, so that early
    stopping can go on. Predictions are kept, as ranks need all of them.

    # Parameters

    names : the metrics, of `OF_SCORES`.
    """

    def __init__(self, names: Sequence[str] = OF_SCORES) -> None:
        self._names = tuple(names)
        self._rows: list[Tensor] = []  # of predictions and scores, (n, 2)

    def __call__(self, predictions: Tensor, labels: Tensor) -> None:  # type: ignore[override]
        """Add a batch of n texts.

        # Parameters

        predictions, labels : scores `(n,)`; a text whose label is not a number does not count.
        """
        self._rows.append(torch.stack([wide(predictions.detach()), labels.detach()], dim=1))

    def get_metric(self, reset: bool = False) -> dict[str, Any]:
        """Return the metrics by name; without texts there are none.

        # Parameters

        reset : compute them over the texts of all processes, which must call this together, and
            discard all recorded batches.
        """
        from scipy.stats import pearsonr, spearmanr  # their import takes time

        if not self._rows:
            return {}
        together = torch.cat(self._rows)
        rows = (gather_ragged_rows(together) if reset else together).cpu().double().numpy()
        if reset:
            self.reset()
        rows = rows[~np.isnan(rows[:, 1])]
        if len(rows) < 2 or not np.ptp(rows, axis=0).all():
            return dict.fromkeys(self._names, 0.0)
        functions = {"pearson": pearsonr, "spearman": spearmanr}
        return {name: float(functions[name](*rows.T)[0]) for name in self._names}

    def reset(self) -> None:
        """Discard all recorded batches."""
        self._rows = []
