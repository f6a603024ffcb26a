"""Commands as functions: errors are raised, and not told in words (`test_user_errors.py`)."""

import pytest

from declutr.commands.user_errors import TRACEBACK


@pytest.fixture(autouse=True)
def traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
