"""Markdown for sections, tables and cells of a report, and tables for a terminal."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from declutr.evaluation.report.comparison import Cell, Difference


class Entry(NamedTuple):
    """A number of a table: the mean of n values, with their standard deviation if n > 1."""

    value: float
    deviation: float | None = None

    @property
    def text(self) -> str:
        """The number with two decimals."""
        if not math.isfinite(self.value):
            return "–"
        return f"{self.value:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def entry(values: Sequence[float]) -> Entry:
    """Summarise the values of an encoder's seeds, of which there may be one."""
    return Entry(float(np.mean(values)), float(np.std(values, ddof=1)) if values[1:] else None)


def section(title: str, *parts: str) -> str:
    """Join parts under a title; empty parts are left out."""
    return "\n\n".join([f"## {title}", *filter(None, parts)])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a Markdown table; columns of numbers are aligned to the right."""
    header, *rows = ([text(cell) for cell in row] for row in (header, *rows))
    numbers = [all(_is_number(row[column]) for row in rows) for column in range(len(header))]
    marks = ["---:" if number else "---" for number in numbers]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def _is_number(cell: str) -> bool:
    return bool(re.match(r"\**[-+−]?\d|failed|–|lacks|not a number|$", cell))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines of aligned columns for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    ]


def text(words: str) -> str:
    """Put text on one line and escape bars, which would end a cell of a table."""
    return " ".join(words.split()).replace("|", "\\|")


def bold(cell: str, wanted: bool = True) -> str:
    """Make a cell bold if `wanted`."""
    return f"**{cell.strip()}**" if wanted else cell


def percent(cell: Cell) -> str:
    """Format a score in percent, with half the width of its interval."""
    return _with_half_width(cell, ".2f", ".2f")


def plain(cell: Cell | None) -> str:
    """Format a score that need not be in percent, with half the width of its interval."""
    return "–" if cell is None else _with_half_width(cell, ".4g", ".2g")


def _with_half_width(cell: Cell, number: str, half: str) -> str:
    if not math.isfinite(cell.value):
        return "not a number"
    width = "" if cell.half_width is None else f" ± {cell.half_width:{half}}"
    return f"{cell.value:{number}}{width}"


def difference(found: Difference | None) -> str:
    """Format a difference with its interval, in bold if the interval excludes zero."""
    if found is None:
        return "–"
    bounds = " [{:+.2f}, {:+.2f}]".format(*found.interval) if found.interval else ""
    return bold(f"{found.value:+.2f}", found.certain) + bounds


def seconds(spent: float) -> str:
    """Format a time, with a decimal if it is below 100 seconds."""
    return f"{spent:.1f} s" if spent < 100 else f"{spent:,.0f} s"
