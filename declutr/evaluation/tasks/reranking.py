"""Reranking: how far up the relevant ones of a query's candidates are, by cosine.

Of equally similar candidates, the less relevant ones come first. So do MTEB's functions where its
sets are lists of positives and negatives: trec_eval orders ties by name, the last first, and there
"negative" comes after "apositive".
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Vectors
from declutr.evaluation.tasks.relatedness import highest_cosines
from declutr.evaluation.tasks.retrieval import average_precision, ndcg, reciprocal_rank
from declutr.evaluation.tasks.scored_parts import ScoredPart


@dataclass(frozen=True)
class Candidates:
    """A query, and the texts that are to be ranked for it."""

    query: list[str]
    """One text or several, of which the nearest to a candidate counts."""
    texts: list[str]
    grades: list[float]
    """How relevant each candidate is: above 0, or 0 for one that is not."""


@dataclass(frozen=True)
class CandidateLists(ScoredPart):
    """Queries with their candidates, of which at least one is relevant."""

    lists: list[Candidates]
    remarks: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        return [text for one in self.lists for text in (*one.query, *one.texts)]

    def scores(self, vectors: Vectors) -> list[Score]:
        ranked = [_ranked(one, vectors) for one in self.lists]
        depth = max(map(len, ranked))
        found = np.zeros((len(ranked), depth))
        for row, grades in zip(found, ranked, strict=True):
            row[: len(grades)] = grades
        relevant = [{n: g for n, g in enumerate(grades) if g > 0} for grades in ranked]
        values = {
            "MAP": average_precision(found, relevant, depth),
            "MRR@10": reciprocal_rank(found, 10),
            "nDCG@10": ndcg(found, relevant, 10),
        }
        return [Score(name, "mean", {"value": value}) for name, value in values.items()]

    def notes(self) -> list[str]:
        candidates = sum(len(one.texts) for one in self.lists)
        relevant = sum(grade > 0 for one in self.lists for grade in one.grades)
        return [
            f"{len(self.lists):,} queries, {candidates:,} candidates, {relevant:,} of which are "
            "relevant.",
            *self.remarks,
        ]


def _ranked(one: Candidates, vectors: Vectors) -> np.ndarray:
    """Return the grades of the candidates in the order of their similarity, the highest first."""
    similarities = highest_cosines(vectors(one.texts), vectors(one.query))
    grades = np.maximum(one.grades, 0.0)
    return grades[np.lexsort((grades, -similarities))]


def contrasted(lists: Iterable[Candidates], where: str, how: str) -> CandidateLists:
    """Return queries with their candidates without those of which all are relevant, or none.

    So do MTEB and sentence-transformers.

    # Parameters

    lists : the queries.
    where, how : the file that they are from, and how it marks the relevant ones, for errors.

    # Raises

    `BrokenData` : no query is left.
    """
    every = list(lists)
    kept = [one for one in every if min(one.grades, default=0) <= 0 < max(one.grades, default=0)]
    if not kept:
        raise BrokenData(
            f"{where}: none of {len(every)} queries has both relevant candidates and others, "
            f"expected {how}."
        )
    left = len(every) - len(kept)
    why = "queries left out, of whose candidates all or none are relevant"
    return CandidateLists(kept, [f"{left:,} {why}."] if left else [])
