"""Retrieval tasks: documents that answer a query, and spans of the same document."""

from collections.abc import Callable
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from xxhash import xxh3_128_digest

from declutr.corpus.documents import SourceError, read_documents
from declutr.corpus.source_files import source_files
from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, MissingData, Protocol, Task, TaskError, Vectors
from declutr.evaluation.tasks.geometry import unit
from declutr.evaluation.tasks.relevance_sets import BEIR_FILES, RelevanceSet, read_beir, read_trec
from declutr.evaluation.tasks.span_retrieval import SpanPairs, adjacent_span_pairs, span_ranks
from declutr.system import raised_as

DEPTH = 100
"""The number of documents that are retrieved for each query."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return Cranfield, and a task for every folder in BEIR's layout in `retrieval/`.

    A set of BEIR may be a folder of such folders, as the twelve forums of CQADupStack: each is a
    task, called `cqadupstack-android` and so on.
    """
    folder = data / "retrieval"
    found = [file.parent for file in sorted(folder.glob(f"*/{BEIR_FILES[0]}"))]
    inside = [file.parent for file in sorted(folder.glob(f"*/*/{BEIR_FILES[0]}"))]
    found += [place for place in inside if place.parent not in found]
    named = {place: "-".join(place.relative_to(folder).parts) for place in sorted(found)}
    for place, name in named.items():
        if place.parent != folder and folder / name in named:
            raise TaskError(f"{place} and {folder / name} are both called {name}. Rename one.")
    return [
        Retrieval("Cranfield", data / "extra" / "cranfield", read_trec),
        *(Retrieval(name, place, read_beir) for place, name in named.items()),
    ]


