"""Utilities for processes, memory, files and kernels, independent of texts and models."""
