"""Recipes by name, default transformers and errors of `train` come with the switches alone."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from declutr.bridge import configurations
from declutr.recipes import UnknownRecipe, recipe_path
from declutr.recipes.evaluation import RecipeError


@pytest.fixture
def params(bare: Any, monkeypatch: Any, tmp_path: Path) -> Any:
    """AllenNLP's module of `Params` without the switches, and no transformer chosen."""
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    return bare("allennlp.common.params")


def test_recipes_by_name(params: Any) -> None:
    with pytest.raises(FileNotFoundError, match="file declutr not found"):
        params.cached_path("declutr")
    assert configurations.named_recipes(params)
    assert params.cached_path("declutr") == str(recipe_path("declutr"))
    with pytest.raises(UnknownRecipe, match="nearest: declutr,"):
        params.cached_path("declut")


def test_default_transformers(params: Any) -> None:
    with pytest.raises(RuntimeError, match="undefined external variable: TRANSFORMER_MODEL"):
        params.Params.from_file(recipe_path("declutr_base"))
    assert configurations.default_transformers(params)
    found = params.Params.from_file(recipe_path("declutr_base"), '{"train_data_path": "x"}')
    assert found["dataset_reader"]["tokenizer"]["model_name"] == "roberta-base"
    assert found["train_data_path"] == "x"
    with pytest.raises(RecipeError, match=r"overrides '\{' cannot be evaluated"):
        params.Params.from_file(recipe_path("declutr_base"), "{")


@pytest.mark.parametrize("switched", [False, True])
def test_errors_of_train(bare: Any, monkeypatch: Any, capsys: Any, switched: bool) -> None:
    monkeypatch.delenv("DECLUTR_TRACEBACK", raising=False)
    module = bare("allennlp.commands.train")
    if switched:
        assert configurations.told_errors(module)
    parser = argparse.ArgumentParser(prog="allennlp")
    module.Train().add_subparser(parser.add_subparsers())
    args = parser.parse_args(["train", "nowhere.jsonnet", "-s", "out"])
    args.include_package = []
    with pytest.raises(SystemExit if switched else FileNotFoundError):
        args.func(args)
    told = capsys.readouterr().err
    assert told.startswith("allennlp train: There is no recipe 'nowhere.jsonnet'.") == switched
