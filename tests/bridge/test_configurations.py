"""Recipes by name, default transformers and errors of `train` come with the switches alone."""

import argparse
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from filelock import FileLock

from declutr.bridge import configurations
from declutr.recipes import UnknownRecipe, recipe_path
from declutr.recipes.evaluation import RecipeError
from declutr.runs.recipe_parameters import recipe_parameters


@pytest.fixture
def params(bare: Any, monkeypatch: Any, tmp_path: Path) -> Any:
    """AllenNLP's module of `Params` without the switches, and no transformer chosen."""
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    return bare("allennlp.common.params")


def test_recipes_by_name(params: Any) -> None:
    with pytest.raises(FileNotFoundError, match="file declutr not found"):
        params.cached_path("declutr")
    configurations.named_recipes(params)
    assert params.cached_path("declutr") == str(recipe_path("declutr"))
    with pytest.raises(UnknownRecipe, match="nearest: declutr,"):
        params.cached_path("declut")
    for name in ("declutr", "other", "folder.json"):  # as the code lies in a clone
        Path(name).mkdir()
    assert params.cached_path("declutr") == str(recipe_path("declutr"))
    with pytest.raises(UnknownRecipe, match=r"no recipe 'other'. Expected the path of a file"):
        params.cached_path("other")
    with pytest.raises(IsADirectoryError, match=r"Is a directory: 'folder.json'"):
        params.cached_path("folder.json")
    Path("declutr").rmdir()
    Path("declutr").touch()
    assert params.cached_path("declutr") == "declutr"


def test_default_transformers(params: Any) -> None:
    with pytest.raises(RuntimeError, match="undefined external variable: TRANSFORMER_MODEL"):
        params.Params.from_file(recipe_path("declutr_base"))
    configurations.default_transformers(params)
    found = params.Params.from_file(recipe_path("declutr_base"), '{"train_data_path": "x"}')
    assert found["dataset_reader"]["tokenizer"]["model_name"] == "roberta-base"
    assert found["train_data_path"] == "x"
    with pytest.raises(RecipeError, match=r"overrides '\{' cannot be evaluated"):
        params.Params.from_file(recipe_path("declutr_base"), "{")


