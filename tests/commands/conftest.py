"""Commands as functions: errors are raised, and not told in words (`test_command.py`)."""

import pytest

from declutr.commands.command import TRACEBACK


@pytest.fixture(autouse=True)
def traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
