"""The sentence embeddings of a run; each distinct sentence is embedded once for all tasks."""

import logging
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tqdm.auto import tqdm

from declutr.evaluation.task import BadEmbeddings

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], np.ndarray]
"""A function from n texts to their embeddings `(n, d)`."""


class SentenceVectors:
    """A table of sentence embeddings, which tasks look up by sentence.

    # Parameters

    encode : a function from n texts to their embeddings `(n, d)`.
    block : the number of sentences in each call of `encode`, which are stored together, so that no
        more are lost if a run is killed.
    progress : show a progress bar.
    """

    def __init__(self, encode: Encode, block: int = 1024, progress: bool = False) -> None:
        self._encode = encode
        self._block = block
        self._progress = progress
        self._row: dict[str, int] = {}
        self._bad: dict[str, str] = {}  # the reason why a sentence has no embedding
        self._vectors = np.empty((0, 0), dtype=np.float32)
        self.embedded = 0
        """The number of sentences that went through the encoder."""

    @property
    def dimension(self) -> int:
        """The width d of the embeddings; 0 before the first."""
        return self._vectors.shape[1]

    def add(self, sentences: Iterable[str]) -> None:
        """Embed all sentences that are new, the longest first.

        Long sentences come first so that a lack of memory shows at once. A block whose embeddings
        do not have the shape `(n, d)`, with the same d as before, is left out with a warning; a
        later request for one of its sentences raises.

        # Raises

        `BadEmbeddings` : the first output of the encoder does not have the shape `(n, d)`.
        """
        new = [text for text in dict.fromkeys(sentences) if text not in self._row]
        new.sort(key=len, reverse=True)
        have = len(self._row)
        off = not self._progress
        with tqdm(total=len(new), desc="embedding", unit="sentence", disable=off) as bar:
            for start in range(0, len(new), self._block):
                texts = new[start : start + self._block]
                try:
                    vectors = self._checked(self._encode(texts), len(texts))
                except BadEmbeddings as error:
                    if not self.dimension:
                        raise
                    logger.warning("%d sentences are left out. %s", len(texts), error)
                    self._bad.update(dict.fromkeys(texts, str(error)))
                else:
                    self._keep(texts, vectors, have + len(new))
                bar.update(len(texts))

    def _keep(self, texts: list[str], vectors: np.ndarray, room: int) -> None:
        """Append embeddings to the table, which is allocated for `room` rows in total."""
        if len(self._vectors) < room:
            more = np.empty((room - len(self._vectors), vectors.shape[1]), dtype=np.float32)
            self._vectors = np.concatenate([self._vectors, more]) if self.dimension else more
        row = len(self._row)
        self._vectors[row : row + len(texts)] = vectors
        self._row.update(zip(texts, range(row, row + len(texts)), strict=True))
        self.embedded += len(texts)

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """Return the embeddings `(n, d)`, float32, of sentences that were added.

        # Raises

        `BadEmbeddings` : one of them is not finite, or its block had the wrong shape.
        """
        if self._bad:
            self._require(sentences)
        rows = np.fromiter((self._row[text] for text in sentences), np.int64, len(sentences))
        vectors = self._vectors[rows]
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            first = int(np.flatnonzero(~finite)[0])
            raise BadEmbeddings(
                f"The encoder gave numbers that are not finite for {int((~finite).sum())} of "
                f"{len(sentences)} sentences; the first is {sentences[first][:80]!r}."
            )
        return vectors

    def _require(self, sentences: Sequence[str]) -> None:
        bad = [text for text in sentences if text not in self._row and text in self._bad]
        if bad:
            raise BadEmbeddings(
                f"There are no embeddings of {len(bad)} of {len(sentences)} sentences; the first "
                f"is {bad[0][:80]!r}. {self._bad[bad[0]]}"
            )

    def _checked(self, vectors: np.ndarray, expected: int) -> np.ndarray:
        vectors = np.asarray(vectors)
        shape = (expected, self.dimension or "d")
        if vectors.ndim != 2 or len(vectors) != expected or not vectors.shape[1]:
            raise BadEmbeddings(
                f"Expected embeddings of shape {shape}, the encoder gave {vectors.shape}."
            )
        if self.dimension and vectors.shape[1] != self.dimension:
            raise BadEmbeddings(
                f"Expected embeddings of shape {shape} as before, the encoder gave {vectors.shape}."
            )
        return vectors
