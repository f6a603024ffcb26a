"""Configurations say which names are of this package, in runs, archives and recipes."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Registrable
from allennlp.common.params import Params
from allennlp.data import DatasetReader
from allennlp.modules import TextFieldEmbedder

import declutr.plugin  # noqa: F401
from declutr.archives.carried import is_ours
from declutr.bridge import archives, configurations
from declutr.bridge.names import own_first
from declutr.bridge.own_names import CARRIED_NAMES, as_before, names_own, of_archive, spelt
from declutr.recipes import recipe_path
from tests.conftest import run_config


@pytest.fixture
def taken() -> Iterator[None]:
    """Two names of this package belong to another one."""
    bases: list[Any] = [DatasetReader, TextFieldEmbedder]
    for base, name in zip(bases, ("declutr", "mlm"), strict=True):
        base.register(name)(type("Theirs", (base,), {}))
    yield
    for base, name in zip(bases, ("declutr", "mlm"), strict=True):
        del Registrable._registry[base][name]


def types(config: Any) -> set[str]:
    """The types that a configuration names, and all other texts in places of objects."""
    if isinstance(config, list):
        return set().union(*map(types, config))
    if not isinstance(config, dict):
        return set()
    found = {config["type"]} if isinstance(config.get("type"), str) else set()
    return found.union(*map(types, config.values()))


def test_names_of_this_package_get_the_prefix() -> None:
    others: dict[str, Any] = {
        "distributed": {"cuda_devices": [0, 1], "ddp_accelerator": {"type": "fsdp"}},
        "trainer": {
            "type": "declutr",
            "callbacks": ["run_record", {"type": "exact_resume"}, {"type": "track_epoch_callback"}],
            "checkpointer": {"type": "atomic"},
            "optimizer": {"type": "adam"},
        },
    }
    config = run_config(Path("tiny"), Path("glue"), **others)
    before = json.dumps(config)
    new = spelt(config)
    assert json.dumps(config) == before
    assert types(new) == {
        *("declutr-declutr", "declutr-mlm", "declutr-pretrained_transformer_mlm"),
        *("declutr-exact_resume", "declutr-atomic", "declutr-fsdp"),
        *("nt_xent", "pretrained_transformer", "empty", "track_epoch_callback", "adam"),
    }
    assert new["trainer"]["callbacks"][0] == "declutr-run_record"
    assert new["train_data_path"] == "glue"  # a text that only looks like a name
    assert spelt(new) == new and as_before(new, config) == config


def test_a_run_of_an_earlier_release_is_the_same_run(request: Any) -> None:
    short, prefixed = {"reader": {"type": "glue"}}, {"reader": {"type": "declutr-glue"}}
    assert as_before(prefixed, short) == short and as_before(prefixed, prefixed) == prefixed
    # This release began it, with the reader of somebody else.
    begun = {"model": "declutr-declutr", "reader": {"type": "glue"}}
    now = {"model": "declutr-declutr", **prefixed}
    assert as_before(now, begun) == now != begun
    request.getfixturevalue("taken")
    assert as_before(prefixed, short) == prefixed


def test_names_of_others_stay(taken: None) -> None:
    config = run_config(Path("tiny"), Path("texts"))
    new = spelt(config)
    assert new["dataset_reader"]["type"] == "declutr" and new["model"]["type"] == "declutr-declutr"
    assert new["model"]["text_field_embedder"]["type"] == "mlm"
    with own_first():
        assert spelt(config)["dataset_reader"]["type"] == "declutr-declutr"


@pytest.mark.parametrize("wrong", ["nothing", "no.such.module", None, 3])
def test_what_cannot_be_built_is_left_to_allennlp(wrong: Any) -> None:
    config = {"model": {"type": wrong, "text_field_embedder": {"type": "mlm"}}, "trainer": ["mlm"]}
    assert spelt(config) == config


def test_configurations_of_others_are_the_same() -> None:
    config = {"model": {"type": "basic_classifier"}, "train_data_path": "x"}
    assert spelt(config) == config


def test_archives_of_earlier_releases_mean_our_classes(taken: None, tmp_path: Path) -> None:
    config = run_config(Path("tiny"), Path("texts"))
    assert of_archive(config, str(tmp_path)) == config  # of whoever has the names
    (tmp_path / CARRIED_NAMES).parent.mkdir()
    (tmp_path / CARRIED_NAMES).touch()
    new = of_archive(config, str(tmp_path))
    assert new["dataset_reader"]["type"] == "declutr-declutr"
    assert new["model"]["text_field_embedder"]["type"] == "declutr-mlm"
    mixed = {**config, "trainer": {"type": "declutr-declutr"}}  # of a release that writes prefixes
    assert of_archive(mixed, str(tmp_path)) == mixed


def test_archives_are_as_they_were_where_no_name_is_taken(tmp_path: Path) -> None:
    config = run_config(Path("tiny"), Path("texts"))
    (tmp_path / CARRIED_NAMES).parent.mkdir()
    (tmp_path / CARRIED_NAMES).touch()
    assert of_archive(config, str(tmp_path)) == config


def test_the_switch_for_archives(bare: Any, taken: None, tmp_path: Path) -> None:
    module = bare("allennlp.models.archival")
    (tmp_path / CARRIED_NAMES).parent.mkdir()
    (tmp_path / CARRIED_NAMES).touch()
    file = tmp_path / "config.json"
    file.write_text(json.dumps(run_config(Path("tiny"), Path("texts"))))
    assert module.Params.from_file(str(file))["dataset_reader"]["type"] == "declutr"
    archives.archived_names(module)
    assert module.Params.from_file(str(file))["dataset_reader"]["type"] == "declutr-declutr"
    assert type(pickle.loads(pickle.dumps(module.Params.from_file(str(file))))) is Params
    assert names_own(str(file)) and not names_own(str(tmp_path / "nothing"))


def test_the_switch_for_runs(bare: Any) -> None:
    module = bare("allennlp.commands.train")
    given: list[Any] = []
    module.train_model = lambda params, folder, recover=False: given.append(params.params)
    configurations.spelt_names(module)
    params = Params(run_config(Path("tiny"), Path("texts")))
    module.train_model(params, "out", recover=True)
    assert given[0]["model"]["type"] == "declutr-declutr" and params["model"]["type"] == "declutr"


def test_recipes_of_this_package_mean_its_classes(taken: None) -> None:
    config = Params.from_file(str(recipe_path("declutr"))).params
    assert config["dataset_reader"]["type"] == "declutr-declutr"


def test_a_model_of_others_is_not_ours(taken: None) -> None:
    reader = {"dataset_reader": {"type": "declutr"}}
    assert not is_ours(reader) and is_ours({"dataset_reader": {"type": "declutr-declutr"}})
    assert is_ours({"model": {"type": "declutr"}})
