"""Inside the context AllenNLP imports nothing for a name, wherever the name stands."""

import sys
import threading
from pathlib import Path
from typing import Any, Union

import pytest
from allennlp.common import FromParams, Lazy, Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward
from allennlp.nn import Activation

from declutr.archives.safety import UnsafeArchive, registered_names_only
from declutr.archives.safety.registered_names import is_registered
from declutr.system.untrusted_parts import is_untrusted

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
