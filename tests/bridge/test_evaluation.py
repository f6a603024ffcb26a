"""All test data are evaluated, whatever the settings of the data loader for training are."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import TensorField
from allennlp.models import Model

from declutr.bridge import evaluation

pytestmark = pytest.mark.slow


class Number(TensorField):
    """A number that completes the vocabulary when it is indexed, as word pieces do."""

    def index(self, vocab: Any) -> None:
        vocab.add_token_to_namespace("piece", "pieces")


@DatasetReader.register("numbers_of_tests")
class Numbers(DatasetReader):
    """A number a line."""

    def _read(self, file_path: Any) -> Iterator[Instance]:
        for line in Path(file_path).read_text().split():
            yield Instance({"x": Number(torch.tensor([float(line)]))})


@Model.register("identity_of_tests")
class Identity(Model):
    """A model whose metric is the sum of the numbers that it is given."""

    def __init__(self, vocab: Any) -> None:
        super().__init__(vocab)
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.sum = 0.0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.sum += float(x.sum())
        return {"loss": (self.weight * x).mean(), "numbers": x[:, 0]}

    def make_output_human_readable(self, output_dict: Any) -> Any:
        return output_dict | {"piece": self.vocab.get_token_from_index(2, "pieces")}

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        found = {"sum": self.sum}
        self.sum = 0.0 if reset else self.sum
        return found


@Model.register("identity_of_tasks")
class IdentityOfTasks(Identity):
    def forward(self, x: torch.Tensor, task: list[str]) -> dict[str, torch.Tensor]:
        return super().forward(x)


def config(folder: Path, **loader: Any) -> dict[str, Any]:
    (folder / "train.txt").write_text("1 1 1 1")
    (folder / "test.txt").write_text("1 2 3 4 5 6 7")
    return {
        "dataset_reader": {"type": "numbers_of_tests"},
        "train_data_path": str(folder / "train.txt"),
        "test_data_path": str(folder / "test.txt"),
        "evaluate_on_test": True,
        "model": {"type": "identity_of_tests"},
        "data_loader": {"batch_size": 2, **loader},
        "trainer": {"num_epochs": 1, "optimizer": {"type": "sgd", "lr": 0.0}, "cuda_device": -1},
    }


@pytest.mark.parametrize(
    "loader",
    [
        {"batches_per_epoch": 1},
        {"batches_per_epoch": 9},
        {"drop_last": True},
        {
            "batch_sampler": {
                "type": "bucket",
                "batch_size": 2,
                "drop_last": True,
                "sorting_keys": ["x"],
            }
        },
    ],
)
def test_every_row_is_evaluated_once(loader: dict[str, Any], tmp_path: Path) -> None:
    settings = config(tmp_path, **loader)
    if "batch_sampler" in loader:
        del settings["data_loader"]["batch_size"]
    train_model(Params(settings), str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["test_sum"] == 28
    archive = tmp_path / "run" / "model.tar.gz"
    assert evaluate_from_archive(archive, str(tmp_path / "test.txt"))["sum"] == 28


@pytest.mark.parametrize(
    "loader",
    [
        {"batch_size": 2, "shuffle": True},
        {"batch_size": 2, "num_workers": 2},
        {"batch_size": 2, "num_workers": 2, "max_instances_in_memory": 4, "shuffle": True},
        {"batch_sampler": {"type": "bucket", "batch_size": 2, "sorting_keys": ["x"]}},
        {"type": "declutr", "batch_size": 2, "shuffle": True},
        {"type": "declutr", "batch_size": 2, "num_workers": 2},
    ],
)
def test_predictions_have_the_order_of_the_data(loader: dict[str, Any], tmp_path: Path) -> None:
    settings = config(tmp_path) | {"data_loader": dict(loader), "evaluate_on_test": False}
    train_model(Params(settings), str(tmp_path / "run"))
    test, written = tmp_path / "test.txt", tmp_path / "predictions.jsonl"
    test.write_text("7 6 1 2 5 4 3 9 8 10 11 12")
    numbers = list(map(float, test.read_text().split()))
    archive = tmp_path / "run" / "model.tar.gz"
    for _ in range(2):
        evaluate_from_archive(archive, str(test), predictions_output_file=str(written))
        rows = [json.loads(line) for line in written.read_text().splitlines()]
        assert [n for row in rows for n in row["numbers"]] == numbers


def test_predictions_of_a_sampler_without_a_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(evaluation.logger, "warning", told.append)
    settings = config(tmp_path) | {"evaluate_on_test": False}
    settings["data_loader"] = {"batch_sampler": {"type": "max_tokens_sampler", "max_tokens": 3}}
    train_model(Params(settings), str(tmp_path / "run"))
    written = tmp_path / "predictions.jsonl"
    archive, test = tmp_path / "run" / "model.tar.gz", settings["test_data_path"]
    evaluate_from_archive(archive, test, predictions_output_file=str(written))
    rows = [json.loads(line)["numbers"] for line in written.read_text().splitlines()]
    assert sorted(n for row in rows for n in row) == [1, 2, 3, 4, 5, 6, 7]
    assert told == ["Predictions are in the order of MaxTokensBatchSampler."]


def validated(settings: dict[str, Any], folder: Path) -> float:
    """Train on settings, and return the sum of the numbers of the validation data."""
    train_model(Params(copy.deepcopy(settings)), str(folder))
    return json.loads((folder / "metrics.json").read_text())["best_validation_sum"]


@pytest.mark.parametrize("rows", ["1 2 3 4 5 6 7", "5"])
def test_all_validation_data_are_read(rows: str, tmp_path: Path) -> None:
    """One row fills no batch of two, so AllenNLP would validate on nothing."""
    settings = config(tmp_path, drop_last=True)
    settings |= {"validation_data_path": settings["test_data_path"], "evaluate_on_test": False}
    Path(settings["test_data_path"]).write_text(rows)
    assert validated(settings, tmp_path / "run") == sum(map(int, rows.split()))
    settings["validation_data_loader"] = {"batch_size": 2, "drop_last": True}  # as it says itself
    if rows != "5":
        assert validated(settings, tmp_path / "own") == 21
        return
    with pytest.raises(ConfigurationError, match=r"validation data give no batches.*drop_last"):
        validated(settings, tmp_path / "own")


@pytest.mark.parametrize("kind", ["gradient_descent", "declutr"])
@pytest.mark.parametrize("loader", [{}, {"max_instances_in_memory": 2}])
@pytest.mark.parametrize("part", ["train", "validation"])
def test_data_without_a_batch_are_refused(
    part: str, loader: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    """A loader that reads anew in every epoch does not know before that there is nothing."""
    settings = config(tmp_path, **loader) | {"evaluate_on_test": False}
    settings["validation_data_path"] = settings["test_data_path"]
    settings["trainer"]["type"] = kind
    Path(settings[f"{part}_data_path"]).write_text("")
    word = {"train": "training"}.get(part, part)
    with pytest.raises(ConfigurationError, match=f"The {word} data give no batches"):
        train_model(Params(settings), str(tmp_path / "run"))
    assert not (tmp_path / "run" / "model.tar.gz").exists()


def test_a_validation_loss_that_the_model_does_not_give_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Identity.forward

    def forward(self: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = plain(self, x)
        return found if self.training else {"numbers": found["numbers"]}

    monkeypatch.setattr(Identity, "forward", forward)
    settings = config(tmp_path) | {"evaluate_on_test": False}
    settings["validation_data_path"] = settings["test_data_path"]
    told = "gives no loss for the validation data"
    train_model(Params(copy.deepcopy(settings)), str(tmp_path / "loss"))
    assert told in (tmp_path / "loss" / "out.log").read_text()
    settings["trainer"]["validation_metric"] = "+sum"
    train_model(Params(settings), str(tmp_path / "sum"))
    assert told not in (tmp_path / "sum" / "out.log").read_text()


def test_no_epochs_are_refused(tmp_path: Path) -> None:
    settings = config(tmp_path)
    settings["trainer"]["num_epochs"] = 0
    with pytest.raises(ConfigurationError, match=r"num_epochs is 0.*no_op"):
        train_model(Params(settings), str(tmp_path / "run"))


def test_a_trainer_may_be_its_type_alone(tmp_path: Path) -> None:
    settings = config(tmp_path) | {"trainer": "no_op", "evaluate_on_test": False}
    train_model(Params(settings), str(tmp_path / "run"))
    assert (tmp_path / "run" / "model.tar.gz").is_file()


def test_all_instances_of_several_tasks_are_evaluated(tmp_path: Path) -> None:
    for task in ("a", "b"):
        (tmp_path / f"{task}.txt").write_text("1 2 3 4 5 6 7")
    paths = {task: str(tmp_path / f"{task}.txt") for task in ("a", "b")}
    settings = config(tmp_path)
    settings |= {
        "dataset_reader": {
            "type": "multitask",
            "readers": {task: {"type": "numbers_of_tests"} for task in paths},
        },
        "model": {"type": "identity_of_tasks"},
        "data_loader": {
            "type": "multitask",
            "scheduler": {"batch_size": 2, "drop_last": True},
            "sampler": "uniform",
            "instances_per_epoch": 4,
        },
        "train_data_path": paths,
        "validation_data_path": paths,
        "test_data_path": paths,
    }
    assert validated(settings, tmp_path / "run") == 56
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["test_sum"] == 56
    found = evaluate_from_archive(tmp_path / "run" / "model.tar.gz", json.dumps(paths))
    assert found["sum"] == 56


def test_several_processes_are_refused_before_training(tmp_path: Path) -> None:
    nodes = {"cuda_devices": [-1], "num_nodes": 2, "primary_port": 29500}
    for distributed in ({"cuda_devices": [-1, -1]}, nodes):
        settings = {**config(tmp_path), "distributed": distributed}
        with pytest.raises(ConfigurationError, match="the test data of the first process alone"):
            train_model(Params(settings), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_metrics_of_files_of_one_name_are_all_returned(tmp_path: Path, bare: Any) -> None:
    train_model(Params(config(tmp_path)), str(tmp_path / "run"))
    archive, module = tmp_path / "run" / "model.tar.gz", bare("allennlp.commands.evaluate")
    files = {name: tmp_path / name for name in ("a/dev.txt", "b/dev.txt", "other.txt")}
    for number, file in enumerate(files.values()):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{number} 1")
    given = ",".join(map(str, files.values()))

    def sums(given: str) -> dict[str, float]:
        found = module.evaluate_from_archive(archive, given)
        return {name: value for name, value in found.items() if name.endswith("sum")}

    assert sums(given) == {"dev_sum": 2, "other_sum": 3}
    evaluation.metrics_of_files(module)
    assert sums(given) == {"a/dev.txt_sum": 1, "b/dev.txt_sum": 2, "other_sum": 3}
    assert sums(str(files["other.txt"])) == {"sum": 3}
    outputs = [tmp_path / f"{number}.json" for number in range(3)]
    module.evaluate_from_archive(archive, given, ",".join(map(str, outputs)))
    assert [json.loads(file.read_text())["sum"] for file in outputs] == [1, 2, 3]


@pytest.mark.parametrize(
    "files, names",
    [
        ("a.txt,b/c.txt", ["a", "c"]),
        ("a/dev.txt,b/dev.txt,test.txt", ["a/dev.txt", "b/dev.txt", "test"]),
        ("dev.txt,dev.json", ["dev.txt", "dev.json"]),
        ("a/x/dev.txt,b/x/dev.txt,dev.txt", ["a/x/dev.txt", "b/x/dev.txt", "dev.txt"]),
        ("/a/dev.txt,/dev.txt,/a/dev.gz", ["a/dev.txt", "/dev.txt", "a/dev.gz"]),
        ("dev.txt,dev.gz,a/dev.txt.gz", ["dev.txt", "dev.gz", "a/dev.txt.gz"]),
        ("a/dev.txt,a/dev.txt", ["dev", "dev"]),
        ('"a/dev.txt", {"x": "a/dev.txt"}, "1.txt"', ["dev", "1", "1.txt"]),
    ],
)
def test_files_are_told_apart_by_as_little_as_it_takes(files: str, names: list[str]) -> None:
    assert evaluation._names(files) == names


def test_null_is_no_data_where_a_vocabulary_is_made(bare: Any, tmp_path: Path) -> None:
    """So are validation data of a run of one process, which makes none of such a configuration."""
    file = tmp_path / "numbers.txt"
    file.write_text("1 2")

    def loaders(module: Any) -> dict[str, Any]:
        paths = {"validation_data_path": None, "test_data_path": None}
        config = {"dataset_reader": {"type": "numbers_of_tests"}, "data_loader": {"batch_size": 1}}
        return module.data_loaders_from_params(
            Params({**config, **paths, "train_data_path": str(file)})
        )

    module = bare("allennlp.training.util")
    with pytest.raises(TypeError, match="NoneType"):
        loaders(module)
    evaluation.given_data(module)
    assert loaders(module).keys() == {"train"}
