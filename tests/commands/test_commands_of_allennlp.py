"""AllenNLP's own commands, callbacks and schedulers with a recipe of this package."""

import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands import find_learning_rate

import declutr.plugin  # noqa: F401
from declutr.commands.errors import TRACEBACK
from tests.conftest import run_config
from tests.foreign_archives import Commands

pytestmark = pytest.mark.slow


@pytest.fixture
def commands(monkeypatch: Any, capsys: Any) -> Commands:
    monkeypatch.delenv(TRACEBACK)
    return Commands(monkeypatch, capsys)


@pytest.fixture
def recipe(checkpoint: Path, corpus_file: Path, tmp_path: Path) -> Path:
    file = tmp_path / "recipe.jsonnet"
    config = run_config(checkpoint, corpus_file, validation_data_path=str(corpus_file))
    file.write_text(json.dumps(config))
    return file


TRAINER = {
    "num_epochs": 2,
    "grad_norm": 1.0,
    "num_gradient_accumulation_steps": 2,
    "patience": 2,
    "learning_rate_scheduler": {"type": "slanted_triangular", "num_epochs": 2},
    "moving_average": {"type": "exponential", "decay": 0.9},
    "callbacks": [
        "track_epoch_callback",
        {"type": "should_validate_callback", "validation_interval": 1},
        {"type": "console_logger", "should_log_inputs": True},
        {"type": "tensorboard", "should_log_parameter_statistics": False},
    ],
}


def test_train_then_read_what_it_wrote(
    recipe: Path, corpus_file: Path, tmp_path: Path, commands: Commands
) -> None:
    overrides = json.dumps({f"trainer.{key}": value for key, value in TRAINER.items()})
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, seed in zip(folders, (1, 2), strict=True):
        options = ("-s", folder, "-o", overrides[:-1] + f', "pytorch_seed": {seed}}}')
        commands.run("declutr", "train", recipe, *options)
    assert json.loads((folders[0] / "metrics.json").read_text())["epoch"] == 1
    assert list((folders[0] / "log").rglob("events.out.tfevents.*"))

    told = commands.run("declutr", "print-results", tmp_path, "--keys", "best_validation_loss")
    assert "model_run, best_validation_loss" in told and str(folders[1]) in told
    told = commands.run("declutr", "diff", *(folder / "best.th" for folder in folders))
    assert "!_feedforward._linear_layers.0.weight, shape = (6, 32), distance = 0." in told

    archive, texts = folders[0] / "model.tar.gz", tmp_path / "texts.jsonl"
    texts.write_text('{"text": "ka lo mi"}\n\n{"text": "lo"}\n')
    commands.run(
        *("declutr", "predict", archive, texts, "--batch-size", "2"),
        *("--silent", "--output-file", tmp_path / "embeddings.jsonl"),
    )
    rows = (tmp_path / "embeddings.jsonl").read_text().splitlines()
    assert len([json.loads(row)["embeddings"] for row in rows]) == 3  # a blank line, too
    file = tmp_path / "evaluated.json"
    commands.run("declutr", "evaluate", archive, corpus_file, "--output-file", file)
    assert json.loads(file.read_text())["loss"] > 0


def test_read_the_recipe(
    recipe: Path, corpus_file: Path, tmp_path: Path, commands: Commands, monkeypatch: Any
) -> None:
    documents = len(corpus_file.read_text().splitlines())
    assert f"contains {documents} instances" in commands.run("declutr", "count-instances", recipe)
    commands.run("declutr", "build-vocab", recipe, tmp_path / "vocabulary.tar.gz")
    assert (tmp_path / "vocabulary.tar.gz").stat().st_size
    assert str(recipe) in commands.run("declutr", "cached-path", recipe)
    plotted: list[Any] = []
    monkeypatch.setattr(find_learning_rate, "_save_plot", lambda *args: plotted.append(args))
    options = ("-s", tmp_path / "rates", "--num-batches", 11)
    trainer = '{"trainer.type": "declutr", "trainer.read_every": 5, "trainer.grad_norm": null}'
    commands.run("declutr", "find-lr", recipe, *options, "-o", trainer)
    rates, losses, _ = plotted[0]
    assert len(rates) == len(losses) >= 3