def nearest(
    queries: np.ndarray,
    documents: np.ndarray,
    depth: int = DEPTH,
    itself: dict[int, int] | None = None,
    numbers: int = 2**25,
) -> np.ndarray:
    """Find the most similar documents of each query by exact search with cosines.

    Equally similar documents come in their own order. Documents with equal vectors are equally
    similar; without special treatment, the rounding of matrix products, which differs by column,
    would separate them.

    # Parameters

    queries, documents : embeddings `(q, d)` and `(n, d)`.
    depth : the number of documents to find.
    itself : for some queries, the number of a document that is to come last.
    numbers : the maximum number of cosines in memory, by default 128 MiB.

    # Returns

    The numbers of documents, the best first, `(q, min(depth, n))`.
    """
    queries, documents = unit(queries), unit(documents)
    depth = min(depth, len(documents))
    block = max(1, numbers // len(documents))
    same = _first_equal(documents)
    best = np.empty((len(queries), depth), dtype=np.int64)
    for start in range(0, len(queries), block):
        cosines = queries[start : start + block] @ documents.T  # (b, n)
        if same is not None:
            cosines = cosines[:, same]
        for query, document in (itself or {}).items():
            if start <= query < start + len(cosines):
                cosines[query - start, document] = -np.inf
        best[start : start + block] = _highest(cosines, depth)
    return best


def _first_equal(rows: np.ndarray) -> np.ndarray | None:
    """Return the number of the first row that equals each row, `(n,)`; None if all differ."""
    places: dict[bytes, int] = {}
    # Digests take a fraction of the memory of embeddings. Adding 0.0 turns -0.0 into 0.0.
    digests = (xxh3_128_digest((row + 0.0).tobytes()) for row in rows)
    first = [places.setdefault(digest, place) for place, digest in enumerate(digests)]
    return np.array(first) if len(places) < len(rows) else None


def _highest(values: np.ndarray, depth: int) -> np.ndarray:
    """Return the columns `(b, depth)` of the highest values of each row, the highest first."""
    n = values.shape[1]
    if depth == n:
        return np.argsort(-values, axis=1, kind="stable")
    cut = np.partition(values, n - depth, axis=1)[:, n - depth]  # the lowest value to return
    rows = []
    for row, lowest in zip(values, cut, strict=True):
        places = np.flatnonzero(row >= lowest)
        rows.append(places[np.argsort(-row[places], kind="stable")][:depth])
    return np.stack(rows)


def gains(ranked: np.ndarray, relevant: list[dict[int, float]]) -> np.ndarray:
    """Return the grades of the retrieved documents, `(q, depth)`; 0 for those not relevant.

    # Parameters

    ranked : numbers of the retrieved documents, `(q, depth)`, the best first.
    relevant : for each query, grades by number of the document.
    """
    return np.array(
        [
            [grades.get(place, 0.0) for place in places]
            for places, grades in zip(ranked.tolist(), relevant, strict=True)
        ]
    )


def ndcg(found: np.ndarray, relevant: list[dict[int, float]], depth: int) -> np.ndarray:
    """Return the nDCG of each query, `(q,)`: its discounted gain as a share of the ideal one.

    The gain is the sum of grade / log2(rank + 1), with grades as they are, as in trec_eval and BEIR
    (Järvelin and Kekäläinen, 2002).

    # Parameters

    found : grades of the retrieved documents, see `gains`.
    relevant : for each query, grades by number of the document.
    depth : the number of documents that count.
    """
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    found = found[:, :depth]
    ideal = np.zeros((len(relevant), depth))
    for row, grades in zip(ideal, relevant, strict=True):
        best = sorted(grades.values(), reverse=True)[:depth]
        row[: len(best)] = best
    return found @ discounts[: found.shape[1]] / (ideal @ discounts)


def recall(found: np.ndarray, relevant: list[dict[int, float]], depth: int) -> np.ndarray:
    """Return the share of relevant documents among the first `depth` of each query; see `ndcg`."""
    return (found[:, :depth] > 0).sum(axis=1) / np.array([len(grades) for grades in relevant])


def average_precision(
    found: np.ndarray, relevant: list[dict[int, float]], depth: int
) -> np.ndarray:
    """Return the average precision of each query, `(q,)`; see `ndcg` for the parameters.

    This is the sum of the precision at the rank of every relevant document that was retrieved,
    divided by the number of all relevant documents.
    """
    hits = found[:, :depth] > 0
    precisions = hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
    return (precisions * hits).sum(axis=1) / np.array([len(grades) for grades in relevant])


def reciprocal_rank(found: np.ndarray, depth: int) -> np.ndarray:
    """Return 1 / rank of the first relevant document of each query, `(q,)`; 0 beyond `depth`.

    >>> reciprocal_rank(np.array([[0, 1, 1], [0, 0, 0]]), 10).tolist()
    [0.5, 0.0]

    # Parameters

    found : grades of the retrieved documents, see `gains`.
    depth : the number of documents that count.
    """
    hits = found[:, :depth] > 0
    return np.where(hits.any(axis=1), 1 / (hits.argmax(axis=1) + 1), 0.0)


class Retrieval(Task):
    """A retrieval task: exact search by cosine in a set of documents.

    # Parameters

    name : see `Task`.
    folder : the folder with the files of the data set.
    read : reads them.
    """

    def __init__(self, name: str, folder: Path, read: Callable[[Path], RelevanceSet]) -> None:
        super().__init__(name, group="retrieval", main="nDCG@10")
        self._folder, self._read = folder, read

    @cached_property
    def _set(self) -> RelevanceSet:
        return self._read(self._folder)

    def sentences(self) -> list[str]:
        return [*self._set.documents, *self._set.queries]

    def scores(self, vectors: Vectors) -> list[Score]:
        relevant = self._set.relevant
        queries, documents = vectors(self._set.queries), vectors(self._set.documents)
        ranked = nearest(queries, documents, itself=self._set.itself)
        found = gains(ranked, relevant)
        values = {
            "nDCG@10": ndcg(found, relevant, 10),
            "recall@10": recall(found, relevant, 10),
            "recall@100": recall(found, relevant, 100),
            "MAP@10": average_precision(found, relevant, 10),
            "MRR@10": reciprocal_rank(found, 10),
        }
        return [Score(name, "mean", {"value": value}) for name, value in values.items()]

    def notes(self) -> list[str]:
        return [
            f"{len(self._set.queries):,} queries, {len(self._set.documents):,} documents.",
            *self._set.notes,
        ]


class SpanRetrieval(Task):
    """A retrieval task without labels: find the span that is adjacent to a span of a document.

    # Parameters

    corpus : a file of documents, one a line, in any format that training reads.
    documents : the maximum number of documents, which are the first ones that are long enough.
    min_words, max_words, seed : see `adjacent_span_pairs`.
    """

    def __init__(
        self,
        corpus: Path,
        documents: int = 2000,
        min_words: int = 16,
        max_words: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__("span retrieval", group="retrieval", main="accuracy")
        self._corpus, self._documents, self._seed = corpus, documents, seed
        self._min_words, self._max_words = min_words, max_words

    @cached_property
    def _pairs(self) -> SpanPairs:
        if not self._corpus.exists():
            raise MissingData(f"{self._corpus} is not there.")
        with raised_as(BrokenData, SourceError):
            every = read_documents(source_files(self._corpus))
            long_enough = (text for text in every if len(text.split()) >= 2 * self._max_words)
            documents = list(islice(long_enough, self._documents))
        if len(documents) < 2:
            raise BrokenData(
                f"{self._corpus} has {len(documents)} documents (one a line) of "
                f"{2 * self._max_words} words or more, expected at least two."
            )
        return adjacent_span_pairs(documents, self._min_words, self._max_words, self._seed)

    def sentences(self) -> list[str]:
        return [*self._pairs.queries, *self._pairs.targets]

    def scores(self, vectors: Vectors) -> list[Score]:
        ranks = span_ranks(vectors(self._pairs.queries), vectors(self._pairs.targets))
        return [
            Score("accuracy", "mean", {"value": ranks.found}),
            Score("MRR", "mean", {"value": ranks.reciprocal}),
        ]

    def notes(self) -> list[str]:
        count = len(self._pairs.queries)
        return [
            f"{count:,} documents of {self._corpus.name} with {2 * self._max_words} words or more; "
            f"chance is {100 / count:.2f} %."
        ]
