"""A run goes on with the layer that its masked language modelling head was begun with."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params

import declutr.plugin  # noqa: F401
from declutr import masked_lm_runs
from declutr.masked_lm_runs import LAST_LAYER, MIX, begun_with_mix
from declutr.model import DeCLUTR
from tests.conftest import run_config


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the module warns of; AllenNLP takes the handlers of the root away."""
    messages: list[str] = []
    monkeypatch.setattr(masked_lm_runs.logger, "warning", lambda m, *a: messages.append(m % a))
    return messages


def mixing(checkpoint: Path, corpus: Path, **embedder: Any) -> dict[str, Any]:
    """A run of one epoch whose embeddings are a mix of layers."""
    config = copy.deepcopy(run_config(checkpoint, corpus))
    tokens = config["model"]["text_field_embedder"]["token_embedders"]["tokens"]
    tokens |= {"last_layer_only": False, **embedder}
    config["trainer"] |= {"checkpointer": "atomic", "callbacks": ["run_record"]}
    return config


def reads(folder: Path) -> Any:
    return json.loads((folder / "run.json").read_text())["loss"].get("mlm_head_reads")


def head_reads_mix(model: Any) -> bool:
    assert isinstance(model, DeCLUTR)
    return model._text_field_embedder.token_embedder.head_reads_mix  # type: ignore[union-attr]


def test_a_run_of_an_older_release_goes_on_with_the_mix(
    checkpoint: Path, corpus_file: Path, tmp_path: Path, told: list[str]
) -> None:
    config, folder = mixing(checkpoint, corpus_file), tmp_path / "run"

    def train(recover: bool) -> Any:
        return train_model(Params(copy.deepcopy(config)), str(folder), recover=recover)

    assert not head_reads_mix(train(recover=False)) and reads(folder) == LAST_LAYER
    assert not head_reads_mix(train(recover=True)) and reads(folder) == LAST_LAYER
    assert not told
    record = json.loads((folder / "run.json").read_text())
    del record["loss"]["mlm_head_reads"]  # as 1.5 wrote it
    (folder / "run.json").write_text(json.dumps(record))
    for _ in range(2):  # the second time, this release has written run.json
        told.clear()
        assert head_reads_mix(train(recover=True)) and reads(folder) == MIX
        assert len(told) == 1
        assert "read the mix of layers. It goes on so." in told[0]


def test_runs_that_do_not_mix_are_not_asked(
    checkpoint: Path, corpus_file: Path, tmp_path: Path, told: list[str]
) -> None:
    config = mixing(checkpoint, corpus_file, last_layer_only=True)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "run.json").write_text('{"loss": {}}')
    model = train_model(Params(config), str(folder), recover=True)
    assert not head_reads_mix(model) and reads(folder) == LAST_LAYER
    assert not told


@pytest.mark.parametrize("record", [None, '{"loss": {'])
def test_a_run_that_cannot_be_told_apart_is_told_of(
    record: str | None, tmp_path: Path, told: list[str]
) -> None:
    if record is not None:
        (tmp_path / "run.json").write_text(record)
    assert not begun_with_mix(str(tmp_path)) and not begun_with_mix(None)
    assert not told  # nothing was trained yet
    (tmp_path / "model_state_e1_b0.th").touch()
    assert not begun_with_mix(str(tmp_path))
    assert len(told) == 1 and "reads the last layer from now on" in told[0]
