"""Objectives that keep embeddings apart by another term or network instead of by negatives."""