def test_a_tilde_is_the_home_of_the_user(params: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configurations.default_transformers(params)
    monkeypatch.setenv("HOME", "/home/of-tests")
    monkeypatch.setenv("TRANSFORMER_MODEL", "~/tiny")
    of_command = params.Params.from_file(recipe_path("simcse"))
    of_python = recipe_parameters("simcse", overrides={"train_data_path": "x"})
    for found in (of_command, of_python):
        assert found["dataset_reader"]["tokenizer"]["model_name"] == "/home/of-tests/tiny"


def train(module: Any, recipe: str) -> None:
    """The command `train` of a module, with its arguments parsed."""
    parser = argparse.ArgumentParser(prog="allennlp")
    module.Train().add_subparser(parser.add_subparsers())
    args = parser.parse_args(["train", recipe, "-s", "out"])
    args.include_package = []
    args.func(args)


@pytest.mark.parametrize("switched", [False, True])
def test_errors_of_train_are_one_line(
    bare: Any, monkeypatch: Any, capsys: Any, switched: bool
) -> None:
    monkeypatch.delenv("DECLUTR_TRACEBACK", raising=False)
    module = bare("allennlp.commands.train")
    if switched:
        configurations.told_errors(module)
    with pytest.raises(SystemExit if switched else FileNotFoundError):
        train(module, "nowhere")
    told = capsys.readouterr().err
    assert told.startswith("allennlp train: There is no recipe 'nowhere'.") == switched


@pytest.mark.parametrize(
    ("was_there", "files", "error", "kept"),
    [
        (False, ["config.json"], ConfigurationError("no"), False),
        (True, ["config.json"], ConfigurationError("no"), True),
        (False, ["config.json", "model_state_e0_b9.th"], ConfigurationError("no"), True),
        (False, ["config.json"], KeyError("a bug"), True),
    ],
)
def test_a_run_that_never_began_leaves_no_folder(
    bare: Any, monkeypatch: Any, tmp_path: Path, was_there, files, error, kept
) -> None:
    monkeypatch.delenv("DECLUTR_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)
    module = bare("allennlp.commands.train")

    def failed(args: Any) -> None:
        module.training_util.create_serialization_dir(Params({}), "out", False, False)
        for file in files:
            Path("out", file).touch()
        raise error

    if was_there:
        Path("out").mkdir()
    monkeypatch.setattr(module, "train_model_from_args", failed)
    configurations.told_errors(module)
    with pytest.raises((SystemExit, KeyError)):
        train(module, "any")
    assert Path("out").exists() == kept


@pytest.mark.parametrize("where", ["before", "within"])
def test_the_folder_of_another_run_is_kept(
    bare: Any, monkeypatch: Any, tmp_path: Path, where: str
) -> None:
    """Two commands begin in the same folder; the other one is quicker to make it, or to fill."""
    monkeypatch.delenv("DECLUTR_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)
    module, util = bare("allennlp.commands.train"), bare("allennlp.training.util")
    begin = util.create_serialization_dir

    def filled() -> None:
        Path("out").mkdir(exist_ok=True)
        Path("out", "config.json").touch()

    def later(*args: Any) -> None:
        filled()
        begin(*args)

    def failed(args: Any) -> None:
        if where == "before":
            filled()
        util.create_serialization_dir(Params({}), "out", False, False)

    if where == "within":
        monkeypatch.setattr(util, "create_serialization_dir", later)
    configurations.noted_folders(util)
    monkeypatch.setattr(module, "train_model_from_args", failed)
    configurations.told_errors(module)
    with pytest.raises(SystemExit):
        train(module, "any")
    assert Path("out", "config.json").exists()


@pytest.mark.parametrize(
    "distributed",
    [None, {"cuda_devices": [-1, -1]}, {"num_nodes": 2, "primary_port": 29500}],
)
def test_a_node_that_the_configuration_does_not_have_is_refused(
    bare: Any, monkeypatch: pytest.MonkeyPatch, distributed: dict[str, Any] | None
) -> None:
    """It would train alone, on all data."""
    module, began = bare("allennlp.commands.train"), []

    def train_model(params: Any, folder: str, node_rank: int = 0) -> None:
        began.append(node_rank)

    monkeypatch.setattr(module, "train_model", train_model)
    configurations.known_nodes(module)
    nodes = (distributed or {}).get("num_nodes", 1)
    for rank in range(nodes):
        module.train_model(Params({"distributed": distributed}), "run", node_rank=rank)
    with pytest.raises(ConfigurationError, match=rf"Got --node-rank {nodes}, and .* is {nodes}: "):
        module.train_model(Params({"distributed": distributed}), "run", node_rank=nodes)
    assert began == [*range(nodes)]


@pytest.mark.parametrize(
    "keys, message",
    [
        (
            {"ddp_acelerator": {"type": "fsdp"}},
            "no key 'ddp_acelerator'. Expected cuda_devices",
        ),
        (
            {"num_nodes": 2, "master_address": "a", "master_port": 1},
            "no key 'master_address'",
        ),
        (
            {"num_nodes": 2, "primary_address": "localhost"},
            "is 2, and there is no primary_port",
        ),
    ],
)
def test_keys_by_which_processes_would_not_find_each_other_are_refused(
    bare: Any, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], message: str
) -> None:
    """AllenNLP left out what it does not know, and nodes without a port chose one each."""
    module = bare("allennlp.commands.train")
    monkeypatch.setattr(module, "train_model", lambda params, folder, node_rank=0: None)
    configurations.known_nodes(module)
    with pytest.raises(ConfigurationError, match=message):
        module.train_model(Params({"distributed": {"cuda_devices": [-1, -1], **keys}}), "run")


def test_one_process_at_a_time_trains_in_a_folder(
    bare: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    module, began = bare("allennlp.commands.train"), []
    monkeypatch.setattr(configurations, "_LEAVING", 0)
    monkeypatch.setattr(module, "train_model", lambda *args, **_: began.append(args[1]))
    configurations.alone_in_folder(module)
    alone, nodes = Params({}), Params({"distributed": {"cuda_devices": [-1], "num_nodes": 2}})
    run = tmp_path / "runs" / "one"
    for _ in range(2):
        module.train_model(alone, str(run))
    with FileLock(run.with_name(".one.lock")):
        for options in ({}, {"recover": True}, {"force": True}):
            with pytest.raises(ConfigurationError, match="Another process trains in"):
                module.train_model(alone, str(run), **options)
        module.train_model(nodes, str(run))
        module.train_model(alone, str(run.with_name("other")))
    assert [Path(folder).name for folder in began] == ["one", "one", "one", "other"]
    assert not {file.name for file in run.parent.iterdir()} - {".one.lock"}


def test_seeds_that_change_nothing_are_told(bare: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Only those at the top, which AllenNLP's own recipes are repeated by."""
    config = Params.from_file(str(recipe_path("declutr"))).as_dict(quiet=True)
    module = bare("allennlp.commands.train")
    module.train_model = lambda params: params["random_seed"]
    configurations.told_seeds(module)
    assert module.train_model(Params(config | {"random_seed": 7, "pytorch_seed": 8})) == 7
    (told,) = (message for message in caplog.messages if "random_seed" in message)
    assert told.startswith("random_seed 7, pytorch_seed 8: layers without pretrained weights")
    own = ("data_loader.seed", "dataset_reader.seed", "trainer.callbacks.1.seed")
    assert "drawn by " + ", ".join(f"{path} 13370" for path in own) in told
    assert configurations.idle_seeds(config) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"pytorch_seed": None},
        {"pytorch_seed": 133},
        {"pytorch_seed": "13370"},
        {"pytorch_seed": 7, "trainer": "no_op"},
        {"pytorch_seed": 7, "trainer": {"callbacks": [{"type": "exact_resume", "seed": 7}]}},
        {"pytorch_seed": 7, "trainer": {"callbacks": ["run_record"]}},
        {"random_seed": 7, "data_loader": {"batch_size": 4, "shuffle": True}},
    ],
)
def test_seeds_that_have_an_effect_are_not_told(changes: dict[str, Any]) -> None:
    config = Params.from_file(str(recipe_path("declutr"))).as_dict(quiet=True)
    assert configurations.idle_seeds({**config, **changes}) is None
