"""Sources of candidates for hard negatives: BM25 over texts, and an index of embeddings."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from declutr.corpus import normalize_whitespace
from declutr.search.building import normalized
from declutr.search.index_files import SearchError
from declutr.search.index_prompts import encoder_of_lines
from declutr.search.searcher import ExactNumpy

if TYPE_CHECKING:
    from declutr.search.index import SearchIndex

_WORD = re.compile(r"\w+")


class Found(NamedTuple):
    """The candidates of one pair.

    # Parameters

    texts : different texts, the nearest to the anchor first.
    scores : their scores with the anchor `(k,)`.
    positive : the score of the positive with the anchor, if it was wanted.
    complete : whether no other text could be found.
    """

    texts: list[str]
    scores: np.ndarray
    positive: float
    complete: bool


class Candidates(Protocol):
    """The interface of sources of candidates.

    # Attributes

    forks : whether forked processes may search at the same time.
    identity : what candidates depend on, beside anchors and positives, as a short text.
    """

    forks: bool
    identity: str

    def find(
        self, anchors: Sequence[str], positives: Sequence[str] | None, count: int
    ) -> list[Found]:
        """Return the candidates nearest to each anchor.

        # Parameters

        anchors : n texts.
        positives : a positive of each, if its score is wanted.
        count : the most candidates of an anchor.
        """
        ...


class BM25Candidates:
    """Candidates by the words that they share with the anchor (BM25, as Lucene computes it).

    Words are runs of letters and digits in lower case. Texts without a word of the anchor are no
    candidates. Scores are those of the package bm25s, with its default k1 = 1.5 and b = 0.75.

    # Parameters

    texts : the candidates. White space is normalised; blank and repeated texts are left out.
    positives : further texts that can be scored, but are no candidates.

    # Raises

    `ImportError` : if bm25s is not installed.
    `SearchError` : if no text has a word.
    """

    forks = True

    def __init__(self, texts: Iterable[str], positives: Iterable[str] = ()) -> None:
        bm25s = _bm25s()
        candidates = dict.fromkeys(map(normalize_whitespace, texts))
        candidates.pop("", None)
        self._count = len(candidates)
        rows = {text: row for row, text in enumerate(candidates)}
        for text in positives:
            rows.setdefault(text, len(rows))
        self._rows, self._texts = rows, list(candidates)
        words = list(map(_words, rows))
        if not any(words[: self._count]):
            raise SearchError(
                f"None of {self._count:,} candidates has a word that BM25 could look for. Expected "
                "texts of letters or digits; an index of embeddings takes any."
            )
        self._index = bm25s.BM25()
        self._index.index(words, show_progress=False)
        digest = hashlib.sha256("\0".join(rows).encode("utf-8", "surrogatepass")).hexdigest()
        self.identity = f"BM25 of {self._count} of the texts {digest}"

    def find(
        self, anchors: Sequence[str], positives: Sequence[str] | None, count: int
    ) -> list[Found]:
        """Return the `count` candidates nearest to each anchor; see `Candidates.find`."""
        pairs = zip(anchors, anchors if positives is None else positives, strict=True)
        return [self._find(anchor, positive, count) for anchor, positive in pairs]

    def _find(self, anchor: str, positive: str, count: int) -> Found:
        words = self._index.get_tokens_ids(_words(anchor))
        if not words:
            return Found([], np.empty(0, np.float32), 0.0, True)
        scores = self._index.get_scores_from_ids(words)  # (N,)
        own = float(scores[self._rows[positive]]) if positive in self._rows else 0.0
        scores = scores[: self._count]
        near = np.flatnonzero(scores > 0)
        complete = len(near) <= count
        if not complete:
            # All of those that tie with the last one, so that their order is that of their rows.
            least = np.partition(scores[near], -count)[-count]
            near = near[scores[near] >= least]
        near = near[np.lexsort((near, -scores[near]))][:count]
        return Found([self._texts[row] for row in near.tolist()], scores[near], own, complete)


class IndexCandidates:
    """Candidates by the cosine of embeddings: the lines of an index of `declutr index`.

    Anchors are embedded as queries, and positives as lines.
    """

    forks = False  # Its model and its searcher have threads of their own.

    def __init__(self, index: SearchIndex) -> None:
        from declutr.inference.text_model import SidePrompts  # It brings torch; BM25 needs none.

        about = index.description
        self._index = index
        sides = None if about.prompts is None else SidePrompts(**about.prompts)
        self._encode_lines = encoder_of_lines(index.encoder, sides)[0]
        self.identity = f"index {about.checksums or index.folder.resolve()} of {about.encoder}"

    def find(
        self, anchors: Sequence[str], positives: Sequence[str] | None, count: int
    ) -> list[Found]:
        """Return the `count` lines nearest to each anchor; see `Candidates.find`."""
        index = self._index
        queries = _unit(index.encode_queries(list(anchors)))  # (n, d)
        own = np.zeros(len(queries))
        if positives is not None:
            own = (queries * _unit(self._encode_lines(list(positives)))).sum(axis=1)
        most = min(count, len(index.rows))
        numbers, scores = index.searcher.nearest(queries, most)  # (n, most)
        # A graph may consist of several components, of which a search sees only one.
        lacking = (numbers < 0).any(axis=1)
        if lacking.any():
            exact = ExactNumpy(index.rows).nearest(queries[lacking], most)
            numbers[lacking], scores[lacking] = exact
        nearest = zip(numbers, scores, own.tolist(), strict=True)
        found = []
        for rows, cosines, positive in nearest:
            texts: dict[str, float] = {}
            lines = index.lines.texts(rows[rows >= 0].tolist())
            for line, score in zip(lines, cosines.tolist(), strict=False):
                texts.setdefault(normalize_whitespace(line), score)
            complete = most < count or bool((rows < 0).any())
            found.append(Found(list(texts), np.array([*texts.values()]), positive, complete))
        return found


def _unit(embeddings: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(normalized(np.asarray(embeddings)), dtype=np.float32)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise ImportError(
            "BM25 needs the package bm25s, which is not installed: pip install "
            "'declutr[negatives]', or pip install bm25s. An index of `declutr index` needs nothing."
        ) from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # It sets itself to DEBUG.
    return bm25s
