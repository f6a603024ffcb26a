"""Few-shot, nearest-neighbour and clustering tasks, against loops that draw and vote plainly."""

import random
from collections import Counter

import numpy as np
import pytest
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score

from declutr.evaluation.classifiers.features import difference_and_product
from declutr.evaluation.tasks.clustering import Clustering
from declutr.evaluation.tasks.few_shot import FewShot
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText, Part
from declutr.evaluation.tasks.nearest_neighbours import NearestNeighbours, voted
from tests.evaluation.fakes import hashed
from tests.evaluation.tasks.data_files import QUICK, values


def part(count: int, start: int = 0, columns: int = 1) -> Part:
    """Items of three classes, the last of them rare, in a random order; words tell the class."""
    rng = np.random.default_rng(start)
    labels = rng.choice(3, count, p=[0.45, 0.45, 0.1]).tolist()
    texts = [f"{'uvw'[label]} {start + number}" for number, label in enumerate(labels)]
    return Part((texts, texts[::-1])[:columns], labels)


def source(test: Part | None = None, columns: int = 1) -> ClassificationTask:
    train = part(80, columns=columns)
    combine = difference_and_product if columns == 2 else None
    read = lambda: LabelledText(3, train, None, test)  # noqa: E731
    return ClassificationTask("x", "extra", read, QUICK, combine)


def near(texts: list[str]) -> np.ndarray:
    """Embeddings in which texts of a class are somewhat alike."""
    return hashed(texts) + 1.5 * np.eye(3, 4, dtype=np.float32)[["uvw".index(t[0]) for t in texts]]


def test_few_shots_are_drawn_as_mteb_does() -> None:
    test = part(40, 100)
    task = FewShot(source(test), QUICK, shots=(2, 16, 64), draws=3)
    train = task.data.train
    x, asked = near(train.columns[0]), near(test.columns[0])
    expected = {}
    for shots in (2, 16):  # no class has 64 texts
        order, accuracies = list(range(80)), []
        for _ in range(3):
            np.random.RandomState(QUICK.seed).shuffle(order)
            seen, rows = Counter[int](), []
            for row in order:
                if seen[train.labels[row]] < shots:
                    rows.append(row)
                    seen[train.labels[row]] += 1
            model = LogisticRegression(max_iter=100).fit(x[rows], np.array(train.labels)[rows])
            accuracies.append(100 * model.score(asked, test.labels))
        expected[f"{shots}-shot accuracy"] = np.mean(accuracies)
        expected[f"{shots}-shot deviation"] = np.std(accuracies)
    assert values(task, near) == pytest.approx(expected)
    assert "Classes taken whole: 1 with fewer than 16 texts." in task.notes()[1]
    few = FewShot(source(test), QUICK, shots=(2,), draws=1)
    assert len(few.sentences()) == 2 * 3 + 40  # what is not drawn is not embedded


def test_without_a_test_part_half_of_the_data_is_the_test() -> None:
    task = FewShot(source(), QUICK, shots=(60,), draws=2)
    found = values(task, near)
    assert task.main == "60-shot accuracy" and found["60-shot deviation"] < 1e-9  # all drawn
    texts = task.sentences()
    assert len(texts) == len(set(texts)) == 80 and "(halves of the data)" in task.notes()[0]


def test_pairs_are_classified_by_their_features() -> None:
    for task in (
        FewShot(source(columns=2), QUICK, (8,), 2),
        NearestNeighbours(source(columns=2), QUICK),
    ):
        assert 0 < values(task, hashed)[task.main] < 100


@pytest.mark.parametrize("test", [None, part(30, 200)])
def test_neighbours_vote_by_cosine(test: Part | None) -> None:
    task = NearestNeighbours(source(test), QUICK, [1, 4, 7])
    train, tested = task.data.train, task.data.tested
    unit = [v / np.linalg.norm(v) for v in near([*train.columns[0], *tested.columns[0]]).tolist()]
    expected = {}
    for k in (1, 4, 7):
        right = 0
        for number, gold in enumerate(tested.labels):
            others = [row for row in range(80) if test is not None or row != number]
            others.sort(key=lambda row: -float(unit[80 + number] @ unit[row]))
            labels = [train.labels[row] for row in others[:k]]
            most = max(Counter(labels).values())
            right += next(label for label in labels if labels.count(label) == most) == gold
        expected[f"{k}-NN accuracy"] = 100 * right / len(tested)
    assert values(task, near) == pytest.approx(expected)
    whose = "the others of them" if test is None else "80 texts"
    assert task.notes() == [f"{len(tested):,} texts, with {whose} as neighbours."]
    assert task.main == "1-NN accuracy" and NearestNeighbours(source(), QUICK).main[0] == "5"
    assert voted(np.array([[2, 1, 1, 2, 0]])).tolist() == [2]
    assert voted(np.array([[2, 10**12, 10**12]])).tolist() == [10**12]  # in no table of classes


@pytest.mark.parametrize("test", [None, part(60, 300)])
def test_clusters_of_samples_and_of_all_texts(test: Part | None) -> None:
    task = Clustering(source(test), QUICK, draws=3, sample=50)
    tested = task.data.tested
    x, labels = near(tested.columns[0]), np.array(tested.labels)
    rng, found = random.Random(QUICK.seed), []
    for _ in range(3):
        rows = rng.choices(range(len(x)), k=50)
        model = MiniBatchKMeans(3, batch_size=512, n_init=1, random_state=QUICK.seed)
        found.append(100 * v_measure_score(labels[rows], model.fit_predict(x[rows])))
    whole = MiniBatchKMeans(3, batch_size=500, n_init="auto", random_state=QUICK.seed).fit(x)
    scores = values(task, near)
    assert scores["v-measure"] == pytest.approx(np.mean(found))
    assert scores["v-measure deviation"] == pytest.approx(np.std(found))
    assert scores["v-measure of all"] == pytest.approx(100 * v_measure_score(labels, whole.labels_))
    assert 0 < scores["AMI"] < 100 and "3 samples of 50 of" in task.notes()[0]


def test_equal_embeddings_are_at_chance_and_warn_of_nothing(recwarn) -> None:
    def ones(texts) -> np.ndarray:
        return np.ones((len(texts), 3), np.float32)

    assert values(Clustering(source(), QUICK), ones)["v-measure"] == pytest.approx(0, abs=1e-9)
    assert 0 < values(FewShot(source(), QUICK, (8,), 2), ones)["8-shot accuracy"] < 60
    assert not recwarn.list
