"""Every recipe on the device: a few training steps, a validation, an embedding of the archive.

The data are those that the tests of recipes make, small, for a tiny transformer.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import trained
from benchmarks.gpu.findings import Findings, Settings

_BATCH = 10  # of forty instances: four steps
_FIRST = ("declutr", "simcse", "scd", "moco", "reclaim", "reclaim_image_text", "reclaim_text_vae")


def run(findings: Findings, settings: Settings) -> None:
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer
    from tests.conftest import make_documents
    from tests.recipe_data import RecipeData

    folder = settings.work / "recipes"
    (folder / "data").mkdir(parents=True)
    tokenizer = train_tokenizer(make_documents(24, 300), 400, max_length=128)
    make_checkpoint(folder / "tiny", tokenizer, layers=2, hidden_size=32, heads=2, max_length=128)
    os.environ["TRANSFORMER_MODEL"] = str(folder / "tiny")
    data = RecipeData(folder / "data")
    # Ablations last, which differ from their recipe in a setting or two.
    ablations = {name for name, file in trained.RECIPES.items() if "ablations" in file.parent.name}
    order = sorted(trained.RECIPES, key=lambda name: (name not in _FIRST, name in ablations, name))
    for name in order:
        file = trained.RECIPES[name]
        findings.check(name, _trained, settings, data, file, folder / "run" / name)


def _trained(settings: Settings, data: Any, file: Path, folder: Path) -> dict[str, Any]:
    config = data.small(file, num_epochs=1)
    if config["trainer"].get("type") != "no_op":
        config["trainer"]["cuda_device"] = 0 if settings.device == "cuda" else -1
        for loader in ("data_loader", "validation_data_loader"):
            config[loader]["batch_size"] = _BATCH
    trained.train(config, folder)
    metrics = _metrics(folder)
    embedded = _embedded(settings, config, folder)
    told = [value for key, value in metrics.items() if key.endswith("_loss")]
    return {
        "training loss": metrics.get("training_loss"),
        "validation loss": metrics.get("validation_loss"),
        "embedded": embedded,
        "holds": all(map(math.isfinite, told)) and embedded is not False,
    }


def _metrics(folder: Path) -> dict[str, float]:
    file = folder / "metrics.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _embedded(settings: Settings, config: dict[str, Any], folder: Path) -> bool | None:
    """Whether embeddings of the run's archive are those of the CPU; None of a task's model."""
    if config["model"]["type"] != "declutr":
        return None
    from declutr.inference.encoder import Encoder

    given = ["ka lo mi tu", "", "re sa no ve pi du ka"]
    theirs = Encoder(folder, device="cpu", dtype="float32")(given)
    ours = Encoder(folder, device=settings.device, dtype="float32")(given)
    return bool(np.allclose(ours, theirs, atol=1e-4))
