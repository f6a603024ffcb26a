"""A few texts, and the configuration of a model that is trained on them."""

from pathlib import Path
from typing import Any

from tests.task_models import models

LINES = [
    "a small cat sat on the mat",
    "the dog ran after a ball",
    "birds sing",
    "we had rain all day long",
    "she reads the news",
    "nobody knows where it went",
]
TOKENS = sum(len(line.split()) + 1 for line in LINES)  # that are predicted, ends included


def write_lines(folder: Path) -> Path:
    file = folder / "lines.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


def model_config(**changes: Any) -> dict[str, Any]:
    return {
        "type": "text_vae",
        "text_field_embedder": {
            "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 16}}
        },
        "seq2vec_encoder": {"type": "lstm", "input_size": 16, "hidden_size": 24},
        "latent_size": 4,
        "decoder_size": 32,
        **changes,
    }


def run_config(file: Path, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a run that can be resumed at every second batch."""
    checkpointer = {"type": "atomic", "save_every_num_batches": 2}
    return models.run_config(
        "text_lines",
        model_config(**changes),
        file,
        batch_size=2,
        epochs=2,
        checkpointer={**checkpointer, "keep_most_recent_by_count": None},
        callbacks=[{"type": "exact_resume"}],
    )
