"""Bitext mining: whether the nearest text in another language is the translation of a text.

The scores are those of MTEB (Muennighoff et al., 2023, section 3.2), whose classes are the texts of
the second side. A text has one translation, so that recall is the same number as accuracy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import Vectors
from declutr.evaluation.tasks.retrieval import nearest
from declutr.evaluation.tasks.scored_parts import ScoredPart

SCORES = ("F1", "accuracy", "precision", "recall")
"""The names of scores."""


@dataclass(frozen=True)
class ParallelTexts(ScoredPart):
    """Texts of two sides by subset, of which `first[name][i]` belongs to `second[name][i]`.

    The name of the only subset may be empty.
    """

    first: Mapping[str, list[str]]
    second: Mapping[str, list[str]]

    def sentences(self) -> list[str]:
        return [
            text for side in (self.first, self.second) for texts in side.values() for text in texts
        ]

    def scores(self, vectors: Vectors) -> list[Score]:
        found = {
            name: translation_scores(vectors(self.first[name]), vectors(self.second[name]))
            for name in self.first
        }
        if list(found) == [""]:
            return [Score(name, "mean", {"value": value}) for name, value in found[""].items()]
        sizes = [len(texts) for texts in self.first.values()]
        subset = np.repeat(np.arange(len(sizes)), sizes)
        # The mean of all items with these weights is the mean of the means of subsets.
        weights = np.mean(sizes) / np.repeat(sizes, sizes)
        of_all = {
            name: np.concatenate([of_one[name] for of_one in found.values()]) for name in SCORES
        }
        return [
            *(
                Score(f"mean {name}", "mean", {"value": weights * value, "subset": subset})
                for name, value in of_all.items()
            ),
            *(Score(f"{name} F1", "mean", {"value": of["F1"]}) for name, of in found.items()),
        ]

    def notes(self) -> list[str]:
        sizes = [
            f"{len(texts):,} pairs{f' in {name}' if name else ''}"
            for name, texts in self.second.items()
        ]
        equal = sum(len(texts) - len(set(texts)) for texts in self.second.values())
        more = "second texts are equal to one before them, which is found in their place"
        return [f"{', '.join(sizes)}.", *([f"{equal:,} {more}."] if equal else [])]


def translation_scores(first: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
    """Return what each pair adds to F1, accuracy, precision and recall, `(n,)` each.

    The scores are means of these. Of equally near texts, the first one counts as found.

    # Parameters

    first, second : embeddings `(n, d)`, of which rows of one number belong together.
    """
    found = nearest(first, second, depth=1)[:, 0]
    right = (found == np.arange(len(found))).astype(np.float64)
    times = np.bincount(found, minlength=len(second))  # how often each second text was found
    values = 2 * right / (1 + times), right, right / np.maximum(times, 1), right
    return dict(zip(SCORES, values, strict=True))
