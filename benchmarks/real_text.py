"""What objectives make of one encoder on real text, each within the same budget.

    python -m benchmarks real_text --checkpoint FOLDER --sentences FILE --documents FILE \
        --evaluation FOLDER

Every recipe begins with the same transformer (made by the recipe `mlm_only`) and sees equally many
sentences, or about as many tokens of documents. What comes out is scored by semantic similarity.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.memory import ROOT
from benchmarks.results import record
from declutr.recipes import recipe_path

_SENTENCES = {"data_loader.batch_size": 64}
_SPANS = {
    "data_loader.batch_size": 16,
    "dataset_reader.max_span_len": 48,
    "dataset_reader.min_span_len": 8,
}
_SCORES = ("cosine Spearman dev", "all Spearman", "cosine Spearman")  # the first there is
_MEAN = {"model.seq2vec_encoder": None}

RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "SimCSE": ("simcse", _SENTENCES),
    "SimCSE, mean": ("simcse", {**_SENTENCES, **_MEAN}),
    "SCD, L_S": ("scd_self_contrast", _SENTENCES),
    "SCD, L_C": ("scd_decorrelation", _SENTENCES),
    "SCD": ("scd", _SENTENCES),
    "SCD, mean": ("scd", {**_SENTENCES, **_MEAN}),
    "Barlow Twins": ("barlow_twins", _SENTENCES),
    "DeCLUTR": ("declutr", _SPANS),
    "DeCLUTR without MLM": ("contrastive_only", _SPANS),
}
"""By the name in the table: recipe and changes. 16 documents give 2 anchors and 4 positives each:
together about as many tokens as 64 sentences twice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    needed = parser.add_argument_group("needed (without them nothing is run)")
    needed.add_argument("--checkpoint", type=Path, help="a transformer's folder")
    needed.add_argument("--sentences", type=Path, help="one a line")
    needed.add_argument("--documents", type=Path, help="one a line")
    needed.add_argument("--evaluation", type=Path, help="SentEval's data")
    parser.add_argument("--steps", type=int, default=500, help="of 64 sentences (default 500)")
    parser.add_argument("--learning-rate", type=float, help="(default: of the recipe)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[13370], help="(default 13370)")
    parser.add_argument("--tasks", nargs="+", default=["STS12", "STS-B"])
    parser.add_argument("--only", nargs="+", choices=RECIPES, metavar="NAME", help="some of them")
    parser.add_argument("--output", type=Path, default=Path("real_text"), help="runs and scores")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")


def run(args: argparse.Namespace) -> None:
    needed = ("checkpoint", "sentences", "documents", "evaluation")
    missing = [name for name in needed if getattr(args, name) is None]
    if missing:
        print(f"real_text left out: it needs --{', --'.join(missing)}.")
        return
    steps = 20 if args.quick else args.steps
    encoders = {
        "MLM alone, mean": f"hf:{args.checkpoint.resolve()}?pooling=mean",
        "MLM alone, first token": f"hf:{args.checkpoint.resolve()}?pooling=cls",
    }
    for name in args.only or RECIPES:
        for seed in args.seeds:
            label = name if len(args.seeds) == 1 else f"{name}, seed {seed}"
            folder = args.output / f"{_file_name(name)}-{steps}-{args.learning_rate}-{seed}"
            if not (folder / "model.tar.gz").exists():
                _train(name, folder, steps, seed, args)
            encoders[label] = str(folder)
    scores = _scored(encoders, args)
    rows = [
        {
            "encoder": label,
            **scores[label],
        }
        for label in encoders
    ]
    record(
        "real_text",
        "Objectives on real text",
        rows,
        note=(
            f"Recipes as they are, but for {steps} steps of 64 sentences (spans: of 16 documents, "
            "2 anchors of 8 to 48 tokens each and 2 positives an anchor), learning rate "
            f"{args.learning_rate or 'of the recipe'}. The first token is the embedding where "
            "nothing else is said, as in the papers; the mean over tokens for DeCLUTR. STS12: all "
            "pairs together; STS-B: what is given as its development set."
        ),
        settings={
            "checkpoint": args.checkpoint.name,
            "steps": steps,
            "learning_rate": args.learning_rate,
            "seeds": args.seeds,
            "threads": args.threads,
        },
    )


def _train(name: str, folder: Path, steps: int, seed: int, args: argparse.Namespace) -> None:
    recipe, changes = RECIPES[name]
    of_documents = changes is _SPANS
    data = args.documents if of_documents else args.sentences
    batch = changes["data_loader.batch_size"]
    overrides: dict[str, Any] = {
        "train_data_path": str(data.resolve()),
        "trainer.num_epochs": 1,
        "trainer.cuda_device": -1,
        "data_loader.num_workers": 0,
        "dataset_reader.max_instances": None if of_documents else steps * batch,
        "dataset_reader.seed": seed,
        "data_loader.seed": seed,
        **dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), seed),
        **changes,
    }
    if args.learning_rate is not None:
        overrides["trainer.optimizer.lr"] = args.learning_rate
    if of_documents:
        overrides["trainer.num_epochs"] = max(1, round(steps * batch / _count_lines(data)))
    print(f"{name}: {recipe}.jsonnet", flush=True)
    environment = {
        **os.environ,
        "TRANSFORMER_MODEL": str(args.checkpoint.resolve()),
        "OMP_NUM_THREADS": str(args.threads),
    }
    command = [sys.executable, "-m", "declutr", "train", str(recipe_path(recipe))]
    command += ["-s", str(folder.resolve()), "--force", "-o", json.dumps(overrides)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL)


def _scored(encoders: dict[str, str], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Spearman's correlation in percent, by encoder, task and score."""
    output = args.output / "scores"
    command = [sys.executable, "-m", "declutr", "evaluate-embeddings", str(args.evaluation)]
    command += [f"{label}={place}" for label, place in encoders.items()]
    command += ["--tasks", *args.tasks, "-o", str(output), "--device", "cpu", "--overwrite"]
    subprocess.run(command, check=True)
    return _spearman(json.loads((output / "results.json").read_text())["encoders"])


def _spearman(encoders: dict[str, Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for label, encoder in encoders.items():
        found[label] = {}
        for task, result in encoder["tasks"].items():
            scores = result["scores"]
            name = next(name for name in _SCORES if name in scores)
            found[label][f"{task}, {name}"] = scores[name]["value"]
    return found


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _file_name(name: str) -> str:
    return name.lower().replace(",", "").replace(" ", "_")
