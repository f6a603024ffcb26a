"""Objectives with negatives from memories of earlier steps."""
