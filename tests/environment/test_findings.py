"""Findings are shown by section, worst things are counted, and errors become findings."""

from collections.abc import Iterator

from declutr.environment.findings import (
    ERROR,
    OK,
    WARNING,
    Finding,
    as_lines,
    first_line,
    guarded,
    summary,
    worst,
)

FINE = Finding("Packages", "torch", OK, "2.13.0")
SLOW = Finding("Disk", "here", WARNING, "little room", "make room")
LOST = Finding("Disk", "cache", ERROR, "no room", "make room")


def test_findings_are_shown_by_section_with_their_cure() -> None:
    assert list(as_lines([FINE, SLOW])) == [
        *("\nPackages", "  ok       torch: 2.13.0"),
        *("\nDisk", "  warning  here: little room", "           -> make room"),
    ]


def test_the_worst_is_told() -> None:
    assert worst([]) == OK and worst([FINE, SLOW]) == WARNING and worst([SLOW, LOST, FINE]) == ERROR
    assert summary([FINE]) == "All is well."
    assert summary([SLOW, LOST, SLOW]) == "1 error, 2 warnings."


def test_an_examination_that_fails_is_a_finding() -> None:
    def examine() -> Iterator[Finding]:
        yield FINE
        raise ZeroDivisionError("by\nzero")

    first, second = guarded("Packages", examine)
    assert first == FINE
    assert second.level == WARNING and second.said.endswith("ZeroDivisionError: by")


def test_long_messages_are_cut() -> None:
    assert first_line("") == "" and first_line("a\nb") == "a"
    assert len(first_line("x" * 1000)) == 160
