"""Bags of words from a vector file, the baselines of every paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from declutr.corpus.file_digests import file_digests
from declutr.inference.fingerprints import files_fingerprint
from declutr.inference.sources.source import EncoderError
from declutr.inference.sources.word_averages import WordAverages
from declutr.inference.sources.word_vector_files import open_word_vectors
from declutr.system.files import default_cache_dir

SIF_A = 1e-3
"""The constant a of SIF weights; 1e-3 in the paper's experiments."""


class WordVectors(WordAverages):
    """Mean of the vectors of a text's words; words that are not in the file are left out.

    # Parameters

    place : a file of GloVe's or fastText's format; see
        `declutr.inference.sources.word_vector_files`.
    tokens : a key of `TOKENS`: `split`, SentEval's way, or `words`.
    case : `fallback` looks up a word as it stands and, if it is not there, in lower case; `exact`
        as it stands only, as SentEval's example does; `lower` in lower case only.
    weights : `sif` counts a word a / (a + p(word)) (Arora et al., 2017, equation 3, a = 1e-3; the
        common component of a set of texts, their second step, is not removed: an embedding would
        then depend on the other texts).
    counts : for `sif`, a file with a word and how often it occurs on each line. A word that is not
        in it has p = 0. Without the file, words are taken to occur as Zipf's law says,
        p = 1 / (r H) for the r-th of n words and H = 1 + 1/2 + ... + 1/n: publishers sort their
        files by frequency.
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
        for name, value, known in (
            ("case", case, ("fallback", "exact", "lower")),
            ("weights", weights, ("plain", "sif")),
        ):
            if value not in known:
                raise EncoderError(
                    f"Expected {name} to be one of {', '.join(known)}, got {value!r}."
                )
        if counts and weights != "sif":
            raise EncoderError("counts=FILE is for weights=sif; give both, or neither.")
        files = [Path(place), *([Path(counts)] if counts else [])]
        for file in files:
            if not file.is_file():
                raise EncoderError(f"There is no file '{file}'.")
        self._place, self._case, self._weights = place, case, weights
        self._content = files_fingerprint(files)
        cache = default_cache_dir()
        digest, _ = file_digests(files[:1], cache)[files[0]]
        self._table = open_word_vectors(files[0], digest)
        self._row, self._vectors = self._table.row, self._table.vectors
        self._probabilities = _probabilities(Path(counts)) if counts else None
        ranks = len(self._vectors)
        self._harmonic = float(np.sum(1 / np.arange(1, ranks + 1))) if weights == "sif" else 1.0

    @property
    def dimension(self) -> int:
        return self._vectors.shape[1]

    def describe(self) -> dict[str, Any]:
        if self._weights == "sif":
            source = "counts of a file" if self._probabilities else "Zipf's law"
            weights = f"sif, by {source}; no common component removed"
        else:
            weights = "plain"
        return {
            "kind": "word vectors",
            "place": self._place,
            "pooling": "mean",
            "tokens": self._tokens,
            "case": self._case,
            "weights": weights,
            "words_in_file": len(self._row),
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
            return np.ones(len(words))
        if self._probabilities is not None:
            known = self._probabilities
            chances = np.array([known.get(w, known.get(w.lower(), 0.0)) for w in words])
        else:
            rows = self._rows(words)
            chances = np.where(rows >= 0, 1 / ((rows.clip(min=0) + 1) * self._harmonic), 0)
        return SIF_A / (SIF_A + chances)

    def _rows(self, words: list[str]) -> np.ndarray:
        """Where words stand in the file, `(k,)`; -1 for those that do not."""
        find = self._row.get
        if self._case == "exact":
            rows = [find(word, -1) for word in words]
        elif self._case == "lower":
            rows = [find(word.lower(), -1) for word in words]
        else:
            rows = [find(word, find(word.lower(), -1)) for word in words]
        return np.array(rows, dtype=np.int64)


def _probabilities(file: Path) -> dict[str, float]:
    """How likely words are, from a file of counts."""
    counts: dict[str, int] = {}
    with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
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
