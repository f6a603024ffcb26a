"""What is rehearsed: recipes, and kinds of training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Config = dict[str, Any]


def _as_it_is(config: Config) -> None:
    pass


def _embedder(**settings: Any) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        config["model"]["text_field_embedder"]["token_embedders"]["tokens"] |= settings

    return change


def _model(**settings: Any) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        config["model"] |= settings

    return change


def _trainer_of_allennlp(config: Config) -> None:
    config["trainer"]["type"] = "gradient_descent"


# Kinds of step whose waits and launches are held as numbers: a recipe, and what is changed in it.
KINDS: dict[str, tuple[str, Callable[[Config], None]]] = {
    "default": ("declutr", _as_it_is),
    "trainer of AllenNLP": ("declutr", _trainer_of_allennlp),
    "float32": ("declutr", _model(precision="float32")),
    "chunked": ("declutr", _model(chunk_size=2)),
    "gradient checkpointing": ("declutr", _embedder(gradient_checkpointing=True)),
    "two encoders": ("declutr", _model(two_encoders=True)),
    "momentum": ("moco", _as_it_is),
    "cross-batch memory": ("cross_batch_memory", _as_it_is),
    "SCD": ("scd", _as_it_is),
    "RECLAIM": ("reclaim", _as_it_is),
    "RECLAIM, large bank": ("reclaim_large_bank", _as_it_is),
}

# Of these nothing is drawn without dropout: the losses of a recipe are those of a CPU, up to a
# relative difference.
COMPARED: dict[str, tuple[str, Callable[[Config], None], float]] = {
    "bfloat16": ("contrastive_only", _as_it_is, 3e-2),
    "float32": ("contrastive_only", _model(precision="float32"), 1e-4),
    "chunked": ("contrastive_only", _model(precision="float32", chunk_size=2), 1e-4),
    "two encoders": ("contrastive_only", _model(precision="float32", two_encoders=True), 1e-4),
    "momentum": ("moco", _model(precision="float32"), 1e-4),
    "cross-batch memory": ("cross_batch_memory", _model(precision="float32"), 1e-4),
    "decorrelation": ("barlow_twins", _model(precision="float32"), 1e-4),
}
