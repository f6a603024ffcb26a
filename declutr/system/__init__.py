"""Processes, memory, files and kernels of the machine: nothing here knows a text or a model."""
