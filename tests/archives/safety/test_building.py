"""AllenNLP imports nothing for a name and builds nothing oversized from untrusted archives."""

import contextlib
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
from torch.nn.modules.module import register_module_parameter_registration_hook

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
    """Write a module that creates a folder when it is imported; return the path of the folder."""
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
    """A class that takes an activation in each way that AllenNLP supports."""

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
def test_a_name_that_would_be_imported_is_refused(place: str, marker: Path) -> None:
    with (
        pytest.raises(UnsafeArchive, match=rf"An? Activation is '{NAME}', which AllenNLP would"),
        registered_names_only(),
    ):
        Holder.from_params(Params(PLACES[place]))
    assert not marker.exists()


def test_a_module_of_allennlp_does_not_import_either(marker: Path) -> None:
    config = {"input_dim": 1, "num_layers": 1, "hidden_dims": 1, "activations": [NAME]}
    with pytest.raises(UnsafeArchive, match=NAME), registered_names_only():
        FeedForward.from_params(Params(config))
    assert not marker.exists()


def test_a_string_argument_with_a_dot_is_kept(marker: Path) -> None:
    with registered_names_only():
        assert Holder.from_params(Params({"text": NAME})).text == NAME
    assert not marker.exists()


def test_names_are_imported_outside_the_context(marker: Path) -> None:
    with registered_names_only():
        pass
    Holder.from_params(Params({"one": NAME}))
    assert marker.exists()


def test_names_that_the_user_chose_are_imported(marker: Path) -> None:
    with registered_names_only({NAME}):
        with pytest.raises(UnsafeArchive, match=r"os\.system"):
            Holder.from_params(Params({"one": "os.system"}))
        Holder.from_params(Params({"one": NAME}))
    assert marker.exists()
    with pytest.raises(UnsafeArchive, match=NAME), registered_names_only():
        Holder.from_params(Params({"one": NAME}))


def test_other_threads_may_import(marker: Path) -> None:
    with registered_names_only():
        thread = threading.Thread(target=Holder.from_params, args=[Params({"one": NAME})])
        thread.start()
        thread.join()
    assert marker.exists()


@pytest.mark.parametrize("context", [untrusted, registered_names_only])
def test_contexts_nest_and_end_with_an_error(context: Any) -> None:
    assert not is_untrusted()
    with pytest.raises(KeyError), context():
        with context():
            assert is_untrusted()
        assert is_untrusted()
        raise KeyError
    assert not is_untrusted()
    Holder.from_params(Params({"one": NAME}))


def test_other_threads_are_not_untrusted() -> None:
    seen: list[bool] = []
    with untrusted():
        thread = threading.Thread(target=lambda: seen.append(is_untrusted()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_registered_names_work() -> None:
    assert is_registered("relu") and not is_registered(NAME)
    with registered_names_only():
        Holder.from_params(Params({"one": "relu", "lazy": {"type": "linear"}}))


def test_allennlp_reports_unknown_names_without_a_dot() -> None:
    with pytest.raises(ConfigurationError, match="nonsense"), registered_names_only():
        Holder.from_params(Params({"one": "nonsense"}))


def test_a_huge_module_is_refused_before_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.init, "normal_", lambda *_: pytest.fail("it was initialised"))
    message = r"of 1,600,000,000 bytes .*weight of Embedding, \(100000000, 4\)\), .* have 10 bytes"
    with pytest.raises(UnsafeArchive, match=message), parameters_in_proportion(10):
        torch.nn.Embedding(100_000_000, 4, device="meta")


def test_the_limit_grows_with_the_size_of_the_weights() -> None:
    with parameters_in_proportion(80_000_000):  # a twentieth of it
        torch.nn.Embedding(100_000_000, 4, device="meta")
    with parameters_in_proportion(0):
        torch.nn.Embedding(60_000_000, 4, device="meta")


@pytest.mark.parametrize(("limit", "raises"), [(50, True), (51, False)])
def test_the_number_of_parameters_is_limited(
    limit: int, raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "MAX_PARAMETERS", limit)
    refusal = pytest.raises(UnsafeArchive, match=r"asks for 51 parameters")
    with refusal if raises else contextlib.nullcontext(), parameters_in_proportion(0):
        torch.nn.ParameterList(torch.zeros(1) for _ in range(51))


def test_a_refusal_is_raised_even_if_code_replaced_its_error() -> None:
    with pytest.raises(UnsafeArchive, match="asks for 1 param"), parameters_in_proportion(0):
        try:
            torch.nn.Embedding(2**40, 4, device="meta")
        except ValueError as error:
            raise TypeError("no alternative fits") from error


def test_the_limit_applies_neither_to_other_threads_nor_afterwards() -> None:
    built: list[torch.nn.Module] = []

    def build() -> None:
        built.append(torch.nn.Embedding(2**40, 4, device="meta"))

    with parameters_in_proportion(0):
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    build()
    assert len(built) == 2


def test_other_threads_build_modules_while_a_limit_begins_and_ends() -> None:
    """As in a service that opens an encoder: torch loops over hooks, which must not change."""

    def limit() -> None:
        with parameters_in_proportion(0):
            pass

    def meanwhile(*_: object) -> None:
        thread = threading.Thread(target=limit)
        thread.start()
        thread.join()

    hooks = [register_module_parameter_registration_hook(meanwhile) for _ in range(2)]
    try:
        torch.nn.Linear(2, 2)
    finally:
        for hook in hooks:
            hook.remove()
