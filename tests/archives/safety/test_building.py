"""Inside the contexts AllenNLP imports nothing for a name, and builds nothing out of proportion."""

import sys
import threading
from pathlib import Path
from typing import Any, Union

import pytest
import torch
from allennlp.common import FromParams, Lazy, Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward
from allennlp.nn import Activation

from declutr.archives.safety import (
    UnsafeArchive,
    building,
    parameters_in_proportion,
    registered_names_only,
)
from declutr.archives.safety.building import is_registered, is_untrusted, untrusted

NAME = "hostile_module.Activation"


@pytest.fixture(autouse=True)
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that can be imported and leaves a mark when it is."""
    mark = tmp_path / "marker"
    (tmp_path / "hostile_module.py").write_text(
        "import pathlib\nfrom allennlp.nn.activations import Activation as Base\n"
        f"pathlib.Path({str(mark)!r}).mkdir(exist_ok=True)\n"
        "class Activation(Base):\n    def __call__(self, tensor):\n        return tensor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("hostile_module", None)


class Holder(FromParams):
    """Takes an activation in the ways that AllenNLP knows."""

    def __init__(
        self,
        one: Activation = None,  # type: ignore[assignment]
        lazy: Lazy[Activation] = None,  # type: ignore[assignment]
        either: Union[Activation, int] = 1,
        text: Union[Activation, str] = "",
    ) -> None:
        self.text = text
        if lazy is not None:
            lazy.construct()


PLACES: dict[str, Any] = {
    "type": {"one": {"type": NAME}},
    "bare string": {"one": NAME},
    "lazy": {"lazy": {"type": NAME}},
    "lazy bare string": {"lazy": NAME},
    "in a union": {"either": NAME},
}


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_imported(place: str, marker: Path) -> None:
    with (
        pytest.raises(UnsafeArchive, match=rf"An? Activation is '{NAME}', which AllenNLP would"),
        registered_names_only(),
    ):
        Holder.from_params(Params(PLACES[place]))
    assert not marker.exists()


def test_a_part_of_allennlp(marker: Path) -> None:
    config = {"input_dim": 1, "num_layers": 1, "hidden_dims": 1, "activations": [NAME]}
    with pytest.raises(UnsafeArchive, match=NAME), registered_names_only():
        FeedForward.from_params(Params(config))
    assert not marker.exists()


def test_texts_with_a_dot_are_texts(marker: Path) -> None:
    with registered_names_only():
        assert Holder.from_params(Params({"text": NAME})).text == NAME
    assert not marker.exists()


def test_it_is_a_feature_elsewhere(marker: Path) -> None:
    with registered_names_only():
        pass
    Holder.from_params(Params({"one": NAME}))
    assert marker.exists()


def test_other_threads_are_left_alone(marker: Path) -> None:
    with registered_names_only():
        thread = threading.Thread(target=Holder.from_params, args=[Params({"one": NAME})])
        thread.start()
        thread.join()
    assert marker.exists()


def test_what_is_built_inside_is_untrusted() -> None:
    with registered_names_only():
        assert is_untrusted()
    assert not is_untrusted()


def test_it_ends_with_an_error_and_nests() -> None:
    with pytest.raises(KeyError), registered_names_only(), registered_names_only():
        raise KeyError
    assert not is_untrusted()
    Holder.from_params(Params({"one": NAME}))


def test_registered_names_work() -> None:
    assert is_registered("relu") and not is_registered(NAME)
    with registered_names_only():
        Holder.from_params(Params({"one": "relu", "lazy": {"type": "linear"}}))


def test_unknown_names_without_a_dot_are_allennlps_matter() -> None:
    with pytest.raises(ConfigurationError, match="nonsense"), registered_names_only():
        Holder.from_params(Params({"one": "nonsense"}))


def test_inside_and_outside() -> None:
    assert not is_untrusted()
    with untrusted():
        with untrusted():
            assert is_untrusted()
        assert is_untrusted()
    assert not is_untrusted()


def test_errors_end_it() -> None:
    with pytest.raises(KeyError), untrusted():
        raise KeyError
    assert not is_untrusted()


def test_other_threads_are_outside() -> None:
    seen: list[bool] = []
    with untrusted():
        thread = threading.Thread(target=lambda: seen.append(is_untrusted()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_giant_is_refused_before_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.init, "normal_", lambda *_: pytest.fail("it was initialised"))
    message = r"of 1,600,000,000 bytes .*weight of Embedding, \(100000000, 4\)\), .* have 10 bytes"
    with pytest.raises(UnsafeArchive, match=message), parameters_in_proportion(10):
        torch.nn.Embedding(100_000_000, 4, device="meta")


def test_weights_allow_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    with parameters_in_proportion(100_000_000):
        torch.nn.Embedding(100_000_000, 4, device="meta")
    with parameters_in_proportion(0):
        torch.nn.Embedding(60_000_000, 4, device="meta")


def test_many_small_ones() -> None:
    with pytest.raises(UnsafeArchive, match=r"asks for 51 parameters"):
        _build_many(50)
    _build_many(51)


def _build_many(limit: int) -> None:
    before = building.MAX_PARAMETERS
    building.MAX_PARAMETERS = limit
    try:
        with parameters_in_proportion(0):
            torch.nn.ParameterList(torch.zeros(1) for _ in range(51))
    finally:
        building.MAX_PARAMETERS = before


def test_an_error_that_was_swallowed_is_told() -> None:
    with pytest.raises(UnsafeArchive, match="asks for 1 param"), parameters_in_proportion(0):
        try:
            torch.nn.Embedding(2**40, 4, device="meta")
        except ValueError as error:
            raise TypeError("no alternative fits") from error


def test_other_threads_and_later_ones_are_free() -> None:
    built: list[torch.nn.Module] = []

    def build() -> None:
        built.append(torch.nn.Embedding(2**40, 4, device="meta"))

    with parameters_in_proportion(0):
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    build()
    assert len(built) == 2
