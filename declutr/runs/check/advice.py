"""Warnings that a careful colleague would give before a run begins: only what is certain."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from declutr.bridge.component_names import short
from declutr.runs.check.data import DataFigures
from declutr.runs.check.findings import Setting
from declutr.runs.check.memory import Device, MemoryFigures
from declutr.system.nearest import listed
from declutr.system.releases import untested_releases

_HIGH_RATE = 1e-3  # of AdamW, above which pretrained weights are spoilt
_FEW_STEPS = 20
_MUCH = 0.1  # the share of documents from which it is worth telling
_PRETRAINED = "pretrained_transformer"
_WITH_TOKENS = (_PRETRAINED, "token_embedding_bag", "classification_pooler")


def of_settings(
    config: Mapping[str, Any], settings: list[Setting], output: str | os.PathLike | None
) -> Iterator[str]:
    """Yield warnings on the settings of a run."""
    trained = (config.get("trainer") or {}).get("type") != "no_op"
    values = {setting.path: setting.value for setting in settings}
    if trained and not config.get("validation_data_path"):
        yield (
            "There is no validation data: nothing will tell whether a run gets better, and the "
            "last weights are taken."
        )
    elif trained and config.get("validation_data_path") == config.get("train_data_path"):
        yield "validation_data_path is train_data_path: validation tells nothing about other texts."
    rate, kind = values.get("trainer.optimizer.lr"), values.get("trainer.optimizer.type")
    adam = isinstance(kind, str) and "adam" in kind
    if adam and isinstance(rate, (int, float)) and rate > _HIGH_RATE and _pretrained(values):
        yield (
            f"The learning rate is {rate:g}; pretrained transformers are trained with {kind} at "
            "1e-5 to 1e-4."
        )
    yield from _of_transformers(values)
    if output is not None and os.path.isdir(output) and os.listdir(output):
        yield f"'{output}' is not empty: train needs --recover to go on there, or --force."
    yield from untested_releases()


def _pretrained(values: Mapping[str, Any]) -> bool:
    """Return whether a pretrained transformer is trained; tokenizers of one may serve a table."""
    types = [
        value
        for path, value in values.items()
        if path.startswith("model.") and path.endswith(".type")
    ]
    return any(isinstance(one, str) and one.startswith(_PRETRAINED) for one in types)


def _of_transformers(values: Mapping[str, Any]) -> Iterator[str]:
    """Warn if texts are tokenised for another transformer than the one that embeds them."""
    names: dict[str, str] = {}
    for path, value in values.items():
        parent, _, key = path.rpartition(".")
        kind = values.get(f"{parent}.type")
        if key == "model_name" and isinstance(kind, str) and kind.startswith(_WITH_TOKENS):
            names.setdefault(str(value), parent)
    if len(names) > 1:
        told = ", ".join(f"{parent} has '{name}'" for name, parent in names.items())
        yield f"Several transformers: {told}. Ids of one tokenizer mean other texts in another."


def of_data(
    config: Mapping[str, Any], data: DataFigures, model: Any, device: Device
) -> Iterator[str]:
    """Yield warnings on the data of a run and its batches."""
    loader = config["data_loader"]
    size = loader.get("batch_size")
    together = size * device.processes if isinstance(size, int) else 0
    left_out = data.kept % together if together and loader.get("drop_last") else 0
    if data.batches and left_out > _MUCH * data.kept:
        yield (
            f"drop_last leaves out {left_out:,} of {data.kept:,} documents in each epoch, as they "
            "do not fill a batch. Lower batch_size."
        )
    skipped = sum(data.skipped.values())
    if skipped > _MUCH * data.rows:
        yield f"{skipped:,} of {data.rows:,} rows are skipped."
    objective = getattr(model, "_loss", None)
    least = getattr(objective, "min_pairs", 0) if getattr(model, "contrastive", False) else 0
    if together and least:
        anchors = config["dataset_reader"].get("num_anchors") or 1
        last = together if loader.get("drop_last") else data.kept % together or together
        fewest = min(together, last) * anchors
        if fewest < least:
            yield (
                f"A batch has {fewest} anchor(s), and {type(objective).__name__} needs {least} for "
                "negatives: training will stop there. Raise batch_size, and set drop_last."
            )


def of_steps(steps: int) -> Iterator[str]:
    """Yield warnings on the number of steps of a run."""
    if 0 < steps < _FEW_STEPS:
        yield f"The run has {steps} step(s): hardly anything will be learnt. Raise num_epochs."


def of_metrics(config: Mapping[str, Any], names: set[str]) -> Iterator[str]:
    """Yield a warning if no epoch will have a metric that it is judged by."""
    metrics = config["trainer"].get("validation_metric", "-loss")
    for metric in [metrics] if isinstance(metrics, str) else metrics:
        name = str(metric)[1:]
        # Scores of the callback "evaluate_embeddings" have a slash in their names.
        if name not in ("loss", *names) and "/" not in name:
            yield (
                f"trainer.validation_metric is '{metric}', which a step does not have: training "
                f"will stop after the first epoch. A step has {listed(['loss', *sorted(names)])}."
            )


def of_memory(config: Mapping[str, Any], memory: MemoryFigures, device: Device) -> Iterator[str]:
    """Yield a warning if a step will probably not fit into memory, with what to do."""
    if device.memory is None or memory.process <= device.memory:
        return
    model, size = config["model"], config["data_loader"].get("batch_size")
    ways = []
    own = short(model.get("type")) == "declutr"
    if own and not model.get("chunk_size") and isinstance(size, int) and size > 1:
        fixed = memory.peak - memory.activations
        room = device.memory - fixed
        chunk = math.floor(size * room / max(1, memory.activations) / 2)
        ways.append(
            f"model.chunk_size {max(1, chunk)} (same loss and gradients, about 1.3 times the time)"
        )
    embedders = ((model.get("text_field_embedder") or {}).get("token_embedders") or {}).items()
    for name, embedder in embedders:
        if not embedder.get("gradient_checkpointing"):
            key = f"model.text_field_embedder.token_embedders.{name}.gradient_checkpointing"
            ways.append(f"{key} true")
    ways.append("a lower data_loader.batch_size")
    yield (
        f"A step takes about {gigabytes(memory.process)}, and {device.name} has "
        f"{gigabytes(device.memory)}. Set {', or '.join(ways)}."
    )


def gigabytes(size: float) -> str:
    """Return a number of bytes in words."""
    if size < 1e8:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e9:.2f} GB" if size < 1e10 else f"{size / 1e9:.1f} GB"
