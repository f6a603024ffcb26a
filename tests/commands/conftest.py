"""Fixtures that run commands with raised errors; `test_errors.py` tests their messages."""

import io
import sys
from collections.abc import Callable

import pytest
from allennlp.commands import main

from declutr.commands.errors import TRACEBACK


@pytest.fixture(autouse=True)
def traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")


class _Stdin(io.TextIOWrapper):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that runs a command, given as words, and returns its output."""

    def command(*words: object, stdin: bytes = b"", terminal: bool = False) -> str:
        given = _Stdin(io.BytesIO(stdin), encoding="utf-8")
        given.terminal = terminal
        monkeypatch.setattr(sys, "argv", ["allennlp", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", given)
        capsys.readouterr()
        main()
        return capsys.readouterr().out

    return command
