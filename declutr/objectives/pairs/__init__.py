"""Objectives that compare each text with those of other pairs in its batch."""
