"""The release, for all modules to read."""

__version__ = "2.4.19"
