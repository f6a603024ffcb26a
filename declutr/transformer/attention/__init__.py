"""Attention over texts that stand end to end."""
