"""Averages of word vectors, plain or weighted by SIF, as baselines for sentence embeddings."""

import re
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from declutr.corpus.file_digests import file_digests
from declutr.inference import EncoderError, require_one_of
from declutr.inference.fingerprints import files_fingerprint
from declutr.inference.sources.source import NamedEncoder
from declutr.inference.sources.word_vector_files import open_word_vectors
from declutr.system.cache_folder import default_cache_dir

SIF_A = 1e-3
"""The constant a of SIF weights, as in the experiments of Arora et al. (2017)."""

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")
TOKENS: dict[str, Callable[[str], list[str]]] = {"split": str.split, "words": _WORD_OR_MARK.findall}
"""The functions that split a text into words. `split` splits at white space alone, as SentEval does
with its mostly tokenised data; `words` also separates punctuation marks, for text as people write
it."""


class WordAverages(NamedEncoder):
    """A base class of encoders that average the vectors of words.

    Unknown words are left out. The embedding of a text without known words is zeros.

    # Parameters

    tokens : a key of `TOKENS`.
    combine : `mean` or `sum`.

    # Raises

    `EncoderError` : an argument has none of its known values.
    """

    dimension: int
    not_stored = "averages of words take no longer than reading them would"

    def __init__(self, tokens: str = "split", combine: str = "mean") -> None:
        require_one_of(TOKENS, tokens=tokens)
        require_one_of(("mean", "sum"), combine=combine)
        self._tokens, self._combine = tokens, combine
        self._counts = dict.fromkeys(("words", "unknown_words", "sentences_without_known_words"), 0)

    @abstractmethod
    def vectors_of(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors `(k, d)` of k different words, and which of them are known, `(k,)`."""

    def weights_of(self, words: list[str]) -> np.ndarray:
        """Return the weights `(k,)` of k different words; by default 1."""
        return np.ones(len(words))

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def embed(self, sentences: list[str]) -> np.ndarray:
        texts = [TOKENS[self._tokens](sentence) for sentence in sentences]
        number: dict[str, int] = {}
        numbers = [number.setdefault(word, len(number)) for words in texts for word in words]
        columns = np.array(numbers, np.int64)
        rows = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
        words = list(number)
        if not words:
            self._counts["sentences_without_known_words"] += len(texts)
            return np.zeros((len(texts), self.dimension))
        vectors, known = self.vectors_of(words)
        kept = known[columns]
        rows, known_columns = rows[kept], columns[kept]
        self._counts["words"] += len(columns)
        self._counts["unknown_words"] += len(columns) - len(rows)
        self._counts["sentences_without_known_words"] += len(texts) - len(np.unique(rows))
        weights = self.weights_of(words)[known_columns]
        shape = (len(texts), len(words))
        counts = csr_matrix((weights, (rows, known_columns)), shape=shape)
        sums = counts @ vectors.astype(np.float64)  # (n, d)
        if self._combine == "sum":
            return sums
        return sums / np.bincount(rows, minlength=len(texts)).clip(min=1)[:, None]


class WordVectors(WordAverages):
    """An encoder that averages the vectors of a text's words, from a file of word vectors.

    # Parameters

    place : a file in the format of GloVe or fastText; see
        `declutr.inference.sources.word_vector_files`.
    tokens : a key of `TOKENS`: `split`, as in SentEval, or `words`.
    case : `fallback` looks up a word as it is written and, if it is unknown, in lower case; `exact`
        only as it is written, as SentEval's example does; `lower` only in lower case.
    weights : `plain`, or `sif` for the weight a / (a + p(word)) of Arora et al. (2017), equation 3,
        with a = 1e-3. Their second step, which removes the common component of a set of texts, is
        left out, since embeddings would then depend on the other texts.
    counts : for `sif`, a file whose lines have a word and how often it occurs. A word that is not
        in the file has p = 0. Without the file, p follows Zipf's law: p = 1 / (r H) for the r-th of
        n words, with H = 1 + 1/2 + ... + 1/n, since publishers sort their files by frequency.

    # Raises

    `EncoderError` : a file is missing or broken, or an argument has none of its known values.
    """

    def __init__(
        self,
        place: str,
        *,
        tokens: str = "split",
        case: str = "fallback",
        weights: str = "plain",
        counts: str | None = None,
    ) -> None:
        super().__init__(tokens)
        require_one_of(("fallback", "exact", "lower"), case=case)
        require_one_of(("plain", "sif"), weights=weights)
        if counts and weights != "sif":
            raise EncoderError("counts=FILE is for weights=sif; give both, or neither.")
        files = [Path(file) for file in (place, counts) if file]
        for file in files:
            if not file.is_file():
                raise EncoderError(f"There is no file '{file}'.")
        self._place, self._case, self._weights = place, case, weights
        self._content = files_fingerprint(files)
        digest, _ = file_digests(files[:1], default_cache_dir())[files[0]]
        self._table = open_word_vectors(files[0], digest)
        words, self.dimension = self._table.vectors.shape
        self._probabilities = _probabilities(files[1]) if counts else None
        self._harmonic = float(np.sum(1 / np.arange(1, words + 1))) if weights == "sif" else 1.0

    def settings(self) -> dict[str, Any]:
        weights = self._weights
        if weights == "sif":
            source = "counts of a file" if self._probabilities else "Zipf's law"
            weights = f"sif, by {source}; no common component removed"
        return {
            "kind": "word vectors",
            "place": self._place,
            "pooling": "mean",
            "tokens": self._tokens,
            "case": self._case,
            "weights": weights,
            "words_in_file": len(self._table.row),
            "content": self._content,
        }

    def vectors_of(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows(words)
        known = rows >= 0
        vectors = np.zeros((len(words), self.dimension), dtype=np.float32)
        vectors[known] = self._table.vectors_of(rows[known])
        return vectors, known

    def weights_of(self, words: list[str]) -> np.ndarray:
        if self._weights == "plain":
            return super().weights_of(words)
        if self._probabilities is not None:
            known = self._probabilities
            chances = np.array([known.get(w, known.get(w.lower(), 0.0)) for w in words])
        else:
            rows = self._rows(words)
            chances = np.where(rows >= 0, 1 / ((rows.clip(min=0) + 1) * self._harmonic), 0)
        return SIF_A / (SIF_A + chances)

    def _rows(self, words: list[str]) -> np.ndarray:
        """Return the rows `(k,)` of words in the file; -1 for unknown words."""
        find = self._table.row.get
        otherwise = words if self._case == "exact" else [word.lower() for word in words]
        first = otherwise if self._case == "lower" else words
        found = [find(a, find(b, -1)) for a, b in zip(first, otherwise, strict=True)]
        return np.array(found, dtype=np.int64)


def _probabilities(file: Path) -> dict[str, float]:
    """Return the probability of each word, from a file of counts."""
    counts: dict[str, int] = {}
    with file.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, count = line.rstrip().rpartition(" ")
            if not word or not count.isdecimal():
                raise EncoderError(
                    f"'{file}', line {number}: expected a word, a space and a whole number, got "
                    f"{line.strip()[:60]!r}."
                )
            counts[word] = counts.get(word, 0) + int(count)
    total = sum(counts.values())
    if not total:
        raise EncoderError(f"'{file}' counts no words.")
    return {word: count / total for word, count in counts.items()}
