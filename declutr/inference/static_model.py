"""Static encoders as text models: the mean of token vectors, without a transformer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from declutr.archives.model_files import ModelFiles, NotFollowed, read_truncation
from declutr.archives.static_folder import StaticFolderError, StaticTable, read_static
from declutr.archives.word_ids import WordIds
from declutr.inference import EncoderError
from declutr.inference.fingerprints import model_fingerprint
from declutr.inference.text_model import Prompts, TextModel
from declutr.system import raised_as

if TYPE_CHECKING:  # importing it takes longer than all else that this encoder does at start
    import torch

logger = logging.getLogger(__name__)

_FEW = 12  # texts of a call for which numpy takes less time than scipy
_WORTH_IMPORTING = 1 << 18  # tokens for which numpy takes about as long as to import scipy.sparse


class StaticModel(TextModel):
    """A table of token vectors, of which the mean over the tokens of a text is its embedding.

    The table stays in memory as it is stored, in float32, float16 or int8; means are float32. It
    computes on the CPU, where looking vectors up takes less time than a copy of the texts to a
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
            self._table = table = read_static(Path(place), convert=False)
        self.prompts = Prompts(table.prompts, table.default_prompt_name)
        self.dimension, self.normalizes = table.dimension, table.normalizes
        with raised_as(EncoderError, NotFollowed):
            self.keep_leading(read_truncation(ModelFiles(place)))
        self._ids = WordIds(table.loaded)
        if table.limit is not None:
            logger.warning(
                "The tokenizer of '%s' cuts texts at %d tokens, as sentence-transformers and "
                "model2vec do with it; here, whole texts are embedded. max_length=%d (--max-length)"
                " cuts them as well.",
                *(place, table.limit, table.limit),
            )
        self._content = model_fingerprint(place)
        self._tokens = 0  # that have been embedded

    @property
    def num_parameters(self) -> int:
        return self._table.vectors.size

    @property
    def table(self) -> StaticTable:
        """The tokenizer and the vectors, in float32."""
        return self._table.in_float32()

    def tokenize(self, texts: list[str], prompt: str = "") -> list[Any]:
        ids, bounds = self._ids.of([prompt + text for text in texts])
        return [ids[start:end] for start, end in pairwise(bounds.tolist())]

    def embed(self, pieces: Sequence[Any]) -> torch.Tensor:
        import torch

        ids = np.concatenate([np.zeros(0, np.int32), *pieces])
        bounds = np.cumsum([0, *map(len, pieces)])
        return torch.from_numpy(self._means(ids, bounds))

    def embed_texts(self, texts: list[str], prompt: str) -> np.ndarray:
        """Return the embeddings `(n, d)` of whole texts, in their order."""
        if prompt:
            texts = [prompt + text for text in texts]
        return self._means(*self._ids.of(texts))

    def describe(self) -> dict[str, Any]:
        return {"kind": "static encoder", "pooling": "mean", "content": self._content}

    def prepare(self, dtype: str) -> str:
        """Do nothing: there are no linear layers."""
        return dtype

    def _means(self, ids: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return the means `(n, d)` of the vectors of n texts; those of no tokens are 0.

        # Parameters

        ids, bounds : the token ids of all texts `(t,)`, and the bounds `(n + 1,)` of each text.
        """
        self._tokens += len(ids)
        few = len(bounds) <= _FEW or self._tokens < _WORTH_IMPORTING
        sums = (_sums_by_numpy if few else _sums_by_scipy)(self._table.vectors, ids, bounds)
        if self._table.scale is not None:
            sums *= self._table.scale
        lengths = np.maximum(bounds[1:] - bounds[:-1], 1)  # `np.diff` takes longer for one text
        sums /= lengths[:, None].astype(np.float32)
        return sums


# Both add the vectors of a text one after another, so that they give the same to the bit.


def _sums_by_numpy(vectors: np.ndarray, ids: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the sums `(n, d)`, float32, of rows of `vectors` `(V, d)` between bounds."""
    sums = np.zeros((len(bounds) - 1, vectors.shape[1]), np.float32)
    for row, (start, end) in zip(sums, pairwise(bounds.tolist()), strict=True):
        rows = vectors.take(ids[start:end], axis=0).astype(np.float32, copy=False)
        np.add.reduce(rows, axis=0, out=row, initial=0)
    return sums


def _sums_by_scipy(vectors: np.ndarray, ids: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the same as `_sums_by_numpy`, as a sparse product."""
    from scipy.sparse import csr_matrix

    if vectors.dtype != np.float32:  # only the rows that are needed are converted
        used = np.zeros(len(vectors), bool)
        used[ids] = True
        vectors = vectors[used].astype(np.float32)
        ids = (np.cumsum(used, dtype=np.int32) - 1)[ids]
    ones, shape = np.ones(len(ids), np.float32), (len(bounds) - 1, len(vectors))
    return csr_matrix((ones, ids, bounds.astype(np.int32)), shape=shape) @ vectors
