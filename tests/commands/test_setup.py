"""`declutr setup` says what it does before it does it."""

from typing import Any

import pytest

from declutr.commands import setup
from declutr.environment.installation import InstallationError

COMMANDS = [["pip", "install", "numpy>=2"], ["pip", "install", "--no-deps", "allennlp==2.10.1"]]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands that were carried out."""
    monkeypatch.delenv("DECLUTR_TRACEBACK", raising=False)
    done: list[Any] = []
    monkeypatch.setattr(setup, "plan", lambda: COMMANDS)
    monkeypatch.setattr(setup, "carry_out", done.append)
    monkeypatch.setattr(setup, "require_imports", lambda: done.append("imported"))
    return done


def test_commands_are_printed_run_and_tried(done: list[Any], capsys: Any) -> None:
    setup.main([])
    assert done == [*COMMANDS, "imported"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["pip install 'numpy>=2'", "pip install --no-deps allennlp==2.10.1"]
    assert lines[2].startswith("AllenNLP 2.10.1 is installed and can be imported.")


def test_a_dry_run_only_prints(done: list[Any], capsys: Any) -> None:
    setup.main(["--dry-run"])
    assert done == [] and len(capsys.readouterr().out.splitlines()) == 2


def test_twice_is_harmless(done: list[Any], capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(setup, "plan", lambda: [])
    setup.main([])
    assert done == [] and "nothing to do" in capsys.readouterr().out


def test_an_environment_that_cannot_be_changed_is_one_line(done: Any, capsys, monkeypatch) -> None:
    def refused() -> None:
        raise InstallationError("It cannot be written.")

    monkeypatch.setattr(setup, "plan", refused)
    with pytest.raises(SystemExit) as end:
        setup.main([])
    assert end.value.code == 2
    assert capsys.readouterr().err == "declutr setup: It cannot be written.\n"
