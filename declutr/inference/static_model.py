"""Static encoders as text models: the mean of token vectors, without a transformer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from declutr.archives.static_folder import StaticFolderError, read_static
from declutr.archives.word_ids import WordIds
from declutr.inference import EncoderError
from declutr.inference.fingerprints import model_fingerprint
from declutr.inference.text_model import Prompts, TextModel
from declutr.system import raised_as

if TYPE_CHECKING:  # importing it takes longer than all else that this encoder does at start
    import torch


class StaticModel(TextModel):
    """A table of token vectors, of which the mean over the tokens of a text is its embedding.

    It computes on the CPU, where looking vectors up takes less time than a copy of the texts to a
    GPU.

    # Parameters

    place : a folder of `declutr static-vectors`, `declutr export`, sentence-transformers
        (`StaticEmbedding`) or model2vec.

    # Raises

    `EncoderError` : the folder holds no static encoder.
    """

    only_float32 = True
    device_type = "cpu"

    def __init__(self, place: str) -> None:
        with raised_as(EncoderError, StaticFolderError):
            self.table = table = read_static(Path(place))
        self.prompts = Prompts(table.prompts, table.default_prompt_name)
        self.vectors = table.vectors
        self.dimension, self.normalizes = table.dimension, table.normalizes
        self._ids = WordIds(table.tokenizer)
        self._content = model_fingerprint(place)

    @property
    def num_parameters(self) -> int:
        return self.vectors.size

    def tokenize(self, texts: list[str], prompt: str = "") -> list[Any]:
        texts = [prompt + text for text in texts]
        return [np.asarray(ids, dtype=np.int32) for ids in self._ids.of(texts)]

    def embed(self, pieces: Sequence[Any]) -> torch.Tensor:
        import torch

        return torch.from_numpy(self._means([len(piece) for piece in pieces], chain(*pieces)))

    def embed_texts(self, texts: list[str], prompt: str) -> np.ndarray:
        """Return the embeddings `(n, d)` of whole texts, in their order."""
        if prompt:
            texts = [prompt + text for text in texts]
        ids = self._ids.of(texts)
        return self._means(list(map(len, ids)), chain.from_iterable(ids))

    def describe(self) -> dict[str, Any]:
        return {"kind": "static encoder", "pooling": "mean", "content": self._content}

    def choose_products(self, dtype: str) -> None:
        """Do nothing: there are no matrix products to choose."""

    def prepare(self, dtype: str) -> None:
        """Do nothing: there are no linear layers."""

    def _means(self, lengths: list[int], ids: Any) -> np.ndarray:
        """Return the means `(n, d)` of the vectors of n texts; those of no tokens are 0."""
        starts = np.concatenate([[0], np.cumsum(lengths)])
        columns = np.fromiter(ids, dtype=np.int32, count=int(starts[-1]))
        factors = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        shape = (len(lengths), len(self.vectors))
        return csr_matrix((factors, columns, starts), shape=shape) @ self.vectors
