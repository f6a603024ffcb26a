"""Whatever a broken package does when it is imported, it is an answer, and the others follow."""

from pathlib import Path

import pytest

from declutr.bridge.switches import ADDITIONS, LENT, REPAIRS
from declutr.environment import probe
from declutr.environment.probe import Answer, examine

pytestmark = pytest.mark.slow  # each process takes a tenth of a second

BROKEN = {
    "fine": "print('hello \\x1e'); import sys; sys.stdout.write('no line end')",
    "raises": "raise RuntimeError('numpy.dtype size changed\\nsecond line')",
    "lacks": "import nowhere_at_all",
    "exits": "import sys; sys.exit('Please upgrade.')",
    "dies": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "import time; time.sleep(60)",
    "last": "",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in BROKEN.items():
        (tmp_path / f"broken_{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_broken_packages_are_answers() -> None:
    asked = [f"broken_{name}" for name in ("fine", "raises", "lacks", "exits", "dies", "last")]
    answers = examine(asked)
    assert list(answers) == asked
    fine, raises, lacks, exits, dies, last = answers.values()
    assert fine == last == Answer()
    assert raises.error == "RuntimeError: numpy.dtype size changed\nsecond line"
    assert lacks.error == "ModuleNotFoundError: No module named 'nowhere_at_all'"
    assert exits.error == "it ended the process with status 1: Please upgrade."
    assert dies.error == "it ended the process with signal 11"


def test_an_import_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_LIMIT", 3)
    answers = examine(["broken_hangs", "broken_last"])
    assert answers["broken_hangs"].error == "it did not end within 3 seconds"
    assert answers["broken_last"] == Answer()


def test_not_all_of_many_broken_packages_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_MOST_LOST", 1)
    answers = examine(["broken_dies", "broken_last"])
    assert answers["broken_last"].error == "not examined, because 1 processes ended before it"


def test_every_switch_of_the_bridge_is_told() -> None:
    answers = examine(["the bridge", "hub"])
    found = answers["the bridge"].value
    assert found["failed"] == []
    told = {switch for kind in ("acting", "not needed") for switch in found[kind]}
    switches = [*LENT.items(), *REPAIRS.items(), *ADDITIONS.items()]
    assert told == {f"{name}: {each.__name__}" for name, parts in switches for each in parts}
    assert set(answers["hub"].value) == {"folder", "endpoint", "offline"}
