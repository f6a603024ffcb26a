"""Tables for papers: main scores, and each average with the scores that it is the mean of.

The tables of averages have the convention of that average in every column, so that numbers of
papers, which are marked, can stand beside one's own.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from declutr.evaluation.report import tables
from declutr.evaluation.report.averages import DEFINITIONS, Definition
from declutr.evaluation.report.comparison import highest
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.quoted import Quoted
from declutr.evaluation.report.tables import Entry, entry
from declutr.evaluation.text_files import CARE


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
    """Return the main scores; None without scores.

    There is a row for each task, or for each encoder if there are more encoders than tasks.
    """
    c = report.whole
    mains = {
        task: c.main_name(task)
        for group, names in c.groups().items()
        if group != "geometry"
        for task in names
    }
    if not mains:
        return None
    quoted = [
        row for row in report.quoted if any(s in row.scores.get(t, {}) for t, s in mains.items())
    ]
    rows = _rows(report, mains, report.contestants, quoted)
    notes = _notes(report, quoted, mains)
    if len(rows) > len(mains):
        return _table("scores", "Main scores", ["encoder", *mains], rows, [_told(mains), *notes])
    header = ["task", "score", *(label for label, _ in rows)]
    cells = [
        [task, name, *(numbers[place].text for _, numbers in rows)]
        for place, (task, name) in enumerate(mains.items())
    ]
    best = {
        (place, 2 + column)
        for place in range(len(mains))
        for column in _best([numbers[place] for _, numbers in rows])
    }
    return ScoreTable("scores", "Main scores", header, cells, frozenset(best), notes)


def of_average(report: Contents, definition: Definition) -> ScoreTable | None:
    """Return an average with its scores, a row for each encoder; None if no own encoder has it."""
    averages = {
        name: [report.averages_of(encoder).get(definition.name, math.nan) for encoder in group]
        for name, group in report.contestants.items()
    }
    own = {
        name: report.contestants[name]
        for name, values in averages.items()
        if all(map(math.isfinite, values))
    }
    if not own:
        return None
    quoted = [row for row in report.quoted if _fits(row, definition)]
    rows = _rows(report, definition.members, own, quoted)
    means = [entry(averages[name]) for name in own]
    means += [Entry(row.averages.get(definition.name, math.nan)) for row in quoted]
    rows = [(label, [*numbers, mean]) for (label, numbers), mean in zip(rows, means, strict=True)]
    notes = [_told(definition.members), *_notes(report, quoted, definition.members)]
    header = ["encoder", *definition.members, "Avg."]
    return _table(_file_name(definition), definition.name, header, rows, notes)


def part_of_average(report: Contents, definition: Definition) -> ScoreTable | None:
    """Return the scores of an average that own encoders have; None if they or papers have none."""
    c = report.whole
    members = {
        task: score
        for task, score in definition.members.items()
        if any(math.isfinite(c.value(encoder, task, score)) for encoder in c.encoders)
    }
    quoted = [
        row
        for row in report.quoted
        if any(score in row.scores.get(task, {}) for task, score in members.items())
    ]
    if not quoted:
        return None
    rows = _rows(report, members, report.contestants, quoted)
    rows = [row for row in rows if any(math.isfinite(number.value) for number in row[1])]
    lacking = [task for task in definition.members if task not in members]
    notes = [f"No average: {', '.join(lacking)} have no score.", _told(members)]
    title = f"{definition.name}: {len(members)} of {len(definition.members)} tasks"
    notes += _notes(report, quoted, members)
    return _table(f"{_file_name(definition)}_part", title, ["encoder", *members], rows, notes)


def _file_name(definition: Definition) -> str:
    return re.sub(r"\W+", "_", definition.name).strip("_")


_Rows = list[tuple[str, list[Entry]]]


def _rows(
    report: Contents,
    columns: Mapping[str, str],
    own: Mapping[str, Sequence[str]],
    quoted: Sequence[Quoted],
) -> _Rows:
    """Return the label and the numbers of each encoder: scores by name of the task."""
    rows = []
    for name, group in own.items():
        scores = [
            entry([report.comparison.value(encoder, *column) for encoder in group])
            for column in columns.items()
        ]
        rows.append((f"{name} ({len(group)} seeds)" if len(group) > 1 else name, scores))
    for row in quoted:
        printed = [row.scores.get(task, {}).get(name, math.nan) for task, name in columns.items()]
        rows.append((row.label, [Entry(value) for value in printed]))
    return rows


def _table(
    name: str, title: str, header: Sequence[str], rows: _Rows, notes: Sequence[str]
) -> ScoreTable:
    """Make a table with a row for each encoder, and the best of each column bold."""
    best = {
        (row, 1 + column)
        for column in range(len(header) - 1)
        for row in _best([numbers[column] for _, numbers in rows])
    }
    cells = [[label, *(number.text for number in numbers)] for label, numbers in rows]
    return ScoreTable(name, title, header, cells, frozenset(best), notes)


def beside_quotations(report: Contents) -> list[ScoreTable]:
    """Return the tables in which there are numbers of papers: whole averages, or parts of them."""
    fitting = [d for d in DEFINITIONS if any(_fits(row, d) for row in report.quoted)]
    printed = [d for d in fitting if any(d.name in row.averages for row in report.quoted)]
    found: list[ScoreTable] = []
    members: list[Mapping[str, str]] = []
    parts: list[tuple[ScoreTable, Definition]] = []
    for definition in (*printed, *(each for each in fitting if each not in printed)):
        if (table := of_average(report, definition)) is None:
            if (part := part_of_average(report, definition)) is not None:
                parts.append((part, definition))
        elif definition in printed or not _among(definition.members, members):
            found.append(table)
            members.append(definition.members)
    for part, definition in sorted(parts, key=lambda part: -len(part[0].header)):
        columns = {task: definition.members[task] for task in part.header[1:]}
        if not _among(columns, members):
            found.append(part)
            members.append(columns)
    return found


def _among(columns: Mapping[str, str], tables: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a table has all of these columns already."""
    return any(columns.items() <= those.items() for those in tables)


