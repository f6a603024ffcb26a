"""Clustering: how well clusters of embeddings agree with the classes of the texts.

V-measure (Rosenberg and Hirschberg, 2007) of mini-batch k-means with as many clusters as classes,
in MTEB's two ways: over several samples of the texts (its present tasks), and over all texts at
once (its first version; Muennighoff et al., 2023).
"""

import random
from collections.abc import Callable

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Vectors
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText
from declutr.evaluation.tasks.labelled_vectors import LabelledVectors, texts_of, unconverged

DRAWS = 10
"""The number of samples that are clustered."""
SAMPLE = 16_384
"""The largest number of texts in a sample."""
_BATCH, _BATCH_OF_ALL = 512, 500  # texts in a mini-batch, as in MTEB's present and first tasks


class Clustering(LabelledVectors):
    """The V-measure of mini-batch k-means on the test part, or on all texts without one.

    # Parameters

    source, protocol : see `LabelledVectors`.
    draws : the number of samples, which are drawn with replacement.
    sample : the largest number of texts in a sample.
    """

    kind = "clustering"

    def __init__(
        self,
        source: ClassificationTask,
        protocol: Protocol,
        draws: int = DRAWS,
        sample: int = SAMPLE,
    ) -> None:
        super().__init__(source, protocol, main="v-measure")
        self._draws, self._sample = draws, sample

    def check(self, data: LabelledText) -> None:
        texts, classes = len(data.tested), len(set(data.tested.labels))
        if len(data.tested.columns) > 1:
            raise BrokenData(f"{self.kind}: expected single texts to cluster, got pairs.")
        if min(texts, self._sample) < classes or classes < 2:
            raise BrokenData(
                f"{self.kind}: expected two classes or more, and samples of at least as many texts "
                f"as classes; got {classes} classes, {texts} texts, samples of {self._sample}."
            )

    def sentences(self) -> list[str]:
        return texts_of(self.data.tested, range(len(self.data.tested)))

    def scores(self, vectors: Vectors) -> list[Score]:
        from sklearn.metrics import adjusted_mutual_info_score, v_measure_score

        labels = np.array(self.data.tested.labels)
        x = self.features(self.data.tested, range(len(labels)), vectors)
        size = min(len(labels), self._sample)
        of_draws = clustered_samples(x, labels, self._draws, size, self._seed)
        information: Callable[[np.ndarray, np.ndarray], float] = adjusted_mutual_info_score
        measures = {
            name: {"value": np.array([measure(*pair) for pair in of_draws])}
            for name, measure in (("v-measure", v_measure_score), ("AMI", information))
        }
        whole = {"value": np.array([v_measure_score(labels, clusters(x, labels, self._seed))])}
        return [
            *(Score(name, "mean", items) for name, items in measures.items()),
            Score("v-measure deviation", "deviation", measures["v-measure"]),
            Score("v-measure of all", "mean", whole),
        ]

    def notes(self) -> list[str]:
        labels = self.data.tested.labels
        return [
            f"{self._draws} samples of {min(len(labels), self._sample):,} of {len(labels):,} texts "
            f"in {len(set(labels))} classes; deviation and interval are over samples."
        ]


def clustered_samples(
    x: np.ndarray, labels: np.ndarray, draws: int, size: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw samples with replacement, and return the labels and the clusters `(size,)` of each.

    # Parameters

    x, labels : embeddings `(n, d)` and classes `(n,)`.
    draws : the number of samples.
    size : the number of texts in a sample.
    seed : the seed of the samples, and that of the clustering of each.
    """
    from sklearn.cluster import MiniBatchKMeans

    rng = random.Random(seed)
    model = MiniBatchKMeans(len(np.unique(labels)), batch_size=_BATCH, n_init=1, random_state=seed)
    found = []
    for _ in range(draws):
        rows = rng.choices(range(len(x)), k=size)
        with unconverged():
            found.append((labels[rows], model.fit_predict(x[rows])))
    return found


def clusters(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Return the clusters `(n,)` of embeddings `(n, d)`, as many as there are classes."""
    from sklearn.cluster import MiniBatchKMeans

    count = len(np.unique(labels))
    model = MiniBatchKMeans(count, batch_size=_BATCH_OF_ALL, n_init="auto", random_state=seed)
    with unconverged():
        return model.fit(x).labels_
