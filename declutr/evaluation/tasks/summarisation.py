"""Summarisation: how well similarity to people's summaries tells the quality of a machine's.

The scores are those of MTEB's SummEval (Muennighoff et al., 2023, section 3.2): a machine's summary
has its highest cosine with a human one, and for each text these correlate with scores of relevance.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.scores import Score, pearson, spearman
from declutr.evaluation.task import BadEmbeddings, BrokenData, Protocol, Task, Vectors
from declutr.evaluation.tasks.relatedness import highest_cosines
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
        found = [
            highest_cosines(vectors(machine), vectors(human))
            for machine, human in zip(self.machine, self.human, strict=True)
        ]
        # Constant cosines correlate with nothing. MTEB leaves these texts out, too.
        kept = [number for number, highest in enumerate(found) if len(np.unique(highest)) > 1]
        if not kept:
            raise BadEmbeddings(
                "The summaries of each text are all equally similar to those of people, so that "
                "there is no correlation."
            )
        # Encoders are compared only if they have kept the same texts.
        same = {"gold": np.array(kept)}
        scores = []
        for name, correlation in (("Spearman", spearman), ("Pearson", pearson)):
            values = [correlation(found[number], self.relevance[number]) for number in kept]
            scores.append(Score(f"cosine {name}", "mean", {"value": np.array(values), **same}))
        return scores

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
