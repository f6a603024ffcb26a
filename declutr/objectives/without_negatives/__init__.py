"""Objectives without negatives: what keeps embeddings apart is another term or network."""
