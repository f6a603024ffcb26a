"""Names of files in a trained model."""

from __future__ import annotations

from pathlib import Path

ARCHIVE = "model.tar.gz"
CONFIG = "config.json"
RUN = "run.json"
"""What was run (`declutr.training.run_record`)."""
METRICS = "metrics.json"
BEST_WEIGHTS = "best.th"

MODULES = "modules.json"
"""Of sentence-transformers: the modules of a model."""
SETTINGS = "config_sentence_transformers.json"
"""Of sentence-transformers: prompts, and what embeddings are compared by."""
LENGTHS = "sentence_bert_config.json"
"""Of sentence-transformers, beside the transformer: how long texts may be, and their case."""

VOCABULARY = "vocabulary"
WHITENING = "whitening.safetensors"

TRANSFORMERS = "transformer"
"""The folder of transformers, and of trained archives, that an archive carries."""
NAMES = "names.json"
"""In that folder: which transformer lies where."""
ARCHIVES = "archives.json"
"""In that folder: which trained archive lies where."""

WEIGHTS = ("weights.th", BEST_WEIGHTS)
"""Of these AllenNLP loads the first that is there."""


def weights_of(folder: Path) -> Path | None:
    """Return the file of weights that AllenNLP would load, or `None`."""
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
