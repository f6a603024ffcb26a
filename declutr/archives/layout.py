"""Names of files in a trained model."""

from __future__ import annotations

from pathlib import Path

CONFIG = "config.json"
MODULES = "modules.json"
"""Of sentence-transformers: the modules of a model."""
VOCABULARY = "vocabulary"
WHITENING = "whitening.safetensors"

TRANSFORMERS = "transformer"
"""The folder of transformers, and of trained archives, that an archive carries."""
NAMES = "names.json"
"""In that folder: which transformer lies where."""
ARCHIVES = "archives.json"
"""In that folder: which trained archive lies where."""

WEIGHTS = ("weights.th", "best.th")
"""Of these AllenNLP loads the first that is there."""


def weights_of(folder: Path) -> Path | None:
    """Return the file of weights that AllenNLP would load, or `None`."""
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
