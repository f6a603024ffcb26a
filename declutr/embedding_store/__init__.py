"""Embeddings that are kept on disk, found by what made them and by a key of each row.

    store = EmbeddingStore("out/embeddings")
    rows = store.rows("fingerprint of an encoder")
    keys = text_keys(["A sentence.", "Another one."])
    rows.append(keys, encoder(["A sentence.", "Another one."]))
    vectors, found = rows.get(keys)  # (2, d) and (2,)

Several processes may read and append at the same time, and may be killed at any moment.
"""

from declutr.embedding_store.blocks import StoreError
from declutr.embedding_store.keyed_rows import KeyedRows, text_keys
from declutr.embedding_store.store import EmbeddingStore

__all__ = ["EmbeddingStore", "KeyedRows", "StoreError", "text_keys"]
