"""Principal components against numpy's, and the choice of the task for a map."""

import numpy as np
import pytest

from declutr.evaluation.suite import evaluate
from declutr.evaluation.task import PUBLISHED
from declutr.evaluation.tasks.embedding_map import EmbeddingMap, first_components, map_of
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText, Part
from tests.evaluation.fakes import Positive, hashed


def task(name: str, count: int = 30) -> ClassificationTask:
    texts = [f"{name} {number}" for number in range(count)]
    data = LabelledText(2, Part((texts,), [number % 2 for number in range(count)]))
    return ClassificationTask(name, "downstream", lambda: data, PUBLISHED)


class TestComponents:
    @pytest.mark.parametrize("shape", [(50, 6), (5, 40)])
    def test_points_are_projections_on_eigenvectors_of_the_covariance(self, shape) -> None:
        x = np.random.default_rng(0).normal(size=shape) * np.linspace(1, 3, shape[1])
        points, shown = first_components(x)
        values, axes = np.linalg.eigh(np.cov(x.T))
        projected = (x - x.mean(axis=0)) @ axes[:, [-1, -2]]
        np.testing.assert_allclose(np.abs(points), np.abs(projected), atol=1e-8)
        assert shown.mean() == pytest.approx(values[-2:].sum() / values.sum())
        assert (points[np.abs(points).argmax(axis=0), [0, 1]] > 0).all()

    def test_equal_rows_have_no_components(self) -> None:
        points, shown = first_components(np.full((8, 3), 0.1))
        assert not shown.any() and np.abs(points).max() < 1e-12

    def test_embeddings_of_one_dimension_have_one_component(self) -> None:
        points, shown = first_components(np.arange(4.0)[:, None])
        assert not points[:, 1].any() and shown.mean() == pytest.approx(1)


class TestMap:
    def test_a_map_shows_the_most_suitable_task(self) -> None:
        assert map_of([task("MR"), task("TREC"), task("odd")]).name == "map of TREC"
        assert map_of([task("MR")]).name == "map of MR"
        assert map_of([Positive("TREC", "ab"), task("odd")]) is None

    def test_a_map_has_sentences_with_the_names_of_their_classes(self) -> None:
        source = task("MR")
        (result,) = evaluate(hashed, [EmbeddingMap(source, most=20)])
        items = result.scores[0].items
        assert result.error is None and {len(array) for array in items.values()} == {20}
        sentences = EmbeddingMap(source, most=20).sentences()
        assert set(sentences) < set(source.sentences()) and len(set(sentences)) == 20
        odd = ["positive" if int(text.split()[1]) % 2 else "negative" for text in sentences]
        assert items["label"].tolist() == odd
        assert 0 < result.scores[0].value <= 100
