"""Scores of pair classification against loops over thresholds, and against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from declutr.evaluation.tasks.pair_classification import judged_scores

NAMES = ("cosine", "dot", "euclidean", "manhattan")


def in_loops(u: np.ndarray, v: np.ndarray, gold: np.ndarray) -> dict[str, float]:
    """MTEB's scores: the best of all thresholds between two different similarities."""
    found = {}
    for name in NAMES:
        values = []
        for a, b in zip(u.tolist(), v.tolist(), strict=True):
            dot = sum(x * y for x, y in zip(a, b, strict=True))
            norms = [sum(x * x for x in side) ** 0.5 for side in (a, b)]
            values.append(
                {
                    "cosine": round(dot / (norms[0] * norms[1]), 7),
                    "dot": dot,
                    "euclidean": -(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5),
                    "manhattan": -sum(abs(x - y) for x, y in zip(a, b, strict=True)),
                }[name]
            )
        accuracies, f1s = [], []
        for threshold in sorted(set(values))[1:]:
            accepted = [value >= threshold for value in values]
            right = sum(a and g for a, g in zip(accepted, gold, strict=True))
            accuracies.append(sum(a == g for a, g in zip(accepted, gold, strict=True)) / len(gold))
            f1s.append(2 * right / (sum(accepted) + sum(gold)))
        found[f"{name} AP"] = 100 * average_precision_score(gold, values)
        found[f"{name} accuracy"], found[f"{name} F1"] = 100 * max(accuracies), 100 * max(f1s)
    for kind in ("AP", "accuracy", "F1"):
        found[f"max {kind}"] = max(found[f"{name} {kind}"] for name in NAMES)
    return found


@pytest.mark.parametrize("digits", [0, 8])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_scores_equal_loops(digits: int, share: float) -> None:
    """Whole numbers make ties, which no threshold separates."""
    rng = np.random.default_rng(3)
    u = rng.normal(0, 2, (80, 3)).round(digits) + 0.5
    v = np.where(rng.random((80, 1)) < 0.3, u, rng.normal(0, 2, (80, 3)).round(digits) + 0.5)
    gold = (rng.random(80) < share).astype(int)
    found = {score.name: score.value for score in judged_scores(u, v, gold)}
    assert found == pytest.approx(in_loops(u, v, gold), abs=1e-9)


def test_equal_embeddings_accept_all_pairs() -> None:
    ones, gold = np.ones((4, 2)), np.array([1, 0, 0, 0])
    found = {score.name: score.value for score in judged_scores(ones, ones, gold)}
    assert [found[f"max {kind}"] for kind in ("AP", "accuracy", "F1")] == [25, 25, 40]


def test_equal_texts_are_equally_similar_where_embeddings_have_length_1() -> None:
    """Rounding of lengths would tell pairs of equal embeddings apart, and find the best order."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 48)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    u, v = rows[:40].astype(np.float64), rows[[*range(20), *range(40, 60)]].astype(np.float64)
    gold = np.resize([1, 0, 0], 40)
    found = {score.name: score.value for score in judged_scores(u, v, gold)}
    for kind in ("AP", "accuracy", "F1"):
        assert found[f"dot {kind}"] == found[f"cosine {kind}"]
