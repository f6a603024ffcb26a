"""A comparison of encoders for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from declutr.evaluation.report.averages import Average
from declutr.evaluation.report.comparison import GROUPS, Cell, Comparison, Difference
from declutr.evaluation.report.dimensions import (
    WHOLE,
    Curves,
    curves,
    families,
    losses,
    whole_encoders,
)
from declutr.evaluation.report.plots import Picture

FORMAT = 1

CONVENTION = re.compile(
    r"((all|mean|wmean|cosine|trained) (Pearson|Spearman)( dev)?|MTEB Spearman)"
)
"""Names of scores that are readings of a similarity task, not parts of it."""

_ABOUT_CONVENTIONS = """\
`all`: the correlation over all pairs at once (SimCSE, SCD); `mean`: the mean of the subsets'
correlations, and `wmean`: that weighted by their sizes (SentEval; DeCLUTR reports the mean
Spearman); `cosine`: of cosines, and `trained`: of a regressor trained on top of embeddings
(SentEval; DeCLUTR: Pearson on `dev`, Spearman on test); `MTEB`: cosine Spearman over what MTEB
takes as the test set. For one task, `all`, `cosine` and `MTEB` are often the same number."""

_ABOUT_AVERAGES = """\
An average is given only if every task of it has a score. `DeCLUTR all` weighs all tasks alike, as
its public script has done since June 2020; `DeCLUTR v1 Avg.` is the mean of the downstream and the
probing average, as the first version of its paper prints it."""

_ABOUT_GEOMETRY = """\
`alignment` (lower is better) is the mean squared distance of pairs that mean the same, `uniformity`
(lower is better) tells how evenly embeddings cover the sphere (Wang and Isola, 2020), `mean cosine`
how much they point one way, the last two how few directions have the variance."""

_ABOUT_DIMENSIONS = """\
`NAME@32` are the 32 leading dimensions of an encoder's embeddings, scaled to length 1 again if
those are. Classifiers are trained on what is kept. In percent, with the share of the score that
all dimensions have."""

_ABOUT_LOSSES = """\
Below, by task, what is lost: the main score less that with all dimensions, with the 95 % interval
of the difference, both on the same drawn items. Bold: it leaves out zero."""


@dataclass(frozen=True)
class About:
    """What a report says of the run."""

    command: str
    data: str
    protocol: Mapping[str, Any]
    versions: Mapping[str, str]
    made: str
    """When, in ISO 8601."""
    hints: Sequence[str] = field(default_factory=tuple)
    """Such as how to get pictures."""


@dataclass
class Report:
    """All that is reported; differences are computed once, here.

    # Parameters

    comparison : truncated encoders (`declutr.evaluation.report.dimensions`) have a section of their
        own.
    averages : of each encoder, in the same order.
    not_opened : encoders that could not be used at all, and why.
    pictures : drawn files; links to them are relative to `folder`.
    folder : where the report will be.
    """

    comparison: Comparison
    averages: Mapping[str, Sequence[Average]]
    about: About
    pictures: Sequence[Picture] = ()
    folder: Path = Path()
    not_opened: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = whole_encoders(self.comparison)
        self.differences: dict[str, dict[str, Difference]] = {
            encoder: {
                task: found
                for tasks in self.whole.groups().values()
                for task in tasks
                if (found := self.whole.difference(encoder, task)) is not None
            }
            for encoder in self.whole.encoders[1:]
        }
        self.curves = curves(self.comparison)
        self.losses = losses(self.comparison)

    # ------------------------------------------------------------------------------ Markdown

    def markdown(self) -> str:
        """The report, GitHub's Markdown."""
        parts = [
            self._heading(),
            self._failures(),
            self._scores(),
            self._picture("tasks"),
            self._averages(),
            self._conventions(),
            self._picture("similarities"),
            self._geometry(),
            self._picture("plane"),
            self._picture("map"),
            self._dimensions(),
            self._differences(),
            self._missing(),
            self._notes(),
            self._time(),
            self._encoders(),
            self._method(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _heading(self) -> str:
        c, count = self.whole, len(self.whole.encoders)
        tasks = sum(map(len, c.groups().values()))
        missing = f" ({len(c.missing())} more have no data)" if c.missing() else ""
        lines = [
            "# Sentence embeddings",
            f"{count} encoder{'s' * (count != 1)} on {tasks} task{'s' * (tasks != 1)}{missing}, "
            f"protocol `{self.about.protocol.get('name', '?')}`, {self.about.made[:10]}.",
            *(f"> {hint}" for hint in self.about.hints),
        ]
        for encoder, task, note in self._alarms():
            lines.append(f"> **{_text(encoder)}**, {_text(task)}: {_text(note)}")
        return "\n\n".join(lines)

    def _failures(self) -> str:
        rows = [(encoder, "all", error) for encoder, error in self.not_opened.items()]
        rows += self.comparison.failures()
        if not rows:
            return ""
        table = _table(["encoder", "task", "what happened"], [list(map(_text, r)) for r in rows])
        return f"## Failed\n\n{table}"

    def _scores(self) -> str:
        c = self.whole
        blocks = []
        for group, tasks in c.groups().items():
            if group != "geometry":
                rows = [[_text(task), c.main_name(task), *self._cells(task)] for task in tasks]
                header = [GROUPS.get(group, group), "score", *map(_text, c.encoders)]
                blocks.append(_table(header, rows))
        if not blocks:
            return "No task has a score."
        about = "In percent, with half the width of the 95 % interval"
        about += "; the best of a row is bold." if len(c.encoders) > 1 else "."
        return "\n\n".join(["## Scores", about, *blocks])

    def _cells(self, task: str, score: str | None = None) -> list[str]:
        c = self.whole
        best = c.best(task, score)
        shown = []
        for encoder in c.encoders:
            cell = c.cell(encoder, task, score)
            if cell is not None:
                shown.append(_bold(_cell(cell), encoder in best))
            else:
                record = c.record(encoder, task)
                shown.append("failed" if record and record.result.error else "–")
        return shown

    def _averages(self) -> str:
        c = self.whole
        rows, none = [], []
        for of_each in zip(*(self.averages[encoder] for encoder in c.encoders), strict=True):
            values = [average.value for average in of_each]
            if values == [None] * len(values):
                lacking = _lacked_by_all([average.missing for average in of_each])
                none.append(f"* {_text(of_each[0].name)}: {_lacks(lacking)}")
                continue
            best = max((round(v, 2) for v in values if v is not None), default=None)
            several = len({round(v, 2) for v in values if v is not None}) > 1
            rows.append(
                [
                    _text(of_each[0].name),
                    *(
                        _lacks(average.missing)
                        if average.value is None
                        else _bold(
                            f"{average.value:.2f}", several and round(average.value, 2) == best
                        )
                        for average in of_each
                    ),
                ]
            )
        parts = ["## Averages", _ABOUT_AVERAGES]
        if rows:
            parts.append(_table(["average", *map(_text, c.encoders)], rows))
        if none:
            summary = f"<summary>{len(none)} averages lack tasks</summary>"
            parts += [f"<details>{summary}", "\n".join(none), "</details>"]
        return "\n\n".join(parts) if rows or none else ""

    def _conventions(self) -> str:
        rows = []
        for task in self.whole.groups().get("sts", []):
            names = [n for n in self.whole.score_names(task) if CONVENTION.fullmatch(n)]
            for place, name in enumerate(names):
                first = f"**{_text(task)}**" if place == 0 else ""
                rows.append([first, name, *self._cells(task, name)])
        if not rows:
            return ""
        table = _table(["task", "convention", *map(_text, self.whole.encoders)], rows)
        return f"## Similarity in every convention\n\n{_ABOUT_CONVENTIONS}\n\n{table}"

    def _geometry(self) -> str:
        c = self.whole
        blocks = []
        for task in c.groups().get("geometry", []):
            names = c.score_names(task)
            rows = []
            for encoder in c.encoders:
                cells = [c.cell(encoder, task, name) for name in names]
                if any(cells):
                    rows.append([_text(encoder), *(_plain(cell) for cell in cells)])
            blocks.append(_table([_text(task), *names], rows))
        if not blocks:
            return ""
        alarms = [f"> **{_text(e)}**: {_text(note)}" for e, _, note in self._alarms()]
        return "\n\n".join(["## Geometry", _ABOUT_GEOMETRY, *blocks, *alarms])

    def _alarms(self) -> Iterator[tuple[str, str, str]]:
        for task in self.whole.groups().get("geometry", []):
            for note, encoders in self.whole.notes().get(task, {}).items():
                if note.startswith("COLLAPSE"):
                    yield from ((encoder, task, note) for encoder in encoders)

    def _dimensions(self) -> str:
        rows = [[_text(cell) for cell in row] for row in self._dimension_rows()]
        if not rows:
            return ""
        parts = ["## Dimension against quality", _ABOUT_DIMENSIONS, self._picture("dimensions")]
        parts += [_table(rows[0], rows[1:]), _ABOUT_LOSSES]
        parts += [self._lost(encoder) for encoder in self.losses]
        means = [(group, found) for group, found in self.curves.items() if len(found.tasks) > 1]
        parts += [f"{_mean_of(group, found)}: {', '.join(found.tasks)}." for group, found in means]
        return "\n\n".join(part for part in parts if part)

    def _dimension_rows(self) -> list[list[str]]:
        """A header, and a row for each encoder and each number of dimensions."""
        if not self.curves:
            return []
        header = ["encoder", "dimensions"]
        for group, found in self.curves.items():
            one = f"{found.tasks[0]}, {self.comparison.main_name(found.tasks[0])}"
            header.append(one if len(found.tasks) == 1 else _mean_of(group, found))
        rows = [header]
        names: dict[str, dict[int, str]] = {}
        for found in self.curves.values():
            names |= found.names
        for whole in filter(names.__contains__, self.whole.encoders):
            for dimension, name in names[whole].items():
                cells = [_share(found, whole, name) for found in self.curves.values()]
                rows.append([name, str(dimension), *cells])
        return rows

    def _lost(self, whole: str) -> str:
        """A table of losses, a row for each task."""
        truncated, found = families(self.comparison)[whole], self.losses[whole]
        rows = [
            [
                _text(task),
                self.comparison.main_name(task),
                *(_difference(found[name].get(task)) for name in truncated.values()),
            ]
            for of_group in self.curves.values()
            for task in of_group.tasks
            if any(task in found[name] for name in truncated.values())
        ]
        header = [_text(whole), "score", *(str(dimension) for dimension in truncated)]
        return _table(header, rows) if rows else ""

    def _differences(self) -> str:
        c = self.whole
        if not any(self.differences.values()):
            return ""
        first, others = c.encoders[0], c.encoders[1:]
        rows = [
            [
                _text(task),
                c.main_name(task),
                *(_difference(self.differences[other].get(task)) for other in others),
            ]
            for tasks in c.groups().values()
            for task in tasks
            if any(task in self.differences[other] for other in others)
        ]
        about = (
            f"The main score less that of {_text(first)}, with the 95 % interval of the "
            "difference, both on the same drawn items. Bold: it leaves out zero. Of twenty rows "
            "without any difference, one may do so by chance. Of uniformity, less is better."
        )
        table = _table(["task", "score", *map(_text, others)], rows)
        return f"## Differences from {_text(first)}\n\n{about}\n\n{table}"

    def _missing(self) -> str:
        missing = self.comparison.missing()
        if not missing:
            return ""
        lines = [f"* {_text(task)}: {_text(reason)}" for task, reason in missing.items()]
        about = "These tasks have no score, and no average that needs them is given."
        return f"## Missing data\n\n{about}\n\n" + "\n".join(lines)

    def _notes(self) -> str:
        c = self.comparison
        lines = []
        for task, notes in c.notes().items():
            for note, encoders in notes.items():
                whose = "" if len(encoders) == len(c.encoders) else f" ({', '.join(encoders)})"
                lines.append(f"* {_text(task)}: {_text(note + whose)}")
        return "## Notes on tasks\n\n" + "\n".join(lines) if lines else ""

    def _time(self) -> str:
        rows = []
        for encoder in self.comparison.encoders:
            spent = time_spent(self.comparison, encoder)
            share = f"{100 * spent.share:.0f} %" if spent.share is not None else "–"
            timed = spent.embedded and spent.embedding
            rate = f"{spent.embedded / spent.embedding:,.0f}" if timed else "–"
            longest = ", ".join(f"{_text(t)} {_seconds(s)}" for t, s in spent.longest)
            rows.append(
                [
                    _text(encoder),
                    _seconds(spent.embedding),
                    f"{spent.embedded:,}",
                    f"{spent.requested:,}",
                    rate,
                    _seconds(spent.scoring),
                    share,
                    longest,
                ]
            )
        header = ["encoder", "embedding", "sentences embedded", "asked for by tasks", "a second"]
        header += ["scoring", "share of scoring", "longest"]
        about = (
            "Each different sentence is embedded once a run, and leading dimensions are cut from "
            "that. Scoring is mostly the training of classifiers."
        )
        return f"## Time\n\n{about}\n\n{_table(header, rows)}"

    def _encoders(self) -> str:
        rows = []
        for encoder in self.comparison.encoders:
            facts = self.comparison.facts.get(encoder, {})
            described = dict(facts.get("description", {}))
            dimension, mark = described.pop("dimension", None), described.pop("fingerprint", "")
            mark, cut, kept = mark.partition("@")
            counts = facts.get("counts") or {}
            if WHOLE in described:  # the rest is said of that
                described, counts = {WHOLE: described[WHOLE]}, {}
            known = [(k.replace("_", " "), v) for k, v in {**described, **counts}.items()]
            told = ", ".join(
                f"{k} {v:,}" if type(v) is int else f"{k} {v}" for k, v in known if v is not None
            )
            rows.append(
                [
                    _text(encoder),
                    f"`{_text(str(facts.get('spec', '')))}`",
                    str(dimension or "–"),
                    _text(told),
                    f"`{mark[:12]}{cut}{kept}`",
                ]
            )
        header = ["encoder", "given as", "dimension", "what it is", "fingerprint"]
        return "## Encoders\n\n" + _table(header, rows)

    def _method(self) -> str:
        about = self.about
        settings = ", ".join(f"{k} {v}" for k, v in about.protocol.items())
        versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
        return "\n".join(
            [
                "## How this was made",
                "",
                f"* Command: `{about.command}`",
                f"* Data: `{about.data}`",
                f"* Protocol: {settings}",
                f"* Versions: {versions}",
                f"* Made: {about.made}",
                "* Intervals: 95 %, percentiles of 1,000 bootstrap samples of test items (Efron, "
                "1979), drawn within subsets where a test set has some. Scores on folds of "
                "cross-validation count every item once. They hold for these embeddings and these "
                "classifiers; other seeds of training may differ by more.",
            ]
        )

    def _picture(self, name: str) -> str:
        for picture in self.pictures:
            if picture.path.stem == name:
                place = picture.path.relative_to(self.folder).as_posix()
                return f"![{picture.title}]({place})\n\n*{picture.caption}*"
        return ""

    def summary(self) -> list[str]:
        """The main scores in lines for a terminal."""
        c = self.whole
        tasks = [task for tasks in c.groups().values() for task in tasks]
        rows = [["", *c.encoders]]
        for task in tasks:
            cells = [c.cell(encoder, task) for encoder in c.encoders]
            rows.append([task, *("–" if cell is None else f"{cell.value:.2f}" for cell in cells)])
        lines = _aligned(rows)
        if by_dimension := self._dimension_rows():
            lines += ["", *_aligned(by_dimension), ""]
        missing = self.comparison.missing()
        if missing:
            lines.append(f"No data: {', '.join(missing)}")
        for encoder, task, error in self.comparison.failures():
            lines.append(f"Failed: {encoder} on {task}: {error}")
        return lines

    # ---------------------------------------------------------------------------------- JSON

    def as_json(self) -> dict[str, Any]:
        """The same for programs, and every score: JSON values; what is not a number is null."""
        c, about = self.comparison, self.about
        return {
            "format": FORMAT,
            "made": about.made,
            "command": about.command,
            "data": about.data,
            "protocol": dict(about.protocol),
            "versions": dict(about.versions),
            "encoders": {encoder: self._encoder_json(encoder) for encoder in c.encoders},
            "differences": {
                "from": self.whole.encoders[0] if self.whole.encoders else None,
                "of": {
                    encoder: {
                        task: {"value": _number(d.value), "interval": list(d.interval)}
                        for task, d in found.items()
                    }
                    for encoder, found in self.differences.items()
                },
            },
            "losses": {
                whole: {
                    encoder: {
                        task: {"value": _number(d.value), "interval": list(d.interval)}
                        for task, d in found.items()
                    }
                    for encoder, found in of_one.items()
                }
                for whole, of_one in self.losses.items()
            },
            "missing": c.missing(),
            "not_opened": dict(self.not_opened),
            "pictures": [p.path.relative_to(self.folder).as_posix() for p in self.pictures],
        }

    def _encoder_json(self, encoder: str) -> dict[str, Any]:
        c = self.comparison
        spent = time_spent(c, encoder)
        return {
            **c.facts.get(encoder, {}),
            "tasks": {
                task: _task_json(c, encoder, task) for task in c.tasks if c.record(encoder, task)
            },
            "averages": {
                average.name: {"value": average.value, "missing": list(average.missing)}
                for average in self.averages[encoder]
            },
            "time": {
                "embedding_seconds": spent.embedding,
                "embedded_sentences": spent.embedded,
                "requested_sentences": spent.requested,
                "scoring_seconds": spent.scoring,
                "scoring_share": spent.share,
            },
        }


@dataclass(frozen=True)
class TimeSpent:
    """Of an encoder, over all runs: seconds, and sentences."""

    embedding: float
    embedded: int
    requested: int
    scoring: float
    longest: list[tuple[str, float]]
    """The tasks that took longest to score."""

    @property
    def share(self) -> float | None:
        """Of scoring, among all."""
        total = self.embedding + self.scoring
        return self.scoring / total if total else None


def time_spent(comparison: Comparison, encoder: str) -> TimeSpent:
    """Of an encoder, over all its runs into this folder."""
    runs = comparison.facts.get(encoder, {}).get("runs", [])
    seconds = {
        task: record.result.seconds
        for task in comparison.tasks
        if (record := comparison.record(encoder, task))
    }
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:3]
    return TimeSpent(
        sum(run["seconds"] for run in runs),
        sum(run["embedded"] for run in runs),
        sum(run["requested"] for run in runs),
        sum(seconds.values()),
        [(task, spent) for task, spent in longest if spent >= 0.05],
    )


def _task_json(comparison: Comparison, encoder: str, task: str) -> dict[str, Any]:
    record = comparison.record(encoder, task)
    assert record is not None
    result = record.result
    return {
        "group": result.group,
        "main": result.main,
        "scores": {
            score.name: {
                "value": _number(score.value),
                "interval": list(record.intervals[score.name])
                if score.name in record.intervals
                else None,
            }
            for score in result.scores
        },
        "error": result.error,
        "missing": result.missing,
        "notes": result.notes,
        "seconds": result.seconds,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    ]


# ----------------------------------------------------------------------------------------- cells


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Words on the left, numbers on the right."""
    numbers = [all(_is_number(row[column]) for row in rows) for column in range(len(header))]
    marks = ["---:" if number else "---" for number in numbers]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def _is_number(cell: str) -> bool:
    return bool(re.match(r"\**[-+−]?\d|failed|–|lacks|not a number|$", cell))


def _text(words: str) -> str:
    """Words in a table: on one line, with no bar that would end a cell."""
    return " ".join(words.split()).replace("|", "\\|")


def _bold(cell: str, bold: bool) -> str:
    return f"**{cell}**" if bold else cell


def _cell(cell: Cell) -> str:
    if not math.isfinite(cell.value):
        return "not a number"
    half = cell.half_width
    return f"{cell.value:.2f}" + (f" ± {half:.2f}" if half is not None else "")


def _plain(cell: Cell | None) -> str:
    """A number that need not be in percent."""
    if cell is None:
        return "–"
    if not math.isfinite(cell.value):
        return "not a number"
    half = cell.half_width
    return f"{cell.value:.4g}" + (f" ± {half:.2g}" if half is not None else "")


def _difference(found: Difference | None) -> str:
    if found is None:
        return "–"
    low, high = found.interval
    return _bold(f"{found.value:+.2f}", found.certain) + f" [{low:+.2f}, {high:+.2f}]"


def _mean_of(group: str, found: Curves) -> str:
    return f"{GROUPS.get(group, group)}, mean of {len(found.tasks)}"


def _share(found: Curves, whole: str, name: str) -> str:
    """A mean, and how much that is of the whole encoder's."""
    if whole not in found.names or name not in found.names[whole].values():
        return "–"
    value, all_of_it = found.mean(name), found.mean(whole)
    share = f" ({100 * value / all_of_it:.1f} %)" if name != whole and all_of_it > 0 else ""
    return f"{value:.2f}{share}"


def _lacked_by_all(missing: Sequence[Sequence[str]]) -> list[str]:
    """What every one lacks; if there is nothing, what some lack."""
    every = [task for task in missing[0] if all(task in of_one for of_one in missing)]
    return every or list(dict.fromkeys(task for of_one in missing for task in of_one))


def _lacks(missing: Sequence[str]) -> str:
    return f"lacks {_text(', '.join(missing))}" if missing else "–"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"
