"""A plugin of pytest that appends the outcome of each test to the file `$SUITE_RESULTS`.

It stands in a process that runs the tests of another repository, so it imports nothing of ours.
A line is a JSON object: `test`, `outcome` (passed, failed, skipped or deselected), `seconds`,
`error`. Parts of the package `$SUITE_PACKAGE` are imported first, as they are where a whole suite
is collected: tests of one part name models of another.
"""

import importlib
import json
import os
import pkgutil
from contextlib import suppress
from typing import Any

_parts: dict[str, dict[str, Any]] = {}


def pytest_configure() -> None:
    package = importlib.import_module(os.environ["SUITE_PACKAGE"])
    for part in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        with suppress(Exception):  # tests that need the part will tell
            importlib.import_module(part.name)


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _append({"test": report.nodeid, "outcome": "failed", "seconds": 0, "error": _error(report)})


def pytest_deselected(items: Any) -> None:
    """Note tests that `-k` and `-m` leave out, which are there all the same."""
    for item in items:
        _append({"test": item.nodeid, "outcome": "deselected", "seconds": 0, "error": ""})


def pytest_runtest_logreport(report: Any) -> None:
    """Merge setup, call and teardown, of which each comes alone, into one outcome."""
    found = _parts.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "error": ""})
    found["seconds"] += report.duration
    if report.outcome != "passed" and found["outcome"] == "passed":
        found |= {"outcome": report.outcome, "error": _error(report)}
    if report.when == "teardown":
        _append({"test": report.nodeid, **_parts.pop(report.nodeid)})


def _error(report: Any) -> str:
    """Return what went wrong: the type and message of the exception."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)[:500]
    if isinstance(report.longrepr, tuple):  # path, line and reason of a skipped test
        return str(report.longrepr[2])
    return (str(report.longrepr).strip().splitlines() or [""])[-1]


def _append(line: dict[str, Any]) -> None:
    with open(os.environ["SUITE_RESULTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
