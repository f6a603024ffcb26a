"""Measures what this package costs, against the recipe of the original code.

Run by hand from the root of the repository: `python -m benchmarks --help`. Nothing here is part of
the installed package, and no test asserts a speed.
"""
