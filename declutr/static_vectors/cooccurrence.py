"""First vectors from the text itself: co-occurrences of tokens, PPMI, and their singular vectors.

The shifted, smoothed PPMI of Levy, Goldberg & Dagan ("Improving Distributional Similarity with
Lessons Learned from Word Embeddings", TACL 2015), factorised by a truncated singular value
decomposition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

logger = logging.getLogger(__name__)

_BLOCK = 1 << 20  # tokens that are counted at a time
_ROUNDING = 1e-4  # lengths of up to this part of the largest are rounding errors of float32


@dataclass
class Cooccurrences:
    """A counter of pairs of tokens that are at most `window` tokens apart.

    # Parameters

    vocabulary : the number V of token ids.
    window : the largest distance. A pair at distance k counts 1 / k.
    most_pairs : the largest number of different pairs that are kept, which bounds memory (about 24
        bytes each while counting). Whenever there are more, the rarest ones are left out.
    """

    vocabulary: int
    window: int = 5
    most_pairs: int = 50_000_000

    def __post_init__(self) -> None:
        self.counts = sparse.csr_matrix((self.vocabulary, self.vocabulary), dtype=np.float32)
        """The counts `(V, V)` so far, symmetric."""
        self.tokens = np.zeros(self.vocabulary, dtype=np.int64)
        """The number of times that each token occurred, `(V,)`."""
        self.dropped = 0.0
        """The sum of the counts that were left out."""

    def add(self, documents: Iterable[np.ndarray]) -> None:
        """Count the pairs within each document, an array of token ids."""
        for ids, document in _blocks(documents, _BLOCK):
            self._add(ids, document)

    def _add(self, ids: np.ndarray, document: np.ndarray) -> None:
        self.tokens += np.bincount(ids, minlength=self.vocabulary)
        found = sparse.csr_matrix(self.counts.shape, dtype=np.float32)
        for distance in range(1, self.window + 1):
            same = document[distance:] == document[:-distance]
            pairs = ids[:-distance][same], ids[distance:][same]
            weights = np.full(len(pairs[0]), 1 / distance, dtype=np.float32)
            found += sparse.coo_matrix((weights, pairs), shape=self.counts.shape).tocsr()
        self.counts += found + found.T
        if self.counts.nnz > self.most_pairs:
            self._drop_rarest()

    def _drop_rarest(self) -> None:
        data = self.counts.data
        # A quarter of the room is made at a time: each time costs a pass over all pairs.
        keep = int(0.75 * self.most_pairs)
        threshold = np.partition(data, len(data) - keep)[len(data) - keep]
        rare = data < threshold
        # Of those at the threshold, as many as there is no room for; the last rows lose first.
        ties = np.flatnonzero(data == threshold)
        rare[ties[len(ties) - max(0, len(data) - int(rare.sum()) - keep) :]] = True
        self.dropped += float(data[rare].sum())
        data[rare] = 0
        self.counts.eliminate_zeros()
        logger.info("Pairs that count at most %.2f are left out, to bound memory.", threshold)


def ppmi(
    counts: sparse.csr_matrix, smoothing: float = 0.75, shift: float = 1.0
) -> sparse.csr_matrix:
    """Return the positive pointwise mutual information `(V, V)` of counts `(V, V)`.

    `max(0, log(p(w, c) / (p(w) p_s(c))) - log(shift))`, with p_s proportional to the counts of a
    context to the power of `smoothing` (Levy et al., 2015, section 3).
    """
    rows = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    columns = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel() ** smoothing
    found = counts.tocoo()
    expected = rows[found.row] * (columns[found.col] / columns.sum())
    values = np.log(found.data / expected) - np.log(shift)
    kept = values > 0
    places = found.row[kept], found.col[kept]
    return sparse.csr_matrix((values[kept].astype(np.float32), places), shape=counts.shape)


def singular_vectors(
    matrix: sparse.csr_matrix, dimension: int, *, power: float = 0.5, seed: int = 0
) -> np.ndarray:
    """Return the vectors U S^power `(V, d)`, float32, of a truncated singular value decomposition.

    Rows of nothing but rounding errors are 0: those without an entry in the matrix, and those that
    have no part in the first d singular vectors. Scaled to length 1, they would look like others.

    # Parameters

    matrix : `(V, V)`.
    dimension : the number d of singular vectors.
    power : the exponent of the singular values; 0.5 and 0 do better than 1 (Levy et al., 2015).
    seed : the seed of the random projection that the decomposition begins with.

    # Raises

    `ValueError` : the matrix is smaller than d.
    """
    from sklearn.utils.extmath import randomized_svd

    if dimension > min(matrix.shape):
        raise ValueError(
            f"The texts have {min(matrix.shape)} different tokens, too few for {dimension} "
            "dimensions. Give more text, or a smaller dimension."
        )
    left, values, _ = randomized_svd(
        matrix, n_components=dimension, n_iter=4, random_state=seed, flip_sign=True
    )
    vectors = (left * values**power).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1)
    vectors[(matrix.getnnz(axis=1) == 0) | (lengths <= _ROUNDING * lengths.max())] = 0
    return vectors


def _blocks(documents: Iterable[np.ndarray], size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ids of about `size` tokens at a time, and the number of the document of each."""
    held: list[np.ndarray] = []
    count = 0
    for document in documents:
        held.append(document)
        count += len(document)
        if count >= size:
            yield _joined(held)
            held, count = [], 0
    if count:
        yield _joined(held)


def _joined(documents: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    lengths = [len(document) for document in documents]
    return np.concatenate(documents), np.repeat(np.arange(len(documents)), lengths)
