"""Fixtures that run commands with raised errors; `test_errors.py` tests their messages."""

import pytest

from declutr.commands.errors import TRACEBACK


@pytest.fixture(autouse=True)
def traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
