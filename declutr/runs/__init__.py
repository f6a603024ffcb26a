"""Whole training runs: trained from Python, and checked before they begin."""
