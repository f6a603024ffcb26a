"""Tables of a run, and what was unexpected in it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.allennlp_suites.expectations import Comparison, Expectation
from tests.allennlp_suites.rooms import Result


def table(rooms: Mapping[str, tuple[Sequence[Result], float]], comparison: Comparison) -> str:
    """Return a markdown table with a row for each room and one for each suite."""
    heads = ["room", "passed", "skipped", "excused", "unexpected", "minutes"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---|" * (len(heads) - 1)]
    for suite in dict.fromkeys(name.partition("/")[0] for name in rooms):
        parts = {name: rooms[name] for name in rooms if name.startswith(f"{suite}/")}
        lines += [_row(name, *part, comparison) for name, part in parts.items()]
        everything = [result for results, _ in parts.values() for result in results]
        seconds = sum(seconds for _, seconds in parts.values())
        lines.append(_row(f"**{suite}**", everything, seconds, comparison))
    return "\n".join(lines)


def _row(name: str, results: Sequence[Result], seconds: float, comparison: Comparison) -> str:
    outcomes = Counter(result.outcome for result in results)
    causes = Counter(
        comparison.excused[result.test].cause
        for result in results
        if result.test in comparison.excused
    )
    excused = ", ".join(f"{cause}: {count}" for cause, count in causes.most_common())
    unexpected = outcomes["failed"] - causes.total()
    cells = [name, outcomes["passed"], outcomes["skipped"]]
    cells += [f"{causes.total()} ({excused})" if causes else 0, unexpected, f"{seconds / 60:.1f}"]
    return f"| {' | '.join(map(str, cells))} |"


def causes(expectations: Sequence[Expectation]) -> str:
    """Return a markdown table of the causes of expected failures."""
    found: dict[str, list[str]] = {}
    for expectation in expectations:
        found.setdefault(expectation.cause, []).append(expectation.why)
    lines = [f"| {cause} | {' '.join(reasons)} |" for cause, reasons in found.items()]
    return "\n".join(["| cause | what it is |", "|---|---|", *lines])


def write_part(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and the next `<!-- end -->` of a page.

    # Raises

    `ValueError` : if the page has no such part.
    """
    before = page.read_text(encoding="utf-8")
    part = re.compile(f"(<!-- {re.escape(name)} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    if not part.search(before):
        raise ValueError(f"{page} has no line <!-- {name} --> with <!-- end --> below it.")
    page.write_text(part.sub(lambda match: f"{match[1]}{text}\n", before), encoding="utf-8")


def findings(comparison: Comparison) -> str:
    """Return a line for each thing that is not as expected."""
    lines = [
        f"failed unexpectedly: {result.test}\n    {(result.error.splitlines() or [''])[0][:200]}"
        for result in comparison.unexpected
    ]
    lines += [
        f"passed, though expected to fail ({expectation.cause}): {result.test}\n"
        "    take it out of the list of expected failures."
        for result, expectation in comparison.passing
    ]
    lines += [
        f"matches no test ({expectation.cause}): {pattern}\n"
        "    correct it in the list of expected failures, or take it out."
        for pattern, expectation in comparison.stale
    ]
    return "\n".join(lines)
