"""Rehearses recipes and kinds of steps on the pretend GPU: `python -m tests.pretend_gpu.rehearsal`.

    python -m tests.pretend_gpu.rehearsal recipes declutr moco
    python -m tests.pretend_gpu.rehearsal steps "two encoders"

Without names it takes all. With `--json FILE` the results are written there as well.
"""

from .build import load_hooks  # before torch

load_hooks()

import argparse
import json
import math
import os
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
warnings.filterwarnings("ignore")

import torch

from allennlp.commands.train import TrainModel

import declutr.plugin  # noqa: F401
from declutr.checkpoints import make_checkpoint, train_tokenizer
from declutr.model import DeCLUTR
from tests.conftest import RECIPES, make_documents
from tests.recipe_data import RecipeData

from .kinds import COMPARED, KINDS
from .runtime import pretend_gpu
from .training import train
from .waits import LIBRARY, LOOP, OURS, Record, recorded

os.environ.pop("DECLUTR_KEEP_DTYPE", None)
STEADY = 3  # the step that is counted: whatever is made once is there by then


def recipe_names() -> list[str]:
    """All under training_config, however deep."""
    found = sorted(RECIPES.rglob("*.jsonnet"))
    return [file.relative_to(RECIPES).as_posix().removesuffix(".jsonnet") for file in found]


def rehearse_recipe(name: str, data: RecipeData, folder: Path, record: Record) -> dict[str, Any]:
    """Two steps of training, validation and a saved archive."""
    config = data.small(RECIPES / f"{name}.jsonnet", cuda_device=0, num_epochs=1)
    if config["trainer"].get("type") == "no_op":
        return {"skipped": "trains nothing"}
    run, steps = train(config, folder, record, 2)
    losses = [loss.item() for loss in steps.losses]
    assert len(losses) == 2 and all(map(math.isfinite, losses)), f"losses {losses}"
    result = _figures(steps.steps[-1]) | {"losses": losses}
    if isinstance(run.model, DeCLUTR):
        assert_embeds(run)
    return result


def assert_embeds(run: TrainModel) -> None:
    """The trained model embeds the first texts of a batch on the device."""
    batch = next(iter(run.trainer.data_loader))
    (name,) = batch["anchors"]
    texts = batch["anchors"][name]
    if texts["token_ids"].dim() == 3:
        texts = {key: value[:, 0] for key, value in texts.items()}
    with torch.no_grad():
        embeddings = run.model.eval()(anchors={name: texts})["embeddings"]
    assert embeddings.device.type == "cuda" and embeddings.isfinite().all()


def compare_losses(kind: str, data: RecipeData, folder: Path, record: Record) -> dict[str, Any]:
    """Losses of the same steps on the pretend GPU and on the CPU, where nothing is drawn."""
    recipe, change, tolerance = COMPARED[kind]
    losses = {}
    for device, number in (("gpu", 0), ("cpu", -1)):
        config = data.small(RECIPES / f"{recipe}.jsonnet", cuda_device=number, num_epochs=1)
        change(config)
        config["validation_data_path"] = None
        _, steps = train(config, folder / device, record, 2, device=torch.device("cuda" if number == 0 else "cpu"))
        losses[device] = [loss.item() for loss in steps.losses]
    return losses | {"tolerance": tolerance}


def rehearse_step(kind: str, data: RecipeData, folder: Path, record: Record) -> dict[str, Any]:
    """The waits and launches of a step once all is warm."""
    recipe, change = KINDS[kind]
    config = data.small(RECIPES / f"{recipe}.jsonnet", cuda_device=0, num_epochs=1)
    change(config)
    config["validation_data_path"] = None
    _, steps = train(config, folder, record, STEADY)
    return _figures(steps.steps[STEADY - 1])


def _figures(record: Record) -> dict[str, Any]:
    counts = {owner: record.count(owner) for owner in (OURS, LIBRARY, LOOP)}
    return counts | {"launches": record.num_launches, "places": record.by_place().splitlines()}


def _without_dropout(file: Path) -> None:
    config = json.loads(file.read_text())
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    file.write_text(json.dumps(config | dropout))


_REHEARSALS: dict[str, Any] = {
    "recipes": (rehearse_recipe, recipe_names),
    "steps": (rehearse_step, lambda: list(KINDS)),
    "losses": (compare_losses, lambda: list(COMPARED)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=list(_REHEARSALS))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--places", action="store_true", help="each wait with its place")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rehearse, all_names = _REHEARSALS[given.what]
    names = given.names or all_names()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, pretend_gpu(), recorded() as record:
        folder = Path(place)
        os.environ["DECLUTR_CACHE"] = str(folder / "cache")
        documents = make_documents(24, 300)
        tokenizer = train_tokenizer(documents, 400, max_length=128)
        make_checkpoint(
            folder / "tiny", tokenizer, layers=2, hidden_size=32, heads=2, max_length=128
        )
        if given.what == "losses":
            _without_dropout(folder / "tiny" / "config.json")
        os.environ["TRANSFORMER_MODEL"] = str(folder / "tiny")
        data = RecipeData(folder)
        for number, name in enumerate(names):
            start = time.process_time()
            try:
                results[name] = rehearse(name, data, folder / f"run{number}", record)
            except Exception as error:
                results[name] = {"error": f"{type(error).__name__}: {error}", "trace": _frames(error)}
            results[name]["seconds"] = round(time.process_time() - start, 2)
            _say(name, results[name], given.places)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


def _frames(error: Exception) -> list[str]:
    """The innermost frames of an error, which of ours and of AllenNLP."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [f for f in frames if "/pretend_gpu/" not in f.filename]
    return [f"{f.filename.split('site-packages/')[-1]}:{f.lineno} {f.name}" for f in kept[-12:]]


def _say(name: str, result: dict[str, Any], places: bool) -> None:
    shown = {key: value for key, value in result.items() if key not in ("places", "trace")}
    print(f"{name}: {shown}", flush=True)
    for line in result.get("trace", []) + (result.get("places", []) if places else []):
        print("     ", line, flush=True)


if __name__ == "__main__":
    main()