def not_shown(report: Contents) -> dict[str, str]:
    """Return the tables of papers that were asked for but stand nowhere, with the reason."""
    labels = {row[0] for table in beside_quotations(report) for row in table.rows}
    found: dict[str, str] = {}
    for name in dict.fromkeys(row.table for row in report.quoted):
        rows = [row for row in report.quoted if row.table == name]
        if not any(row.label in labels for row in rows):
            printed = {
                f"{t} ({s})": None for row in rows for t, of in row.scores.items() for s in of
            }
            printed |= {average: None for row in rows for average in row.averages}
            found[name] = f"it prints {', '.join(printed)}, of which no encoder here has a score."
    return found


def all_tables(report: Contents) -> list[ScoreTable]:
    """Return the main scores, each average that an encoder has, and parts of others with quotes."""
    found = [main_scores(report), *(of_average(report, d) for d in DEFINITIONS)]
    tables = {table.name: table for table in found if table is not None}
    return list((tables | {t.name: t for t in beside_quotations(report)}).values())


def _fits(row: Quoted, definition: Definition) -> bool:
    return definition.name in row.averages or all(
        name in row.scores.get(task, {}) for task, name in definition.members.items()
    )


def _best(column: Sequence[Entry]) -> set[int]:
    """Return the places of the highest value after rounding.

    There is none if all are equal, or if half of the values or more are absent.
    """
    values = [one.value for one in column]
    if 2 * sum(map(math.isfinite, values)) <= len(values):
        return set()
    return highest(values)


def _told(columns: Mapping[str, str]) -> str:
    by_score: dict[str, list[str]] = {}
    for task, name in columns.items():
        by_score.setdefault(name, []).append(task)
    told = "; ".join(f"{name}: {', '.join(those)}" for name, those in by_score.items())
    return f"Scores: {told}."


def _notes(report: Contents, quoted: Sequence[Quoted], tasks: Iterable[str]) -> list[str]:
    notes, of_tasks = [], report.comparison.notes()
    if any(len(group) > 1 for group in report.contestants.values()):
        notes.append("Of several seeds: the mean ± the standard deviation over seeds.")
    for table, source in {row.table: row.source for row in quoted}.items():
        through: dict[str, list[str]] = {}
        for row in quoted:
            if row.table == table and row.through:
                through.setdefault(row.through, []).append(row.encoder)
        origins = "".join(f"; from {o}: {', '.join(those)}" for o, those in through.items())
        notes.append(f"[{table}]: quoted from {source}{origins}.")
    if quoted:
        other = [task for task in tasks if any(CARE in note for note in of_tasks.get(task, {}))]
        notes += [f"Own data of {', '.join(other)} are not the published: {CARE}."] if other else []
    if quoted and (own := report.about.protocol.get("name", "published")) != "published":
        notes.append(f"One's own scores follow the protocol {own}, not the published one.")
    return notes
