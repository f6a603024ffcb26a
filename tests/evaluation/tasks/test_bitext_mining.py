"""Bitext mining against scikit-learn and golden numbers of MTEB."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from declutr.evaluation.bootstrap import resampled
from declutr.evaluation.tasks.bitext_mining import ParallelTexts, translation_scores
from tests.evaluation.tasks.data_files import values
from tests.evaluation.tasks.made_up_lists import PARALLEL, hashed
from tests.evaluation.tasks.test_described_tasks import described, tasks_of

ROWS = [f"{first},{second}" for first, second in PARALLEL]


def test_scores_are_those_of_mteb(tmp_path: Path) -> None:
    """Golden numbers of commit a905523d0."""
    files = {"a.csv": ["sentence1,sentence2", *ROWS]}
    (task,) = tasks_of(
        described(tmp_path / "x", files, type="bitext mining", file="a.csv")
    ).values()
    expected = {"F1": 27.25, "accuracy": 35.0, "precision": 24.375, "recall": 35.0}
    assert values(task, hashed) == pytest.approx(expected)
    assert (task.group, task.main) == ("bitext-mining", "F1")
    equal = len(PARALLEL) - len({second for _, second in PARALLEL})
    assert equal > 5 and task.notes() == [
        "40 pairs.",
        f"{equal} second texts are equal to one before them, which is found in their place.",
    ]


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_scores_equal_those_of_scikit_learn(n: int, dimension: int, seed: int) -> None:
    """Its classes are the second texts, weighted by how often they are right; some are equal."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, n, dimension))
    second = np.where(rng.random((n, 1)) < 0.4, first, second)
    second = second[np.where(rng.random(n) < 0.3, rng.integers(n, size=n), range(n))]
    lengths = np.linalg.norm(second, axis=1)
    cosines = [
        [round(float(a @ b) / c, 9) for b, c in zip(second, lengths, strict=True)] for a in first
    ]
    found = [row.index(max(row)) for row in cosines]
    expected = precision_recall_fscore_support(range(n), found, average="weighted", zero_division=0)
    got = {name: value.mean() for name, value in translation_scores(first, second).items()}
    assert [got[name] for name in ("precision", "recall", "F1")] == pytest.approx(expected[:3])
    assert got["accuracy"] == pytest.approx(accuracy_score(range(n), found))


def test_equal_second_texts_are_found_once() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = {name: value.tolist() for name, value in translation_scores(rows, rows).items()}
    assert found == {
        "F1": [2 / 3, 1, 0],
        "accuracy": [1, 1, 0],
        "precision": [1 / 2, 1, 0],
        "recall": [1, 1, 0],
    }


def test_several_languages_count_alike(tmp_path: Path) -> None:
    header = "sentence1,sentence2"
    files = {
        "de.csv": [header, *ROWS[:12]],
        "fr.csv": [header, *ROWS[12:]],
        "all.csv": [
            f"{header},subset",
            *(f"{r},{'de' if n < 12 else 'fr'}" for n, r in enumerate(ROWS)),
        ],
    }
    kind = {"type": "bitext-mining"}
    found = tasks_of(
        described(tmp_path / "two", files, **kind, file={"de": "de.csv", "fr": "fr.csv"}),
        described(tmp_path / "one", files, **kind, test="all.csv", subset="subset", dev="all.csv"),
        *(described(tmp_path / name, files, **kind, file=f"{name}.csv") for name in ("de", "fr")),
    )
    german, french = (values(found[name], hashed) for name in ("de", "fr"))
    expected = {f"mean {name}": (german[name] + french[name]) / 2 for name in german}
    expected |= {"de F1": german["F1"], "fr F1": french["F1"]}
    assert values(found["two"], hashed) == pytest.approx(expected)
    assert values(found["one"], hashed) == pytest.approx(
        expected | {f"{name} dev": value for name, value in expected.items()}
    )
    assert found["one"].main == found["two"].main == "mean F1" and found["de"].main == "F1"
    languages = {"de": "de.csv", "fr": "fr.csv"}
    keys = {"type": "bitext-mining", "test": "de.csv", "dev": languages}
    (alone,) = tasks_of(described(tmp_path / "alone", files, **keys)).values()
    dev = {f"{name} dev": value for name, value in expected.items()}
    assert alone.main == "F1" and values(alone, hashed) == pytest.approx(german | dev)
    assert found["two"].notes()[0] == "12 pairs in de, 28 pairs in fr."


def test_samples_are_drawn_within_languages() -> None:
    """A language in which all is found adds no variance."""
    part = ParallelTexts(
        {"a": [f"same {n}" for n in range(8)], "b": [f"one {n}" for n in range(30)]},
        {"a": [f"same {n}" for n in range(8)], "b": [f"two {n}" for n in range(30)]},
    )
    scores = {score.name: score for score in part.scores(hashed)}
    assert scores["a F1"].value == 100
    drawn = resampled([scores["mean accuracy"]], 200)[0]
    assert drawn.min() >= 50 and drawn.max() <= 50 + 50 * 20 / 30
    assert drawn.mean() == pytest.approx(scores["mean accuracy"].value, abs=1)
