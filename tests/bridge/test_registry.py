"""Names of this package yield to those of others, and stay reachable with their prefix."""

import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import Params
from allennlp.data import DatasetReader
from allennlp.models import Model

import declutr.plugin  # noqa: F401
from declutr.bridge import registry
from declutr.bridge.names import Names, own_first
from declutr.bridge.registry import any_taken, own_name
from declutr.objectives import Objective, Triplet
from declutr.task_models.glue import GlueReader


@pytest.fixture
def theirs() -> Iterator[type]:
    """A reader of another package that takes the name "glue"."""

    @DatasetReader.register("glue")
    class Theirs(DatasetReader):
        pass

    yield Theirs
    del Registrable._registry[DatasetReader]["glue"]
    assert DatasetReader.by_name("glue") is GlueReader and not any_taken()


def test_the_bare_registry_refuses_a_taken_name(bare: Any) -> None:
    """What the switch is for: without it, AllenNLP refuses the name and lists no prefixed one."""
    module = bare("allennlp.common.registrable")

    class Base(module.Registrable):  # type: ignore[name-defined,misc]
        pass

    known = {"glue": (GlueReader, None)}
    names = Names("allennlp.a:Base", known, {"glue": "declutr.task_models.glue.reader:GlueReader"})
    module.Registrable._registry[Base] = names
    with pytest.raises(module.ConfigurationError, match="Cannot register glue"):
        Base.register("glue")(dict)
    assert "declutr-glue" not in Base.list_available()
    assert registry.yielding_names(module) and not registry.yielding_names(module)
    assert Base.register("glue")(dict) is dict and Base.by_name("glue") is dict
    assert "declutr-glue" in Base.list_available()


def test_whoever_else_registers_a_name_gets_it(theirs: type) -> None:
    assert DatasetReader.by_name("glue") is theirs and any_taken()
    assert DatasetReader.by_name("declutr-glue") is GlueReader
    params = Params({"type": "declutr-glue", "task": "mrpc", "combine": False})
    assert type(DatasetReader.from_params(params)) is GlueReader
    with pytest.raises(ConfigurationError, match="name already in use for Theirs"):
        DatasetReader.register("glue")(theirs)  # two others are no concern of this package


def test_a_name_that_is_replaced_for_a_while_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = Registrable._registry[DatasetReader]
    with monkeypatch.context() as patched:
        patched.setitem(registered, "glue", (Model, None))
        assert DatasetReader.by_name("glue") is Model
    assert DatasetReader.by_name("glue") is GlueReader and not any_taken()
    with mock.patch.dict(registered, {"glue": (Model, None)}):  # deletes all, and sets them anew
        assert DatasetReader.by_name("glue") is Model
    for name in ("glue", "declutr-glue"):
        assert DatasetReader.by_name(name) is GlueReader
    del registered["glue"]
    assert "glue" not in registered and DatasetReader.by_name("declutr-glue") is GlueReader
    registered["glue"] = (GlueReader, None)
    assert DatasetReader.by_name("glue") is GlueReader and not any_taken()


def test_a_prefixed_name_is_listed_only_where_the_short_one_is_taken(theirs: type) -> None:
    listed = DatasetReader.list_available()
    assert {"glue", "declutr-glue", "sentences"} <= set(listed)
    assert not {"declutr-sentences", "declutr-declutr"} & set(listed)
    assert "declutr-sentences" in listed and "declutr-nothing" not in listed
    with own_first():
        assert not {"declutr-glue"} & set(DatasetReader.list_available())
        assert DatasetReader.by_name("glue") is GlueReader
    with own_first("allennlp.models."):
        assert DatasetReader.by_name("glue") is theirs


def test_a_name_that_was_taken_first_stays_so() -> None:
    place = "allennlp.data.dataset_readers.dataset_reader:DatasetReader"
    others = {"glue": (Model, None), "sentences": (GlueReader, None), "theirs": (Model, None)}
    names = Names(place, others, {"glue": "declutr.task_models.glue.reader:GlueReader"})
    assert names["glue"] == (Model, None) and names.taken == {"glue"}
    assert list(names) == ["glue", "sentences", "theirs", "declutr-glue"]
    own = {"glue": (GlueReader, None)}  # registered before the registry was extended
    names = Names(place, own, {"glue": "declutr.task_models.glue.reader:GlueReader"})
    assert names.imported == {"glue": (GlueReader, None)} and not own and not names.taken


def test_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    names = Names("allennlp.models.model:Model", {}, {"declutr": "declutr.models.declutr:DeCLUTR"})
    with caplog.at_level(logging.INFO, logger="declutr.bridge"):
        names["declutr"] = names["declutr"] = (Model, None)
    assert caplog.messages == [
        "'declutr' is now allennlp.models.model.Model, and also a name of declutr, which stays "
        "reachable as 'declutr-declutr'"
    ]


def test_nobody_else_registers_a_prefixed_name() -> None:
    with pytest.raises(ConfigurationError, match=r"Cannot register 'declutr-reclaim': names that"):
        Model.register("declutr-reclaim", exist_ok=True)(Model)


def test_names_of_our_own_base_classes_are_not_yielded() -> None:
    with pytest.raises(ConfigurationError, match="name already in use for Triplet"):
        Objective.register("triplet")(Objective)
    assert Objective.by_name("triplet") is Triplet is Objective.by_name("declutr-triplet")


def test_which_names_are_ours(theirs: type) -> None:
    assert own_name("DatasetReader", "glue") is None
    assert own_name("DatasetReader", "declutr-glue") == "glue"
    assert own_name("Model", "declutr") == "declutr" and own_name("Model", "augmented") is None
    assert own_name("Model", None) is None
