"""Alignment, uniformity and spread: golden numbers, naive loops, known spheres, alarms."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from declutr.evaluation.bootstrap import interval
from declutr.evaluation.result_keys import data_digest
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import evaluate
from declutr.evaluation.task import PUBLISHED, BadEmbeddings, BrokenData, MissingData, Task
from declutr.evaluation.tasks.geometry import (
    alignment_contributions,
    collapse_alarm,
    cosine_contributions,
    spectrum,
    tasks,
    uniformity_contributions,
)
from declutr.objectives.without_negatives import alignment_uniformity
from tests.evaluation.fakes import hashed
from tests.evaluation.tasks.data_files import values, write_benchmark

FIXTURE = Path(__file__).parents[2] / "fixtures/golden_objectives.json"
GOLDEN = json.loads(FIXTURE.read_text())["align_uniform"]


def uniformity(x: np.ndarray, t: float = 2, block: int = 1024) -> float:
    return Score("u", "log_mean", {"value": uniformity_contributions(x, t, block)}).value


def random(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_golden_numbers() -> None:
    x, y = (np.array(GOLDEN["inputs"][name]) for name in ("x", "y"))
    assert alignment_contributions(x, y).mean() == pytest.approx(0.076101, abs=1e-6)
    assert uniformity(x) == pytest.approx(-2.981681, abs=1e-6)
    assert uniformity(y) == pytest.approx(-2.449400, abs=1e-6)


@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 50), st.floats(0.5, 4))
def test_uniformity_equals_a_naive_loop_and_the_loss(n: int, d: int, block: int, t: float) -> None:
    x = random(n, d, seed=n * 7 + d)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    kernel = [math.exp(-t * np.sum((a - b) ** 2)) for a, b in combinations(unit, 2)]
    expected = math.log(sum(kernel) / len(kernel))
    assert uniformity(x, t, block) == pytest.approx(expected, abs=1e-9)
    loss = alignment_uniformity.uniformity(torch.from_numpy(x), t)
    assert uniformity(x, t, block) == pytest.approx(loss.item(), abs=1e-9)


@pytest.mark.parametrize("alpha", [1, 2])
def test_alignment_equals_the_loss(alpha: float) -> None:
    x, y = random(9, 4), random(9, 4, seed=1)
    loss = alignment_uniformity.alignment(torch.from_numpy(x), torch.from_numpy(y), alpha)
    assert alignment_contributions(x, y, alpha).mean() == pytest.approx(loss.item())
    assert alignment_contributions(x, 3 * x, alpha) == pytest.approx(np.zeros(9), abs=1e-7)
    assert alignment_contributions(x, -x, alpha) == pytest.approx(np.full(9, 2**alpha))


def test_bounds_of_uniformity() -> None:
    same = np.ones((10, 3))
    assert uniformity(same) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.array([[1.0, 0], [-1, 0]])) == pytest.approx(-8)
    # In many dimensions all rows are nearly orthogonal: |a - b|^2 = 2
    assert uniformity(random(300, 2000)) == pytest.approx(-4, abs=0.05)
    with pytest.raises(ValueError, match="at least two embeddings, got 1"):
        uniformity(np.ones((1, 3)))


def test_single_precision_is_enough() -> None:
    x = random(200, 30)
    assert uniformity(x.astype(np.float32)) == pytest.approx(uniformity(x), abs=1e-5)


def test_a_zero_vector_has_distance_1_from_unit_vectors() -> None:
    x = np.array([[0.0, 0], [3, 4]])  # the second row is scaled to length 1
    assert uniformity(x) == pytest.approx(-2)
    assert cosine_contributions(x).mean() == 0


@given(st.integers(2, 30), st.integers(1, 5))
def test_the_mean_cosine_equals_the_mean_over_all_pairs(n: int, d: int) -> None:
    x = random(n, d, seed=n + 100 * d)
    each = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in combinations(x, 2)]
    assert cosine_contributions(x).mean() == pytest.approx(np.mean(each), abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(60, 5), (12, 40), (7, 7)])
def test_the_spectrum_follows_from_singular_values(n: int, d: int) -> None:
    x = random(n, d) * np.linspace(1, 4, d)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    values = np.linalg.svd(unit - unit.mean(axis=0), compute_uv=False) ** 2
    shares = values / values.sum()
    shares = shares[shares > 1e-12]
    got = spectrum(x)
    assert got.first.mean() == pytest.approx(shares[0])
    assert got.rank.mean() == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))


def test_known_spectra() -> None:
    corners = np.concatenate([np.eye(4), -np.eye(4)])
    got = spectrum(corners)
    assert got.first.mean() == pytest.approx(1 / 4)
    assert got.rank.mean() == pytest.approx(4)
    line = np.array([[1.0, 0, 0], [-1, 0, 0], [1, 0, 0]])
    assert spectrum(line).first.mean() == pytest.approx(1)
    assert spectrum(line).rank.mean() == pytest.approx(1)
    same = spectrum(np.full((5, 3), 0.1, np.float32))
    assert (same.first.mean(), same.rank.mean()) == (1, 1)


STATISTICS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "uniformity": ("log_mean", uniformity_contributions),
    "cosine": ("plain_mean", cosine_contributions),
    "first": ("mean", lambda x: spectrum(x).first),
    "rank": ("plain_mean", lambda x: spectrum(x).rank),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_intervals_are_as_wide_as_scores_vary_between_samples(name: str) -> None:
    """Contributions have the spread of the score over new samples from the same source."""
    statistic, contributions = STATISTICS[name]

    def sample(seed: int) -> np.ndarray:
        return random(150, 6, seed) * np.array([3, 2, 1, 1, 1, 1]) + 0.3

    scores = [Score("s", statistic, {"value": contributions(sample(seed))}) for seed in range(120)]
    spread = np.std([score.value for score in scores])
    low, high = np.transpose([interval(score, resamples=300) for score in scores[:10]])
    assert np.mean(high - low) / (2 * 1.96) == pytest.approx(spread, rel=0.25)


def alarm(x: np.ndarray) -> str | None:
    return collapse_alarm(x, cosine_contributions(x).mean(), spectrum(x).rank.mean())


def test_alarms_tell_which_way_embeddings_collapsed() -> None:
    assert alarm(random(50, 20)) is None
    assert alarm(random(50, 2)) is None
    assert alarm(random(50, 1)) is None
    assert alarm(random(50, 300) + 1) is None  # anisotropic, as most encoders are
    point = np.ones((50, 20)) + 1e-3 * random(50, 20)
    told = "COLLAPSE: all 50 embeddings point the same way (mean cosine 0.99999"
    assert told in str(alarm(point))
    line = np.outer(random(50, 1)[:, 0], np.ones(20)) + 1e-3 * random(50, 20)
    assert "vary in 1.0 of 20 dimensions (effective rank)" in str(alarm(line))
    zeros = np.concatenate([np.zeros((30, 4)), random(20, 4)])
    assert "of 30 of 50 sentences are zero" in str(alarm(zeros))


def benchmark(folder: Path, *splits: list[float], name: str = "", more: Any = ()) -> Task:
    """Return the task on pairs with these gold scores in the splits, the last with more pairs."""
    rows = [
        [(f"a {split} {n}", f"b {split} {n}", gold) for n, gold in enumerate(golds)]
        for split, golds in enumerate(splits)
    ]
    rows[-1] += more
    parts = dict(zip(("train", "dev", "test"), rows, strict=True))
    write_benchmark(folder / f"downstream/STS/STSBenchmark{name}", parts)
    (task,) = tasks(folder, PUBLISHED)
    return task


def test_the_task_scores_distinct_sentences_and_pairs_above_the_cut(tmp_path: Path) -> None:
    splits = [[4.2, 4.0, 1, 2], [5, 0, 3], [4.8, 2]]
    again = ("a 0 0", "b 1 1", 0.5)  # sentences that are there already
    task = benchmark(tmp_path, *splits, more=[again])
    assert (task.name, task.group, task.main) == ("geometry", "geometry", "uniformity")
    assert len(task.sentences()) == len(set(task.sentences())) == 18
    got = values(task, hashed)
    # Pairs with a gold score above 4, not equal to it.
    same = [("a 0 0", "b 0 0"), ("a 1 0", "b 1 0"), ("a 2 0", "b 2 0")]
    x, y = (hashed([pair[side] for pair in same]) for side in (0, 1))
    assert got["alignment"] == pytest.approx(alignment_contributions(x, y).mean(), rel=1e-5)
    x = hashed(task.sentences())
    assert got["uniformity"] == pytest.approx(uniformity(x), rel=1e-5)
    assert got["mean cosine"] == pytest.approx(cosine_contributions(x).mean(), abs=1e-5)
    first = 100 * spectrum(x).first.mean()
    assert got["first component share"] == pytest.approx(first, rel=1e-5)
    assert got["effective rank"] == pytest.approx(spectrum(x).rank.mean(), rel=1e-5)
    about = "STS-B: alignment of 3 pairs scored above 4 of 5; the rest over 18 different sentences."
    assert task.notes() == [about]


def test_the_alarm_is_a_note_on_one_encoder_only(tmp_path: Path) -> None:
    task = benchmark(tmp_path, *[[5, 1, 3]] * 3)
    for encode, alarms in ((lambda t: np.ones((len(t), 4)), 1), (hashed, 0)):
        scores = values(task, encode)
        assert len([note for note in task.notes() if note.startswith("COLLAPSE")]) == alarms
        assert (scores["uniformity"] == 0) == bool(alarms)


def test_scoring_changes_neither_the_digest_nor_later_notes(tmp_path: Path) -> None:
    task = benchmark(tmp_path, *[[5, 1, 3]] * 3)
    fresh, about = data_digest(task), task.notes()
    assert fresh == "b07acae42c8014e8a953b9edb9298f98"  # stored results have this digest
    (result,) = evaluate(lambda texts: np.ones((len(texts), 4)), [task])
    assert result.notes[0].startswith("COLLAPSE")
    assert data_digest(task) == fresh and task.notes() == about
    task.scores(lambda texts: np.ones((len(texts), 4)))
    assert data_digest(task) == fresh and task.notes() != about
    with pytest.raises(BadEmbeddings):
        task.scores(refuse)
    assert task.notes() == about


def refuse(texts: Sequence[str]) -> np.ndarray:
    raise BadEmbeddings


def test_another_folder_replaces_a_missing_one_and_is_named(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, PUBLISHED)
    with pytest.raises(MissingData, match=r"STSBenchmark/sts-train.csv is not there"):
        task.sentences()
    task = benchmark(tmp_path, *[[5, 1]] * 3, name="-part")
    assert len(task.sentences()) == 12
    assert task.notes()[0].startswith("STSBenchmark-part: alignment of 3 pairs")


def test_without_a_pair_above_the_cut_the_data_are_broken(tmp_path: Path) -> None:
    with pytest.raises(BrokenData, match="no pair that was scored above 4 of 5"):
        benchmark(tmp_path, *[[4, 1]] * 3).scores(hashed)
