"""A plugin of pytest, `-p tests.pretend_gpu.plugin`: a run with the pretend GPU, from the start."""

from .build import load_hooks

load_hooks()  # before any conftest imports torch
