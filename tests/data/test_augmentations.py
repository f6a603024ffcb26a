"""Tests of augmentations that call a function of the user."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.data.augmentations import Augmentation

MODULE = """
import numpy as np

FROZEN = {"a text": "ein Text"}

def translated(text):
    return FROZEN.get(text, text)

def shuffled(text, rng):
    return " ".join(rng.permutation(text.split()).tolist())

def broken(text):
    return text.split()

class Table:
    def find(self, text):
        return text.upper()

table = Table()
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_augmentations.py").write_text(MODULE)
    (tmp_path / "own_needs.py").write_text("import something_else_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)


def calling(function: str, **options: bool) -> Augmentation:
    return Augmentation.from_params(
        Params({"type": "callable", "function": f"own_augmentations:{function}", **options})
    )


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.usefixtures("own_module")
def test_a_function_of_a_text_is_called() -> None:
    assert calling("translated")("a text", rng()) == "ein Text"
    assert calling("table.find")("a text", rng()) == "A TEXT"


@pytest.mark.usefixtures("own_module")
def test_a_function_that_draws_gets_the_generator() -> None:
    augmentation = calling("shuffled", random=True)
    once = augmentation("a b c d e f g h", rng())
    assert once != "a b c d e f g h" and sorted(once) == sorted("a b c d e f g h")
    sent = pickle.loads(pickle.dumps(augmentation))  # A worker gets a copy of a used augmentation.
    assert sent("a b c d e f g h", rng()) == once


def test_nothing_is_imported_before_the_first_text() -> None:
    """An archive names the function too, and a machine that only embeds may not have it."""
    augmentation = Augmentation.from_params(
        Params({"type": "callable", "function": "no_such_module.inside:function"})
    )
    with pytest.raises(
        ConfigurationError, match=r"No module 'no_such_module\.inside'.*inside\.py in"
    ):
        augmentation("a text", rng())


def test_a_module_in_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "augmentations_of_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    augmentation = Augmentation.by_name("callable")("augmentations_of_here:translated")
    assert augmentation("a text", rng()) == "ein Text"


@pytest.mark.usefixtures("own_module")
def test_a_missing_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'own_augmentations:nothing' does not exist: mod"):
        calling("nothing")("a text", rng())
    with pytest.raises(ConfigurationError, match="to be a function, got dict"):
        calling("FROZEN")("a text", rng())
    with pytest.raises(ModuleNotFoundError, match="something_else_that_is_missing"):
        Augmentation.by_name("callable")("own_needs:function")("a text", rng())


@pytest.mark.usefixtures("own_module")
def test_a_result_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="return a string, got list for the text 'a text'"):
        calling("broken")("a text", rng())


@pytest.mark.parametrize("name", ["function", ":function", "module:", ""])
def test_names_of_another_form_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'module:function', got '{name}'"):
        Augmentation.from_params(Params({"type": "callable", "function": name}))


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(("function", "random"), [("shuffled", False), ("translated", True)])
def test_a_function_of_other_arguments_is_refused(function: str, random: bool) -> None:
    with pytest.raises(ConfigurationError, match=rf"{function}' cannot be called.*Set random to"):
        calling(function, random=random)("a text", rng())
