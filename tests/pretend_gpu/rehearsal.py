"""Rehearses recipes and kinds of steps on the pretend GPU.

    python -m tests.pretend_gpu recipes declutr moco
    python -m tests.pretend_gpu steps "two encoders" --places
    python -m tests.pretend_gpu losses,steps --json results.json

Without names it takes all. Seconds are of this processor.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from allennlp.commands.train import TrainModel
from allennlp.common.params import with_overrides

import declutr.plugin  # noqa: F401
from declutr.models.declutr import DeCLUTR
from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer
from declutr.recipes import recipe_names, recipe_path
from tests.conftest import make_documents
from tests.recipe_data import RecipeData

from .device import CPU, CUDA
from .kinds import COMPARED, KINDS
from .runtime import pretend_gpu
from .training import train
from .waits import LIBRARY, LOOP, OURS, Record, recorded

STEADY = 3  # the step that is counted: whatever is made once is there by then


class Rehearsal:
    """Small runs with tiny transformers, made in a folder.

    # Parameters

    folder : of data and runs.
    record : what the device is asked to do.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self._folder, self._record = folder, record
        self._runs = 0
        os.environ["DECLUTR_CACHE"] = str(folder / "cache")
        self._data = RecipeData(folder)
        self._checkpoint, self._without_dropout = folder / "tiny", folder / "without_dropout"
        tokenizer = train_tokenizer(make_documents(24, 300), 400, max_length=128)
        for place in (self._checkpoint, self._without_dropout):
            make_checkpoint(place, tokenizer, layers=2, hidden_size=32, heads=2, max_length=128)
        file = self._without_dropout / "config.json"
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        file.write_text(json.dumps(json.loads(file.read_text()) | dropout))

    def recipe(self, name: str) -> dict[str, Any]:
        """Two steps of training, validation, the archive, and embeddings if it embeds."""
        config = self._config(name, self._checkpoint)
        if config["trainer"].get("type") == "no_op":
            return {"skipped": "it trains nothing"}
        run, steps = train(config, self._new_run(), self._record, 2)
        losses = [loss.item() for loss in steps.losses]
        assert len(losses) == 2 and all(map(math.isfinite, losses)), f"losses {losses}"
        if isinstance(run.model, DeCLUTR):
            _assert_embeds(run)
        return _figures(steps.steps[-1]) | {"losses": losses}

    def step(self, kind: str) -> dict[str, Any]:
        """The waits and launches of a step once all is warm."""
        recipe, changes = KINDS[kind]
        config = self._config(recipe, self._checkpoint, changes)
        _, steps = train(config, self._new_run(), self._record, STEADY)
        return _figures(steps.steps[STEADY - 1])

    def losses(self, kind: str) -> dict[str, Any]:
        """Losses of the same steps on the pretend GPU and on the CPU."""
        recipe, changes, tolerance = COMPARED[kind]
        found: dict[str, Any] = {"tolerance": tolerance}
        for name, device in (("gpu", CUDA), ("cpu", CPU)):
            config = self._config(recipe, self._without_dropout, changes)
            config["trainer"]["cuda_device"] = 0 if device == CUDA else -1
            _, steps = train(config, self._new_run(), self._record, 2, device)
            found[name] = [loss.item() for loss in steps.losses]
        return found

    def _config(self, recipe: str, checkpoint: Path, changes: Any = None) -> dict[str, Any]:
        """A recipe in small; with keys that change, it is not validated."""
        os.environ["TRANSFORMER_MODEL"] = str(checkpoint)
        config = self._data.small(recipe_path(recipe), cuda_device=0, num_epochs=1)
        if changes is None:
            return config
        return with_overrides(config | {"validation_data_path": None}, changes)

    def _new_run(self) -> Path:
        self._runs += 1
        return self._folder / f"run{self._runs}"


def _assert_embeds(run: TrainModel) -> None:
    """The trained model embeds the first text of each instance on the device."""
    ((name, texts),) = next(iter(run.data_loader))["anchors"].items()
    if next(iter(texts.values())).dim() == 3:
        texts = {key: value[:, 0] for key, value in texts.items()}
    with torch.no_grad():
        embeddings = run.model.eval()(anchors={name: texts})["embeddings"]
    assert embeddings.device == CUDA and embeddings.isfinite().all()


def _figures(record: Record) -> dict[str, Any]:
    counts: dict[str, Any] = {owner: record.count(owner) for owner in (OURS, LIBRARY, LOOP)}
    return counts | {"launches": record.num_launches, "places": record.by_place().splitlines()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", help="recipes, steps or losses, or several with commas between")
    parser.add_argument("names", nargs="*", help="some of them")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--places", action="store_true", help="each wait with its place")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, pretend_gpu(), recorded() as record:
        rehearsal = Rehearsal(Path(folder), record)
        kinds = {
            "recipes": (rehearsal.recipe, recipe_names()),
            "steps": (rehearsal.step, list(KINDS)),
            "losses": (rehearsal.losses, list(COMPARED)),
        }
        for what in given.what.split(","):
            rehearse, names = kinds[what]
            results[what] = {}
            for name in given.names or names:
                start = time.process_time()
                try:
                    result = rehearse(name)
                except Exception as error:
                    result = {"error": f"{type(error).__name__}: {error}", "trace": _frames(error)}
                result["seconds"] = round(time.process_time() - start, 2)
                results[what][name] = result
                _say(name, result, given.places)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


def _frames(error: Exception) -> list[str]:
    """The innermost frames of an error, without those of the pretend GPU."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [frame for frame in frames if "/pretend_gpu/" not in frame.filename]
    return [f"{f.filename.split('site-packages/')[-1]}:{f.lineno} {f.name}" for f in kept[-12:]]


def _say(name: str, result: dict[str, Any], places: bool) -> None:
    shown = {key: value for key, value in result.items() if key not in ("places", "trace")}
    print(f"{name}: {shown}"[:1000], flush=True)
    for line in result.get("trace", []) + (result.get("places", []) if places else []):
        print("     ", line, flush=True)
