"""What is missing, too old or broken is a finding, with what to do about it."""

from pathlib import Path
from typing import Any

import pytest

from declutr._version import __version__
from declutr.environment import packages as module
from declutr.environment.findings import ERROR, OK, WARNING, Finding
from declutr.environment.packages import bridge, packages, questions
from declutr.environment.probe import Answer
from declutr.environment.requirements import Requirement

REQUIRED = {
    "allennlp": Requirement("allennlp", "==2.10.1", None, False),
    "torch": Requirement("torch", ">=2.6", "2.13.0", True),
    "numpy": Requirement("numpy", ">=2", "1.26.4", False),
    "spacy": Requirement("spacy", ">=3.8", "3.8.18", True),
}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    """The findings on an environment in which spacy is broken, by name."""

    def requirements(extra: str = "") -> list[Requirement]:
        return {"": [*REQUIRED.values()], "onnx": [], "search": [REQUIRED["numpy"]]}[extra]

    monkeypatch.setattr(module, "requirements", requirements)
    monkeypatch.setattr(module, "extras", lambda: ["onnx", "search"])
    monkeypatch.setattr(module, "installed", lambda name: __version__)
    answers = {"spacy": Answer(error="ValueError: numpy.dtype size changed\nmore")}
    return {finding.name: finding for finding in packages(answers)}


def test_packages_that_will_do_are_ok(found: dict[str, Finding]) -> None:
    assert found["torch"][2:5] == (OK, "2.13.0 (needs >=2.6)", None)
    assert found["python"].level == found["declutr"].level == OK


def test_packages_that_are_missing_or_too_old_are_errors(found: dict[str, Finding]) -> None:
    assert found["allennlp"][2:5] == (ERROR, "not installed, needs ==2.10.1", "declutr setup")
    assert found["numpy"][2:5] == (ERROR, "1.26.4, needs >=2", "declutr setup")


def test_a_package_that_cannot_be_imported_is_an_error(found: dict[str, Finding]) -> None:
    _, _, level, said, cure, _ = found["spacy"]
    assert level == ERROR and "ValueError: numpy.dtype size changed" in said and "\n" not in said
    assert cure is not None and "--force-reinstall 'spacy>=3.8'" in cure


def test_extras_are_told(found: dict[str, Finding]) -> None:
    said = "onnx installed; not: search (pip install 'declutr[NAME]')"
    assert found["extras"][2:4] == (OK, said)


def test_only_what_is_installed_is_imported_and_allennlp_last(monkeypatch: Any) -> None:
    there = REQUIRED["allennlp"]._replace(version="2.10.1")
    absent = Requirement("nltk", ">=3", None, False)
    listed = [there, *list(REQUIRED.values())[1:], absent]
    monkeypatch.setattr(module, "requirements", lambda: listed)
    assert questions() == ["torch", "numpy", "spacy", "allennlp"]


@pytest.mark.parametrize(
    "version, told", [(None, "it is not installed"), ("1.0", "but 1.0 is what is installed")]
)
def test_a_package_that_is_only_a_folder_is_told(version: Any, told: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "installed", lambda name: version)
    finding = module._declutr()
    assert finding.level == WARNING and told in finding.said and "pip install" in str(finding.cure)


SWITCHES = {"acting": ["a: one", "b: two"], "not needed": ["c: three"], "failed": []}


def test_switches_that_act_are_counted_and_others_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("DECLUTR_BRIDGE", raising=False)
    (tmp_path / "declutr_bridge.pth").touch()
    monkeypatch.syspath_prepend(tmp_path)
    switches, plain = bridge(Answer(SWITCHES))
    assert switches.said == "2 act, 1 are not needed here (c: three)"
    assert switches.details == SWITCHES and plain.level == OK


def test_a_switch_that_fails_is_an_error(monkeypatch: Any) -> None:
    monkeypatch.delenv("DECLUTR_BRIDGE", raising=False)
    monkeypatch.setattr(module, "_site_folders", lambda: set())
    _, failed, plain = bridge(Answer({**SWITCHES, "failed": ["allennlp.x: BridgeError: why"]}))
    assert failed[2:4] == (ERROR, "allennlp.x: BridgeError: why")
    assert plain.level == WARNING and "pip install" in str(plain.cure)


def test_without_allennlp_or_bridge_it_says_so(monkeypatch: Any) -> None:
    monkeypatch.setenv("DECLUTR_BRIDGE", "0")
    (off,) = bridge(Answer(SWITCHES))
    assert off.level == WARNING and off.cure == "unset DECLUTR_BRIDGE"
    monkeypatch.delenv("DECLUTR_BRIDGE")
    monkeypatch.setenv("DECLUTR_PLUGIN", "0")
    left_out, *_ = bridge(Answer(SWITCHES))
    assert left_out.level == WARNING and left_out.cure == "unset DECLUTR_PLUGIN"
    monkeypatch.delenv("DECLUTR_PLUGIN")
    (absent,) = bridge(Answer(error="ModuleNotFoundError: No module named 'allennlp'"))
    assert absent.level == ERROR and "No module named 'allennlp'" in absent.said
