"""Fixtures that run commands with raised errors; `test_command.py` tests their messages."""

import pytest

from declutr.commands.command import TRACEBACK


@pytest.fixture(autouse=True)
def traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
