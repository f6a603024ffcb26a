"""What is rehearsed: recipes, and kinds of training step."""

from __future__ import annotations

from typing import Any

_EMBEDDER = "model.text_field_embedder.token_embedders.tokens"
_FLOAT32 = {"model.precision": "float32"}

# Kinds of step whose waits and launches are held as numbers: a recipe, and its keys that change.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("declutr", {}),
    "trainer of AllenNLP": ("declutr", {"trainer.type": "gradient_descent"}),
    "float32": ("declutr", _FLOAT32),
    "chunked": ("declutr", {"model.chunk_size": 2}),
    "gradient checkpointing": ("declutr", {f"{_EMBEDDER}.gradient_checkpointing": True}),
    "two encoders": ("declutr", {"model.two_encoders": True}),
    "momentum": ("moco", {}),
    "cross-batch memory": ("cross_batch_memory", {}),
    "SCD": ("scd", {}),
    "RECLAIM": ("reclaim", {}),
    "RECLAIM, large bank": ("reclaim_large_bank", {}),
}

# Of these nothing is drawn without dropout: the losses of a recipe are those of a CPU, up to a
# relative difference.
COMPARED: dict[str, tuple[str, dict[str, Any], float]] = {
    "bfloat16": ("contrastive_only", {}, 3e-2),
    "float32": ("contrastive_only", _FLOAT32, 1e-4),
    "chunked": ("contrastive_only", {**_FLOAT32, "model.chunk_size": 2}, 1e-4),
    "two encoders": ("contrastive_only", {**_FLOAT32, "model.two_encoders": True}, 1e-4),
    "momentum": ("moco", _FLOAT32, 1e-4),
    "cross-batch memory": ("cross_batch_memory", _FLOAT32, 1e-4),
    "decorrelation": ("barlow_twins", _FLOAT32, 1e-4),
}
