"""Requirements come from the metadata of this package, and are compared with what is installed."""

import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import pytest

from declutr.environment import requirements as module
from declutr.environment.requirements import Requirement, extras, installed, requirements

REQUIRES = [
    "torch>=2.6",
    "numpy>=99",
    "declutr-absent>=1",
    "pytest>=7",
    'declutr-windows ; sys_platform == "win99"',
    'pytest ; extra == "test"',
    'declutr-absent ; extra == "search"',
]


@pytest.fixture
def requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_required", lambda: REQUIRES)


def test_requirements_are_compared_with_what_is_installed(requires: Any) -> None:
    found = {each.name: each for each in requirements()}
    assert list(found) == ["allennlp", "torch", "numpy", "declutr-absent", "pytest"]
    assert found["torch"].satisfied and found["torch"].version == metadata.version("torch")
    assert not found["numpy"].satisfied and found["numpy"].needs == ">=99"
    assert found["declutr-absent"].version is None and not found["declutr-absent"].satisfied
    assert str(found["allennlp"]) == "allennlp==2.10.1"


def test_extras_have_requirements_of_their_own(requires: Any) -> None:
    assert [each.name for each in requirements("test")] == ["pytest"]
    assert [each.satisfied for each in requirements("search")] == [False]


def test_without_an_installation_allennlp_is_all_that_is_known(monkeypatch: Any) -> None:
    def absent(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    for name in ("requires", "metadata", "version"):
        monkeypatch.setattr(metadata, name, absent)
    (only,) = requirements()
    assert only.name == "allennlp" and not only.satisfied
    assert extras() == [] and installed("torch") is None


def test_modules_are_named_as_they_are_imported() -> None:
    for name in ("scikit-learn", "jsonnet", "pytorch-metric-learning", "huggingface-hub"):
        assert find_spec(Requirement(name, "", None, False).module), name


def test_the_parser_of_pip_does_where_packaging_is_missing(monkeypatch: Any, requires: Any) -> None:
    pytest.importorskip("pip._vendor.packaging.requirements")
    before = requirements()
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert requirements() == before
