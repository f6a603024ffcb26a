"""Pair classification: how well the similarity of texts tells whether they belong together.

The scores are those of MTEB (Muennighoff et al., 2023, section 3.2): for each measure of
similarity, the average precision, and the accuracy and the F1 at the best threshold, which is
chosen on the same pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import Vectors
from declutr.evaluation.tasks.relatedness import cosines
from declutr.evaluation.tasks.scored_parts import ScoredPart

_ROUNDING = 1e-6  # of the length of an embedding of length 1 in float32


def dots(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the dot products of rows, `(n,)`; those of length 1, as of models that scale, cosines.

    In float32, lengths differ from 1 by rounding, which would separate pairs of equal texts.
    """
    unit = [np.abs(np.linalg.norm(rows, axis=1) - 1) < _ROUNDING for rows in (u, v)]
    return np.where(unit[0] & unit[1], cosines(u, v), np.einsum("nd,nd->n", u, v))


SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": cosines,
    "dot": dots,
    "euclidean": lambda u, v: -np.linalg.norm(u - v, axis=1),
    "manhattan": lambda u, v: -np.abs(u - v).sum(axis=1),
}
"""Measures of similarity of rows `(n, d)`, higher for more similar ones; distances are negative."""


@dataclass(frozen=True)
class JudgedPairs(ScoredPart):
    """Pairs of texts `first[i]` and `second[i]`, and whether they belong together."""

    first: list[str]
    second: list[str]
    gold: np.ndarray
    """1 for pairs that belong together, else 0, `(n,)`."""

    def sentences(self) -> list[str]:
        return [*self.first, *self.second]

    def scores(self, vectors: Vectors) -> list[Score]:
        # Sums of differences in float32 would separate pairs that are equally similar.
        u, v = (vectors(texts).astype(np.float64) for texts in (self.first, self.second))
        return judged_scores(u, v, self.gold)

    def notes(self) -> list[str]:
        return [
            f"{len(self.gold):,} pairs, {int(self.gold.sum()):,} of which belong together; average "
            f"precision of chance is {100 * self.gold.mean():.2f}."
        ]


def judged_scores(u: np.ndarray, v: np.ndarray, gold: np.ndarray) -> list[Score]:
    """Return AP, accuracy and F1 for each measure of similarity, and the maximum of each.

    # Parameters

    u, v : embeddings of the first and the second texts, `(n, d)`.
    gold : 1 for pairs that belong together, else 0, `(n,)`.
    """
    found: list[Score] = []
    for name, similarity in SIMILARITIES.items():
        values = similarity(u, v)
        accepted, best = _at_best_thresholds(values, gold)
        found += [
            Score(f"{name} AP", "average_precision", {"predicted": values, "gold": gold}),
            Score(f"{name} accuracy", "accuracy", {"predicted": accepted, "gold": gold}),
            Score(f"{name} F1", "f1", {"predicted": best, "gold": gold}),
        ]
    best_of = [max(found[kind::3], key=lambda score: score.value) for kind in range(3)]
    return [*(replace(s, name=f"max {s.name.split()[-1]}") for s in best_of), *found]


def _at_best_thresholds(values: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions `(n,)` at the thresholds of the best accuracy and of the best F1.

    As in MTEB, a threshold lies between two pairs, so that at least one is accepted and one is not;
    of equal results, the highest threshold is taken. Pairs of equal similarity are never separated,
    where MTEB separates them by their order. If all are equally similar, all are accepted.
    """
    order = np.argsort(-values, kind="stable")
    ends = np.flatnonzero(np.diff(values[order]))  # the last accepted pair for each threshold
    ends = ends if len(ends) else np.array([len(values) - 1])
    right = np.cumsum(gold[order])[ends]
    accepted = ends + 1
    correct = right + (len(gold) - gold.sum()) - (accepted - right)
    f1 = 2 * right / (accepted + gold.sum())
    lowest = (values[order[ends[np.argmax(by)]]] for by in (correct, f1))
    most_accurate, best = ((values >= value).astype(np.int64) for value in lowest)
    return most_accurate, best
