"""Evaluation of sentence embeddings from any callable that maps texts to an array.

The callable takes a `list[str]` of n texts and returns an `(n, d)` array. No module here imports a
model: `declutr.inference.sources` opens encoders.
"""
