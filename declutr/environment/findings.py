"""What an examination of the environment finds, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

OK, WARNING, ERROR = "ok", "warning", "error"


class Finding(NamedTuple):
    """One thing that was examined.

    # Parameters

    section : the heading under which it is shown.
    name : what was examined, such as `"torch"`.
    level : `OK`, `WARNING` or `ERROR`.
    said : what was found, in a few words.
    cure : what to do about it; a command where there is one.
    details : more of it for other programs, as JSON values.
    """

    section: str
    name: str
    level: str
    said: str
    cure: str | None = None
    details: dict[str, Any] | None = None


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level of some findings; `OK` for none."""
    levels = {finding.level for finding in findings}
    return next((level for level in (ERROR, WARNING) if level in levels), OK)


def guarded(section: str, examine: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a function; an exception is a finding of its own."""
    try:
        yield from examine()
    except Exception as error:
        said = f"this could not be examined: {type(error).__name__}: {first_line(error)}"
        yield Finding(section, "examination", WARNING, said)


def first_line(error: BaseException | str) -> str:
    """Return the first line of the message of an error, shortened to what fits on two lines."""
    line = next(iter(str(error).strip().splitlines()), "")
    return line if len(line) <= 160 else f"{line[:157]}..."


def as_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the lines of findings for people, with a heading for each section."""
    section = None
    for finding in findings:
        if finding.section != section:
            section = finding.section
            yield f"\n{section}"
        yield f"  {finding.level:<8} {finding.name}: {finding.said}"
        if finding.cure:
            yield f"           -> {finding.cure}"


def summary(findings: Iterable[Finding]) -> str:
    """Return one sentence on the number of errors and warnings."""
    levels = [finding.level for finding in findings]
    counted = []
    for level in (ERROR, WARNING):
        count = levels.count(level)
        if count:
            counted.append(f"{count} {level}{'s' if count > 1 else ''}")
    return f"{', '.join(counted) or 'All is well'}."
