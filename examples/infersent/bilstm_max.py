"""InferSent's sentence encoder, read from the files that its authors published.

A bidirectional LSTM over word vectors, of whose outputs the maximum is taken for each dimension
(Conneau et al., 2017, section 3.2.2, "BiLSTM with max pooling").
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from declutr.inference.fingerprints import files_fingerprint
from declutr.inference.sources.word_vector_files import open_word_vectors

ENDS = {1: ("<s>", "</s>"), 2: ("<p>", "</p>")}
"""The marks before and after a text, by version of the encoder."""
_PREFIX = "enc_lstm."


class BiLSTMMax:
    """An encoder from n texts to embeddings `(n, 2 * hidden)`, for `declutr evaluate-embeddings`.

    Files are read at the first call. Words without a vector are left out, the marks too.

    # Parameters

    weights : the state dict of the public code's class `InferSent`, as `infersent1.pkl`.
    vectors : the word vectors that it was trained with, in the text format of GloVe or fastText.
    version : 1, with GloVe, or 2, with fastText.
    words : splits a text into words. By default at white space, as SentEval does with its tokenised
        data; for other texts the authors take `nltk.word_tokenize`.
    zero_in_maximum : whether 0 takes part in the maximum, as it does in version 1 of the public
        code for each text that is shorter than the longest of its batch, through padding.
    batch_size : the number of texts of a batch.

    # Raises

    `ValueError` : there is no such version; when the files are read, one is missing, or they do not
        belong together.
    """

    def __init__(
        self,
        weights: str | os.PathLike,
        vectors: str | os.PathLike,
        version: int = 1,
        words: Callable[[str], Sequence[str]] = str.split,
        zero_in_maximum: bool = False,
        batch_size: int = 64,
    ) -> None:
        if version not in ENDS:
            raise ValueError(f"Expected version 1 or 2 of InferSent, got {version}.")
        self._weights, self._vectors = Path(weights), Path(vectors)
        self._ends, self._words, self._batch_size = ENDS[version], words, batch_size
        self._zero = zero_in_maximum

    @property
    def fingerprint(self) -> str:
        """A text that changes with the files and settings, by which embeddings are stored."""
        return f"{self._content} {self._ends} {self._words.__qualname__} {self._zero}"

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> np.ndarray:
        """Return the embeddings `(n, 2 * hidden)`, float32; zeros for texts of unknown words."""
        begin, end = self._ends
        row = self._table.row
        known = [
            [row[word] for word in (begin, *self._words(text), end) if word in row]
            for text in texts
        ]
        if without := sum(not rows for rows in known):
            warnings.warn(f"{without} texts have no known word; they are zeros.", stacklevel=2)
        embeddings = np.zeros((len(texts), 2 * self._lstm.hidden_size), np.float32)
        order = sorted((n for n, rows in enumerate(known) if rows), key=lambda n: -len(known[n]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            packed = pack_sequence([self._inputs(known[n]) for n in batch])
            outputs, _ = pad_packed_sequence(self._lstm(packed)[0], padding_value=-torch.inf)
            found = outputs.amax(dim=0)  # (batch, 2 * hidden)
            embeddings[batch] = (found.clamp(min=0) if self._zero else found).numpy()
        return embeddings

    def _inputs(self, rows: list[int]) -> torch.Tensor:
        return torch.from_numpy(np.array(self._table.vectors_of(np.array(rows))))

    @cached_property
    def _content(self) -> str:
        for file in (self._weights, self._vectors):
            if not file.is_file():
                raise ValueError(f"Found no file '{file}', expected weights and word vectors.")
        return files_fingerprint([self._weights, self._vectors])

    @cached_property
    def _table(self):  # type: ignore[no-untyped-def]
        digest = files_fingerprint([self._vectors]) if self._content else ""
        return open_word_vectors(self._vectors, digest)

    @cached_property
    def _lstm(self) -> torch.nn.LSTM:
        state = torch.load(self._weights, map_location="cpu", weights_only=True)
        own = {name.removeprefix(_PREFIX): w for name, w in state.items() if _PREFIX in name}
        if "weight_ih_l0" not in own or "weight_ih_l0_reverse" not in own:
            raise ValueError(
                f"'{self._weights}' has {', '.join(sorted(state)) or 'nothing'}, expected "
                f"{_PREFIX}weight_ih_l0 and the other weights of a bidirectional LSTM."
            )
        rows, width = own["weight_ih_l0"].shape
        if width != self._table.vectors.shape[1]:
            raise ValueError(
                f"'{self._vectors}' has vectors of {self._table.vectors.shape[1]} numbers, "
                f"'{self._weights}' expects {width}."
            )
        lstm = torch.nn.LSTM(width, rows // 4, bidirectional=True)
        lstm.load_state_dict(own)
        return lstm.eval()
