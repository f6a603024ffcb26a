"""`train` takes data and the transformer as arguments, and says what to do with the result."""

import argparse
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands.train import Train
from allennlp.common.checks import ConfigurationError

from declutr.corpus import SourceError
from declutr.runs.front_door import _what_next, arguments_of_allennlp


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    Train().add_subparser(parser.add_subparsers())
    return parser.parse_args(["train", *words])


@pytest.mark.parametrize("data_first", [True, False])
def test_data_becomes_the_training_path(data_first: bool, capsys: Any) -> None:
    data, options = ["a.txt", "b.txt"], ["-o", '{"trainer.num_epochs": 1}', "-s", "out"]
    words = [*data, *options] if data_first else [*options, *data]
    args, level = parsed("simcse", *words), logging.root.level
    with arguments_of_allennlp(args):
        expected = {"trainer.num_epochs": 1, "train_data_path": ["a.txt", "b.txt"]}
        assert json.loads(args.overrides) == expected
        assert logging.root.level == logging.WARNING
    assert logging.root.level == level
    assert capsys.readouterr().out == "Trained: out\n"


@pytest.mark.parametrize(
    ("reader", "name", "told"),
    [
        ({}, "a.jsonl", "/docs -o "),
        ({"text_key": "a b"}, "a.jsonl", "/docs --text-key 'a b' -o "),
        ({"text_key": "a b"}, "a.txt.gz", "/docs -o "),
        ({"anchor": 0}, "a.tsv", None),
    ],
)
def test_what_is_next_names_the_column_of_records(
    reader: dict, name: str, told: str | None, tmp_path: Path
) -> None:
    kind = "text_pairs" if "anchor" in reader else "declutr"
    config = {"model": {"type": "declutr"}, "dataset_reader": {"type": kind, **reader}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / name).touch()
    said = _what_next(str(tmp_path), [str(tmp_path / "docs")])
    assert told in said if told else said == f"Trained: {tmp_path}"


def test_without_them_nothing_changes(capsys: Any) -> None:
    args = parsed("simcse", "-s", "out", "--recover")
    with arguments_of_allennlp(args):
        assert (args.overrides, args.recover) == ("", True)
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit):
        parsed("simcse", "-s", "out", "--recovr")


def test_the_transformer_is_chosen_for_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMER_MODEL", "before")
    with arguments_of_allennlp(parsed("simcse", "-s", "out", "--transformer", "mine")):
        assert os.environ["TRANSFORMER_MODEL"] == "mine"
    assert os.environ["TRANSFORMER_MODEL"] == "before"


def test_the_home_folder_is_known_where_shells_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    args = parsed("simcse", "--serialization-dir=~/out", "--transformer", "~/m")
    assert args.serialization_dir == str(tmp_path / "out")
    with arguments_of_allennlp(args):
        assert os.environ["TRANSFORMER_MODEL"] == str(tmp_path / "m")


def test_contradictions_and_wrong_data_are_told(tmp_path: Path) -> None:
    twice = parsed("simcse", "a.txt", "-s", "out", "-o", '{"train_data_path": "b.txt"}')
    with pytest.raises(ConfigurationError, match=r"twice: a.txt, and .* \(b.txt\). Leave one out"):
        arguments_of_allennlp(twice).__enter__()
    removed = parsed("simcse", "out/*.txt", "-s", "out", "--force")
    with pytest.raises(ConfigurationError, match=r"--force would remove 'out/\*.txt', which lies"):
        arguments_of_allennlp(removed).__enter__()
    (tmp_path / "own.jsonnet").write_text('{"model": {"type": "bag"}}')
    unused = parsed(str(tmp_path / "own.jsonnet"), "-s", "out", "--transformer", "mine")
    with pytest.raises(ConfigurationError, match="--transformer mine would have no effect"):
        arguments_of_allennlp(unused).__enter__()
    args = parsed("simcse_supervised", "a.txt", "-s", "out")
    of_pairs = "No column. The recipe labelled/simcse_supervised is for: premises, hypotheses"
    with pytest.raises(SourceError, match=of_pairs), arguments_of_allennlp(args):
        raise SourceError("No column.")
