"""`declutr check`: what it prints, and its exit status."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError

from declutr.commands import check
from declutr.commands.errors import TRACEBACK, CommandError
from tests.conftest import run_config


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str]:
    status = check.main(arguments)
    return status, capsys.readouterr().out


@pytest.fixture
def config(tmp_path: Path, checkpoint: Path, corpus_file: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(run_config(checkpoint, corpus_file), indent=1))
    return str(file)


def test_a_recipe_is_described(config: str, capsys: pytest.CaptureFixture) -> None:
    status, out = run(capsys, config, "-o", '{"trainer.num_epochs": 40}')
    assert status == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "num_epochs 40 -o" in lines
    assert 'reduction "mean" default of NTXent' in lines
    assert "24 rows, 24 used" in lines
    assert "3 an epoch, 40 epochs, 120 in all" in lines
    assert any(line.startswith("Tokens of a batch: ") for line in lines)
    assert any(line.startswith("peak ") for line in lines)
    assert lines[-1] == "Nothing wrong was found."
    assert max(map(len, out.splitlines())) <= 130


def test_data_and_transformer_are_given_as_to_train(
    capsys: pytest.CaptureFixture, checkpoint: Path, corpus_file: Path
) -> None:
    whole = ("simcse", str(corpus_file), "--transformer", str(checkpoint))
    _, out = run(capsys, *whole)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert f'train_data_path "{corpus_file}" -o' in lines
    assert f"Training data: {corpus_file}" in lines
    assert f'model_name "{checkpoint}" variable TRANSFORMER_MODEL' in lines
    _, after = run(capsys, "simcse", "--transformer", str(checkpoint), "--json", str(corpus_file))
    assert json.loads(after)["data"]["path"] == str(corpus_file)
    with pytest.raises(ConfigurationError, match="Training data is given twice"):
        run(capsys, *whole, "-o", '{"train_data_path": "other.txt"}')


def test_wrong_keys_end_with_status_1(config: str, capsys: pytest.CaptureFixture) -> None:
    status, out = run(capsys, config, "--no-data", "-o", '{"model.loss.temprature": 1}')
    assert status == 1
    assert "Wrong (1)\n  - model.loss.temprature: NTXent has no such key. Did you mean" in out


def test_a_part_alone(config: str, capsys: pytest.CaptureFixture) -> None:
    status, out = run(capsys, config, "--only", "model.loss")
    assert status == 0
    assert "temperature" in out and "num_epochs" not in out and "Training data" not in out


def test_a_part_that_is_not_there(config: str, capsys: pytest.CaptureFixture) -> None:
    told = "no setting 'model.los', nor one below it. Did you mean 'model.loss'?"
    with pytest.raises(CommandError, match=re.escape(told)):
        run(capsys, config, "--only", "model.los")


def test_everything_as_json(config: str, capsys: pytest.CaptureFixture) -> None:
    status, out = run(
        capsys, config, "--json", "-o", '{"trainer.num_epoch": 2, "trainer.patience": 2}'
    )
    found: dict[str, Any] = json.loads(out)
    assert status == 1
    assert [one["path"] for one in found["findings"]] == ["trainer.num_epoch"]
    assert found["data"]["kept"] == 24
    assert {"path": "trainer.patience", "value": 2, "source": "-o"} in found["settings"]


def test_an_unknown_recipe_is_a_message(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRACEBACK)
    with pytest.raises(SystemExit) as ended:
        check.main(["simcsee"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("declutr check: There is no recipe 'simcsee'.") and "simcse" in error
