"""Whole runs of recipes: training from Python, and checks before a run begins."""
