"""Tables of a report as files: CSV, LaTeX and Markdown."""

import csv
import importlib.util
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.score_tables import ScoreTable, all_tables
from declutr.system.files import write_whole

FORMATS = ("csv", "latex", "markdown", "svg")
"""The formats that a report can have besides Markdown and JSON; SVG is that of pictures."""
_ENDINGS = {"csv": "csv", "latex": "tex", "markdown": "md"}
HOW_TO_GET = "LaTeX needs pandas and Jinja2: pip install 'declutr[tables]'."
"""The message that tells how to install what LaTeX needs."""


def missing_for(formats: Iterable[str]) -> str:
    """Return what to install for these formats; empty if nothing is missing."""
    lacking = any(importlib.util.find_spec(name) is None for name in ("pandas", "jinja2"))
    return HOW_TO_GET if "latex" in formats and lacking else ""


def write_tables(report: Contents, folder: Path, formats: Iterable[str]) -> list[Path]:
    """Write all tables into a folder, in place of earlier ones, and return the files.

    As CSV there are two more: `all_scores.csv`, a row for each score of each encoder, and
    `pairs.csv`, a row for each test of two encoders.
    """
    texts: dict[str, str] = {}
    for kind in (name for name in _ENDINGS if name in formats):
        for table in all_tables(report):
            texts[f"{table.name}.{_ENDINGS[kind]}"] = as_text(table, kind)
    if "csv" in formats:
        texts["all_scores.csv"] = as_csv(_LONG, long_rows(report))
        texts["pairs.csv"] = as_csv(_PAIRS, pair_rows(report))
    if texts:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]


def as_text(table: ScoreTable, kind: str) -> str:
    """Return a table in a format: `csv`, `latex` (for the package booktabs) or `markdown`."""
    if kind == "csv":
        return as_csv(table.header, table.rows)
    return table.markdown() + "\n" if kind == "markdown" else latex(table)


def as_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, with empty cells for what is absent or not a number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow("" if cell in (None, "–") or cell != cell else cell for cell in row)
    return text.getvalue()


def latex(table: ScoreTable) -> str:
    """Return a table in LaTeX for the package booktabs, with the best in bold.

    # Raises

    `ModuleNotFoundError` : pandas or Jinja2 is not installed.
    """
    if lacking := missing_for(["latex"]):
        raise ModuleNotFoundError(lacking)
    import pandas as pd

    columns = range(len(table.header))  # names may be equal
    frame = pd.DataFrame(table.rows, columns=columns)
    bold = pd.DataFrame("", index=frame.index, columns=columns)
    for row, column in table.bold:
        bold.iloc[row, column] = "textbf:--rwrap;"
    style = frame.style.hide(axis="index").format(escape="latex")
    style = style.format_index(lambda place: table.header[place], axis=1, escape="latex")
    words = 2 if table.header[0] == "task" else 1
    shape = "l" * words + "r" * (len(table.header) - words)
    notes = "".join(f"% {note}\n" for note in (table.title, *table.notes))
    body = style.apply(lambda _: bold, axis=None).to_latex(hrules=True, column_format=shape)
    return notes + body


_LONG = ("encoder", "source", "group", "task", "score", "value", "low", "high", "main", "items")
_PAIRS = (
    *("kind", "first", "second", "what", "first_minus_second", "low", "high"),
    *("p", "p_holm", "p_benjamini_hochberg"),
)


def long_rows(report: Contents) -> Iterator[Sequence[object]]:
    """Yield a row for each score and average of each encoder, then those of papers."""
    c = report.comparison
    for encoder in c.encoders:
        for task in c.shown():
            record = c.record(encoder, task)
            if record is None:
                continue
            for score in record.result.scores:
                bounds = record.intervals.get(score.name, (None, None))
                main = score.name == c.main_name(task)
                numbers = (score.value, *bounds, int(main), score.count)
                yield (encoder, "own", record.result.group, task, score.name, *numbers)
        for name, value in report.averages_of(encoder).items():
            yield (encoder, "own", "average", name, "mean", value, None, None, None, None)
    for row in report.quoted:
        source = f"quoted: {row.source}" + (f", from {row.through}" if row.through else "")
        parts: list[tuple[str, Mapping[str, Mapping[str, float]]]] = [("task", row.scores)]
        parts.append(("average", {name: {"mean": value} for name, value in row.averages.items()}))
        for group, scores in parts:
            for what, of_one in scores.items():
                for name, value in of_one.items():
                    if math.isfinite(value):
                        rest = (None, None, None, None)
                        yield (row.label, source, group, what, name, value, *rest)


def pair_rows(report: Contents) -> Iterator[Sequence[object]]:
    """Yield a row for each test of two encoders, tasks before averages."""
    for kind, tests in (("task", report.pairs.tasks), ("average", report.pairs.averages)):
        for test in tests:
            where = (kind, test.first, test.second, test.what, test.difference)
            yield (*where, *test.interval, test.p, test.holm, test.fdr)
