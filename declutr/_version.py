"""The release, for all modules to read."""

__version__ = "1.9.0"
