"""Objectives that compare pairs of texts with other pairs of the same batch, or judge each pair."""
