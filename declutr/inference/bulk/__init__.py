"""Embedding of any number of rows into a folder, in shards, with resumption and reading.

    embed_rows(encode, rows, "out", dimension=384, describe={...})
    embeddings = StoredEmbeddings("out")
    embeddings[[3, 1_000_000]]  # (2, 384)

`encode` is any callable from a list of n texts to embeddings `(n, d)`.
"""

from declutr.inference.bulk.embedding_run import embed_rows
from declutr.inference.bulk.manifest import EmbeddingFolderError
from declutr.inference.bulk.shard_files import DTYPES, FORMATS
from declutr.inference.bulk.shard_run import Summary
from declutr.inference.bulk.stored_embeddings import StoredEmbeddings

__all__ = ["DTYPES", "FORMATS", "EmbeddingFolderError", "StoredEmbeddings", "Summary", "embed_rows"]
