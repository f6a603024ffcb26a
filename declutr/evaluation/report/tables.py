"""Tables and their cells, in Markdown and for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from declutr.evaluation.report.comparison import Cell, Difference


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Words on the left, numbers on the right."""
    numbers = [all(_is_number(row[column]) for row in rows) for column in range(len(header))]
    marks = ["---:" if number else "---" for number in numbers]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def _is_number(cell: str) -> bool:
    return bool(re.match(r"\**[-+−]?\d|failed|–|lacks|not a number|$", cell))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    ]


def text(words: str) -> str:
    """Words in a table: on one line, with no bar that would end a cell."""
    return " ".join(words.split()).replace("|", "\\|")


def bold(cell: str, wanted: bool) -> str:
    """A cell, bold where that is wanted."""
    return f"**{cell}**" if wanted else cell


def percent(cell: Cell) -> str:
    """A score in percent, with half the width of its interval."""
    if not math.isfinite(cell.value):
        return "not a number"
    half = cell.half_width
    return f"{cell.value:.2f}" + (f" ± {half:.2f}" if half is not None else "")


def plain(cell: Cell | None) -> str:
    """A number that need not be in percent."""
    if cell is None:
        return "–"
    if not math.isfinite(cell.value):
        return "not a number"
    half = cell.half_width
    return f"{cell.value:.4g}" + (f" ± {half:.2g}" if half is not None else "")


def difference(found: Difference | None) -> str:
    """A difference and its interval; bold if that leaves out zero."""
    if found is None:
        return "–"
    low, high = found.interval
    return bold(f"{found.value:+.2f}", found.certain) + f" [{low:+.2f}, {high:+.2f}]"


def seconds(spent: float) -> str:
    """A time, with a decimal where that says something."""
    return f"{spent:.1f} s" if spent < 100 else f"{spent:,.0f} s"
