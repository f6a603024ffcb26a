"""Failures that are expected, each with its cause, and what differs from them in a run."""

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.allennlp_suites.rooms import Result

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it there
    import tomli as tomllib

KEYS = {"cause", "why", "tests", "transformers", "missing", "sometimes"}


@dataclass
class Expectation:
    """Tests that fail for one cause.

    # Parameters

    cause : a word or two, which a column of the table counts.
    why : the whole reason, in a sentence.
    tests : ids of tests, in which `*` is any text.
    transformers : the major release that this is about, or 0 for each.
    missing : a package without which they fail; where it is installed, they must pass.
    sometimes : whether they also pass at times.
    """

    cause: str
    why: str
    tests: list[str]
    transformers: int = 0
    missing: str = ""
    sometimes: bool = False

    def holds(self, transformers: int) -> bool:
        """Return whether it is about this environment."""
        here = self.transformers in (0, transformers)
        return here and not (self.missing and importlib.util.find_spec(self.missing))


@dataclass
class Comparison:
    """What a run came to beside what was expected."""

    excused: dict[str, Expectation] = field(default_factory=dict)
    unexpected: list[Result] = field(default_factory=list)
    passing: list[tuple[Result, Expectation]] = field(default_factory=list)
    stale: list[tuple[str, Expectation]] = field(default_factory=list)

    @property
    def as_expected(self) -> bool:
        """Whether each failure was expected, and everything expected failed."""
        return not (self.unexpected or self.passing or self.stale)


def read_expectations(file: Path) -> list[Expectation]:
    """Read a list of expected failures.

    # Raises

    `ValueError` : if an entry lacks its cause, reason or tests, or has a key that is none.
    """
    found = []
    for entry in tomllib.loads(file.read_text(encoding="utf-8")).get("failures", []):
        unknown, lacking = set(entry) - KEYS, {"cause", "why", "tests"} - set(entry)
        if unknown or lacking:
            wrong = f"unknown: {sorted(unknown)}" if unknown else f"missing: {sorted(lacking)}"
            raise ValueError(f"{file}, entry {entry.get('cause', entry)!r}: {wrong} of its keys.")
        found.append(Expectation(**entry))
    return found


def compare(
    results: Iterable[Result],
    expectations: Iterable[Expectation],
    *,
    transformers: int,
    rooms: Iterable[str],
) -> Comparison:
    """Compare results with expectations.

    # Parameters

    results : those of the rooms that ran.
    expectations : all that there are.
    transformers : the major release they ran with.
    rooms : the rooms that ran wholly, as `allennlp/data`: patterns of others cannot be stale.
    """
    found, results = Comparison(), list(results)
    patterns = [
        (pattern, re.compile(re.escape(pattern).replace(r"\*", ".*")), expectation)
        for expectation in expectations
        if expectation.holds(transformers)
        for pattern in expectation.tests
    ]
    met: set[str] = set()
    for result in results:
        matches = [entry for entry in patterns if entry[1].fullmatch(result.test)]
        met.update(pattern for pattern, *_ in matches)
        if result.outcome == "failed" and matches:
            found.excused[result.test] = matches[0][2]
        elif result.outcome == "failed":
            found.unexpected.append(result)
        elif result.outcome == "passed":
            surprising = [entry[2] for entry in matches if not entry[2].sometimes]
            found.passing += [(result, expectation) for expectation in surprising[:1]]
    ran = tuple(_prefix(room) for room in rooms)
    found.stale = [
        (pattern, expectation)
        for pattern, _, expectation in patterns
        if pattern not in met and pattern.startswith(ran)
    ]
    return found


def _prefix(room: str) -> Any:
    suite, _, part = room.partition("/")
    return f"{suite}/tests/{part}"
