"""Tests of commands as subprocesses: training, recovery, several processes and prediction."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import RECIPES, make_documents
from tests.forked_commands import ForkedCommand

pytestmark = pytest.mark.slow


def settings(corpus: Path, **more: Any) -> dict[str, Any]:
    """Return overrides that make the paper's recipe small: 4 documents per step, short spans."""
    return {
        "dataset_reader.max_span_len": 32,
        "dataset_reader.min_span_len": 8,
        "train_data_path": str(corpus),
        "validation_data_path": str(corpus),
        "data_loader.batch_size": 4,
        "validation_data_loader.batch_size": 8,
        "trainer.num_epochs": 2,
        "trainer.cuda_device": -1,
        "trainer.optimizer.lr": 1e-3,
        **more,
    }


@pytest.fixture
def environment(checkpoint: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TRANSFORMER_MODEL": str(checkpoint),
        "ALLENNLP_LOG_LEVEL": "WARNING",
    }


def words(
    output: Path,
    overrides: dict[str, Any],
    recipe: Path = RECIPES / "declutr.jsonnet",
) -> list[str]:
    return ["train", str(recipe), "-s", str(output), "-o", json.dumps(overrides)]


def train(
    output: Path,
    overrides: dict[str, Any],
    environment: dict[str, str],
    *more: str,
    recipe: Path = RECIPES / "declutr.jsonnet",
) -> ForkedCommand:
    return ForkedCommand(*words(output, overrides, recipe), *more, environment=environment)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state = torch.load(folder / "best.th", weights_only=True)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def metrics(folder: Path) -> dict[str, float]:
    recorded = json.loads((folder / "metrics.json").read_text())
    return {
        name: value
        for name, value in recorded.items()
        if isinstance(value, float) and not name.endswith("_MB")
    }


def test_train_and_predict_from_another_folder(
    corpus_file: Path, environment: dict[str, str], tmp_path: Path, monkeypatch: Any
) -> None:
    """Start Python anew to train, as users do."""
    output = tmp_path / "output"
    command = [sys.executable, "-m", "allennlp", *words(output, settings(corpus_file))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    record = metrics(output)
    assert record["validation_loss"] < 8 and record["validation_retrieval_accuracy"] > 0.5
    for name in ("contrastive_loss", "mlm_loss", "mlm_accuracy", "alignment", "uniformity"):
        assert f"training_{name}" in record and f"validation_{name}" in record

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lines = ["ka lo mi", "", "tu re", "   ", "sa no ve pi du"]
    (elsewhere / "lines.txt").write_text("\n".join(lines) + "\n")
    (elsewhere / "lines.jsonl").write_text(
        "".join("\n" if not line.strip() else json.dumps({"text": line}) + "\n" for line in lines)
    )
    monkeypatch.chdir(elsewhere)
    rows = {}
    for name, reader in (("lines.txt", ["--use-dataset-reader"]), ("lines.jsonl", [])):
        command = ["predict", str(output / "model.tar.gz"), name, *reader, "--silent"]
        command += ["--output-file", f"{name}.out", "--batch-size", "2"]
        ForkedCommand(*command, environment=environment).finished()
        text = (elsewhere / f"{name}.out").read_text()
        rows[name] = [json.loads(line)["embeddings"] for line in text.splitlines()]
        assert len(rows[name]) == len(lines), "one row for each line, blank ones included"
    torch.testing.assert_close(torch.tensor(rows["lines.txt"]), torch.tensor(rows["lines.jsonl"]))
    torch.testing.assert_close(
        torch.tensor(rows["lines.txt"][1]), torch.tensor(rows["lines.txt"][3])
    )


def test_a_killed_and_recovered_run_equals_an_uninterrupted_one(
    environment: dict[str, str], tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(make_documents(48, 200, seed=1)))
    overrides = settings(corpus)
    overrides["trainer.checkpointer.save_every_num_batches"] = 2
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(straight, overrides, environment).finished()

    more: list[str] = []
    for needed in ("training_state_e0_b*.th", "training_state_e1_b*.th"):
        process = train(killed, overrides, environment, *more)
        deadline = time.time() + 240
        while not list(killed.glob(needed)) and not process.has_ended() and time.time() < deadline:
            time.sleep(0.01)
        process.kill()
        more = ["--recover"]
    assert list(killed.glob("model_state_e*_b*.th")), "killed before the first checkpoint"
    assert not (killed / "model.tar.gz").exists(), "finished before it was killed"
    train(killed, overrides, environment, "--recover").finished()

    recovered = metrics(killed)
    # Now the folder looks as if the run was killed right after its last checkpoint.
    for name in ("best.th", "model.tar.gz"):
        (killed / name).unlink()
    train(killed, overrides, environment, "--recover").finished()
    assert (killed / "model.tar.gz").exists()

    expected, got = weights(straight), weights(killed)
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=0, atol=1e-6, msg=name)
    left, right = metrics(straight), recovered
    for name in left:
        assert right[name] == pytest.approx(left[name], abs=1e-6), name


def test_two_processes_equal_one(
    corpus_file: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Train without masking and dropout, whose random numbers differ by process."""
    embedder = "model.text_field_embedder.token_embedders.tokens"
    overrides = settings(
        corpus_file,
        **{
            f"{embedder}.masked_language_modeling": False,
            f"{embedder}.transformer_kwargs": {
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
            },
        },
    )
    one, two = tmp_path / "one", tmp_path / "two"
    train(one, overrides, environment).finished()
    overrides["data_loader.batch_size"] = 2
    overrides["validation_data_loader.batch_size"] = 4
    del overrides["trainer.cuda_device"]
    overrides["distributed"] = {"cuda_devices": [-1, -1]}
    train(two, overrides, environment).finished()

    expected, got = weights(one), weights(two)
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-5, msg=name)
    left, right = metrics(one), metrics(two)
    for name in left:
        assert right[name] == pytest.approx(left[name], abs=1e-5), name


def test_a_configuration_of_the_original_package_still_trains(
    corpus_file: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    recipe = Path(__file__).parents[1] / "fixtures" / "original.jsonnet"
    overrides = {"train_data_path": str(corpus_file)}
    told = train(tmp_path / "output", overrides, environment, recipe=recipe).finished()
    assert "spans are drawn once" in told, "AllenNLP's loader keeps instances: say so"
    assert (tmp_path / "output" / "model.tar.gz").exists()
