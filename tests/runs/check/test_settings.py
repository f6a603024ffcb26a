"""Every effective setting of a configuration, and every wrong key with the nearest right one."""

from typing import Any

import pytest
from allennlp.common.params import with_overrides

import declutr.plugin  # noqa: F401
from declutr.runs.check.settings import walk_through

EMBEDDER = {"type": "pretrained_transformer_mlm", "model_name": "x"}
CONFIG: dict[str, Any] = {
    "dataset_reader": {"type": "declutr", "num_anchors": 2},
    "train_data_path": "docs.txt",
    "model": {
        "type": "declutr",
        "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": EMBEDDER}},
        "loss": {"type": "nt_xent", "temperature": 0.1},
    },
    "data_loader": {"type": "declutr", "batch_size": 8},
    "trainer": {
        "type": "declutr",
        "optimizer": {"type": "huggingface_adamw", "lr": 1e-4},
        "callbacks": [{"type": "run_record"}],
    },
}


def changed(**changes: Any) -> dict[str, Any]:
    """The configuration with keys of dotted paths, in which `__` stands for a dot."""
    return with_overrides(CONFIG, {path.replace("__", "."): v for path, v in changes.items()})


def found(**changes: Any) -> dict[str, str]:
    return {one.path: one.message for one in walk_through(changed(**changes)).findings}


def test_settings_have_the_defaults_of_the_constructors() -> None:
    walk = walk_through(CONFIG)
    settings = {one.path: one for one in walk.settings}
    assert walk.findings == []
    assert settings["model.loss.temperature"].value == 0.1
    assert settings["model.loss.temperature"].default_of is None
    assert settings["model.loss.reduction"].value == "mean"
    assert settings["model.loss.reduction"].default_of == "NTXent"
    assert settings["trainer.num_epochs"].value == 20  # of AllenNLP
    assert settings["trainer.read_every"].default_of == "DeCLUTRTrainer"
    assert settings["trainer.callbacks.0.validate_start"].value is True
    assert settings["random_seed"].value == 13370
    assert "model.vocab" not in settings, "AllenNLP gives it"
    assert "dataset_reader.manual_distributed_sharding" not in settings, "no key of this reader"


def test_a_type_that_is_not_given_is_the_default_of_its_class() -> None:
    config = changed(data_loader={"batch_size": 4})
    settings = {one.path: one for one in walk_through(config).settings}
    assert settings["data_loader.type"].value == "multiprocess"
    assert settings["data_loader.type"].default_of == "DataLoader"


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("model.loss.temprature", "temperature"),
        ("dataset_reader.max-span-len", "max_span_len"),
        ("trainer.callbacks.0.validate_strt", "validate_start"),
        ("trainer.num_epoch", "num_epochs"),
        ("trainer.read_evry", "read_every"),
        ("validation_data", "validation_data_path"),
        ("trainer.optimizer.weight_deca", "weight_decay"),
    ],
)
def test_a_wrong_key_is_named_with_the_nearest(path: str, near: str) -> None:
    messages = found(**{path.replace(".", "__"): 1})
    assert list(messages) == [path]
    assert f"has no such key. Did you mean '{near}'? It takes " in messages[path]
    assert "vocab" not in messages[path].partition(" It takes ")[2].split(", ")


def test_a_key_of_another_part_is_sent_there() -> None:
    messages = found(trainer__batch_size=8)
    assert "It is a key of data_loader: move it there." in messages["trainer.batch_size"]


def test_an_unknown_type_is_named_with_the_nearest_and_looked_into() -> None:
    messages = found(model__loss={"type": "nt_xnt", "temprature": 1})
    told = "'nt_xnt' is not a registered Objective. Did you mean 'nt_xent'?"
    assert told in messages["model.loss.type"]
    assert "Did you mean 'temperature'?" in messages["model.loss.temprature"]


def test_values_of_other_kinds_are_wrong() -> None:
    wrong = {"trainer__num_epochs": 2.5, "trainer__callbacks": "run_record", "model__loss": 3}
    assert found(data_loader__batch_size="8", **wrong) == {
        "data_loader.batch_size": "Expected a whole number, got '8'.",
        "trainer.num_epochs": "Expected a whole number, got 2.5.",
        "trainer.callbacks": "Expected a list, got 'run_record'.",
        "model.loss": "Expected an object for Objective, got 3.",
    }


def test_a_list_of_numbers_is_one_setting() -> None:
    settings = walk_through(changed(trainer__optimizer__betas=[0.9, 0.98])).settings
    assert [one.value for one in settings if "betas" in one.path] == [[0.9, 0.98]]
    assert list(found(trainer__optimizer__betas=[0.9, "x"])) == ["trainer.optimizer.betas.1"]


def test_a_class_that_cannot_be_imported_is_found() -> None:
    messages = found(model__loss={"type": "nowhere.at.All"})
    assert "unable to import module nowhere.at" in messages["model.loss.type"]


def test_a_missing_key_is_found() -> None:
    config = changed()
    del config["model"]["text_field_embedder"], config["train_data_path"]
    findings = {one.path: one.message for one in walk_through(config).findings}
    assert findings == {
        "model.text_field_embedder": "DeCLUTR needs this key, which is missing: set it.",
        "train_data_path": "TrainModel needs this key, which is missing: set it.",
    }


def test_kinds_of_which_one_fits_are_right() -> None:
    for compile in (True, {"dynamic": False}):
        config = changed(model__text_field_embedder__token_embedders__tokens__compile=compile)
        assert walk_through(config).findings == []
    assert found(trainer__validation_metric=["+a", "-b"]) == {}
    assert list(found(trainer__validation_metric=3)) == ["trainer.validation_metric"]


def test_keys_of_several_processes_are_known() -> None:
    assert found(distributed={"cuda_devices": [0, 1], "ddp_accelerator": {"type": "fsdp"}}) == {}
    assert list(found(distributed={"cuda_device": [0, 1]})) == ["distributed.cuda_device"]
