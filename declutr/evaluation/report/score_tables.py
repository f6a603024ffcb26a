"""Tables for papers: main scores, and each average with the scores that it is the mean of.

The tables of averages have the convention of that average in every column, so that numbers of
papers, which are marked, can stand beside one's own.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from declutr.evaluation.report import tables
from declutr.evaluation.report.averages import DEFINITIONS, Definition
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.quoted import Quoted
from declutr.evaluation.report.tables import ABSENT, Entry, entry


@dataclass(frozen=True)
class ScoreTable:
    """A table of texts, with what is to be bold.

    # Parameters

    name : a name for files.
    title : the title.
    header : the names of columns.
    rows : the cells, row by row.
    bold : the rows and columns of cells to make bold.
    notes : sentences on what is in the table.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: frozenset[tuple[int, int]] = frozenset()
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        """Return the table in Markdown, with its notes."""
        rows = [
            [tables.bold(cell, (row, column) in self.bold) for column, cell in enumerate(cells)]
            for row, cells in enumerate(self.rows)
        ]
        return "\n\n".join([tables.table(self.header, rows), *map(tables.text, self.notes)])


def main_scores(report: Contents) -> ScoreTable | None:
    """Return the main scores, a row for each task; None without scores."""
    c, quoted = report.whole, report.quoted
    mains = {
        task: c.main_name(task)
        for group, names in c.groups().items()
        if group != "geometry"
        for task in names
    }
    if not mains:
        return None
    known = {id(row): [row.scores.get(t, {}).get(s) for t, s in mains.items()] for row in quoted}
    quoted = [row for row in quoted if any(value is not None for value in known[id(row)])]
    columns = [
        [entry([c.value(encoder, task) for encoder in group]) for task in mains]
        for group in report.contestants.values()
    ]
    columns += [[ABSENT if v is None else Entry(v) for v in known[id(row)]] for row in quoted]
    header = ["task", "score", *_names(report), *(row.label for row in quoted)]
    cells = [
        [task, name, *(column[place].text for column in columns)]
        for place, (task, name) in enumerate(mains.items())
    ]
    bold = {
        (place, 2 + column)
        for place in range(len(mains))
        for column in _best([of_one[place] for of_one in columns])
    }
    notes = _notes(report, quoted)
    return ScoreTable("scores", "Main scores", header, cells, frozenset(bold), notes)


def of_average(report: Contents, definition: Definition) -> ScoreTable | None:
    """Return an average with its scores, a row for each encoder; None if no own encoder has it."""
    found: list[tuple[list[str], list[Entry]]] = []
    for name, group in report.contestants.items():
        values = [report.averages_of(encoder).get(definition.name) for encoder in group]
        if any(value is None for value in values):
            continue
        scores = [
            entry([report.comparison.value(encoder, *member) for encoder in group])
            for member in definition.members.items()
        ]
        average = entry([value for value in values if value is not None])
        found.append(([_name(report, name)], [*scores, average]))
    if not found:
        return None
    quoted = [row for row in report.quoted if _fits(row, definition)]
    for row in quoted:
        numbers = [row.scores.get(t, {}).get(s, math.nan) for t, s in definition.members.items()]
        numbers.append(row.averages.get(definition.name, math.nan))
        found.append(([row.label], [Entry(number) for number in numbers]))
    header = ["encoder", *definition.members, "Avg."]
    rows = [[*names, *(number.text for number in numbers)] for names, numbers in found]
    bold = {
        (row, 1 + column)
        for column in range(len(header) - 1)
        for row in _best([numbers[column] for _, numbers in found])
    }
    notes = [_conventions(definition), *_notes(report, quoted)]
    name = re.sub(r"\W+", "_", definition.name).strip("_")
    return ScoreTable(name, definition.name, header, rows, frozenset(bold), notes)


def beside_quotations(report: Contents) -> list[ScoreTable]:
    """Return the tables of averages in which there are numbers of papers."""
    wanted = [d for d in DEFINITIONS if any(_fits(row, d) for row in report.quoted)]
    return [table for d in wanted if (table := of_average(report, d)) is not None]


def all_tables(report: Contents) -> list[ScoreTable]:
    """Return the main scores, and each average that an encoder has."""
    found = [main_scores(report), *(of_average(report, d) for d in DEFINITIONS)]
    return [table for table in found if table is not None]


def _fits(row: Quoted, definition: Definition) -> bool:
    return definition.name in row.averages or all(
        name in row.scores.get(task, {}) for task, name in definition.members.items()
    )


def _best(column: Sequence[Entry]) -> list[int]:
    """Return the places of the highest value after rounding; none if all are equal."""
    values = [round(one.value, 2) for one in column]
    finite = {value for value in values if math.isfinite(value)}
    return [n for n, value in enumerate(values) if value == max(finite)] if len(finite) > 1 else []


def _name(report: Contents, contestant: str) -> str:
    seeds = len(report.contestants[contestant])
    return f"{contestant} ({seeds} seeds)" if seeds > 1 else contestant


def _names(report: Contents) -> list[str]:
    return [_name(report, name) for name in report.contestants]


def _conventions(definition: Definition) -> str:
    by_score: dict[str, list[str]] = {}
    for task, name in definition.members.items():
        by_score.setdefault(name, []).append(task)
    told = "; ".join(f"{name}: {', '.join(those)}" for name, those in by_score.items())
    return f"Scores: {told}."


def _notes(report: Contents, quoted: Sequence[Quoted]) -> list[str]:
    notes = []
    if any(len(group) > 1 for group in report.contestants.values()):
        notes.append("Of several seeds: the mean ± the standard deviation over seeds.")
    for table, source in {row.table: row.source for row in quoted}.items():
        through: dict[str, list[str]] = {}
        for row in quoted:
            if row.table == table and row.through:
                through.setdefault(row.through, []).append(row.encoder)
        origins = "".join(f"; from {o}: {', '.join(those)}" for o, those in through.items())
        notes.append(f"[{table}]: quoted from {source}{origins}.")
    if quoted and (own := report.about.protocol.get("name", "published")) != "published":
        notes.append(f"One's own scores follow the protocol {own}, not the published one.")
    return notes
