"""Summarisation: how well similarity to people's summaries tells the quality of a machine's.

The scores are those of MTEB's SummEval (Muennighoff et al., 2023, section 3.2): a machine's summary
has its highest cosine with a human one, and for each text these correlate with scores of relevance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.scores import Score, pearson, spearman
from declutr.evaluation.task import BadEmbeddings, BrokenData, Protocol, Task, Vectors
from declutr.evaluation.tasks.relatedness import cosines
from declutr.evaluation.tasks.scored_parts import ScoredPart, ScoredParts
from declutr.evaluation.tasks.task_description import Description
from declutr.evaluation.text_files import words


@dataclass(frozen=True)
class Summaries(ScoredPart):
    """Summaries of texts: by people, by machines, and how relevant each of the latter is."""

    human: list[list[str]]
    machine: list[list[str]]
    relevance: list[np.ndarray]
    left_out: int = 0
    """The number of texts whose summaries are all equally relevant."""

    def sentences(self) -> list[str]:
        return [text for side in (self.human, self.machine) for texts in side for text in texts]

    def scores(self, vectors: Vectors) -> list[Score]:
        each = list(self._correlated(vectors))
        if not each:
            raise BadEmbeddings(
                "For no text do the cosines of its summaries differ, so that they correlate with "
                "nothing."
            )
        return [
            Score(f"cosine {name}", "mean", {"value": np.array([of(*pair) for pair in each])})
            for name, of in (("Spearman", spearman), ("Pearson", pearson))
        ]

    def _correlated(self, vectors: Vectors) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the highest cosines of summaries and their relevance, without constant cosines."""
        for human, machine, relevance in zip(self.human, self.machine, self.relevance, strict=True):
            made = vectors(machine)
            sides = [cosines(made, np.broadcast_to(row, made.shape)) for row in vectors(human)]
            found = np.max(sides, axis=0)
            if len(np.unique(found)) > 1:
                yield found, relevance

    def notes(self) -> list[str]:
        found = (
            f"{len(self.human):,} texts, {sum(map(len, self.machine)):,} summaries to be scored."
        )
        why = "texts left out, whose summaries are all equally relevant"
        return [found, *([f"{self.left_out:,} {why}."] if self.left_out else [])]


def summarisation(about: Description, protocol: Protocol) -> Task:
    """Return the task of a description of type "summarisation"."""
    files = about.parts(("test", "dev"))

    def read() -> dict[str, Summaries]:
        return {part: _summaries(about, path) for part, path in files.items()}

    return ScoredParts(about.name, "summarisation", "cosine Spearman", read)


def _summaries(about: Description, path: Path) -> Summaries:
    keys = ("human_summaries", "machine_summaries", "relevance")
    columns = [about.column(key, key) for key in keys]
    rows = about.rows(path, columns)
    found = []
    for row in rows:
        sides = [[*map(words, row.texts(column))] for column in columns[:2]]
        scores = np.array(row.numbers(columns[2]))
        if len(scores) != len(sides[1]):
            row.refuse(columns[2], f"{len(sides[1])} numbers, one for each machine's summary")
        if len(np.unique(scores)) > 1:
            found.append((*sides, scores))
    if not found:
        raise BrokenData(
            f"{path}, column {columns[2]!r}: the summaries of each of {len(rows)} texts are all "
            "equally relevant, expected two different numbers or more, for a correlation."
        )
    human, machine, relevance = (list(side) for side in zip(*found, strict=True))
    return Summaries(human, machine, relevance, left_out=len(rows) - len(found))
