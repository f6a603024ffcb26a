"""The report of a comparison: Markdown for people, JSON for programs, lines for a terminal."""

import math
from collections.abc import Mapping
from typing import Any

from declutr.evaluation.bootstrap import Interval
from declutr.evaluation.report import dimension_sections as of_dimensions
from declutr.evaluation.report import pair_sections as of_pairs
from declutr.evaluation.report import run_sections as of_run
from declutr.evaluation.report import score_sections as of_scores
from declutr.evaluation.report.comparison import Difference
from declutr.evaluation.report.contents import About, Contents
from declutr.evaluation.report.pairs import PairTest
from declutr.evaluation.report.score_sections import CONVENTION, alarms
from declutr.evaluation.report.score_tables import not_shown
from declutr.evaluation.report.tables import aligned, section, table, text
from declutr.evaluation.results import Record

__all__ = ["CONVENTION", "FORMAT", "About", "Report"]

FORMAT = 1
"""The version of the layout of the JSON."""


class Report(Contents):
    """A report in all of its forms; see `Contents` for the parameters."""

    def markdown(self) -> str:
        """Return the report in GitHub's Markdown."""
        parts = [
            heading(self),
            failures(self),
            of_run.left_out(self),
            of_pairs.standing(self),
            of_scores.scores(self),
            self.picture("tasks"),
            of_scores.averages(self),
            of_scores.published(self),
            self.picture("published"),
            of_pairs.seeds(self),
            of_scores.conventions(self),
            self.picture("similarities"),
            of_scores.others(self),
            of_scores.geometry(self),
            self.picture("plane"),
            self.picture("map"),
            of_dimensions.dimensions(self),
            of_scores.differences(self),
            of_pairs.all_pairs(self),
            of_run.missing(self),
            of_run.notes(self),
            of_run.time(self),
            of_run.encoders(self),
            of_run.method(self),
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def summary(self) -> list[str]:
        """Return the main scores as lines for a terminal."""
        c = self.whole
        rows = [["", *c.encoders]]
        for task in c.shown():
            cells = [c.cell(encoder, task) for encoder in c.encoders]
            rows.append([task, *("–" if cell is None else f"{cell.value:.2f}" for cell in cells)])
        lines = aligned(rows)
        if by_dimension := of_dimensions.dimension_rows(self):
            lines += ["", *aligned(by_dimension), ""]
        if missing := self.comparison.missing():
            lines.append(f"No data: {', '.join(missing)}")
        for name, why in not_shown(self).items():
            lines.append(f"No row of {name} is shown: {why}")
        for encoder, task, error in self.comparison.failures():
            lines.append(f"Failed: {encoder} on {task}: {error}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the report with every score as JSON values, with null for what is not finite."""
        return {
            "format": FORMAT,
            **{name: getattr(self.about, name) for name in ("made", "command", "data")},
            "protocol": dict(self.about.protocol),
            "versions": dict(self.about.versions),
            "encoders": {encoder: self._encoder(encoder) for encoder in self.comparison.encoders},
            "differences": {
                "from": self.whole.encoders[0] if self.whole.encoders else None,
                "of": _differences(self.differences),
            },
            "pairs": {
                kind: [_tested(test) for test in getattr(self.pairs, kind)]
                for kind in ("tasks", "averages")
            },
            "seeds": {name: of for name, of in self.contestants.items() if len(of) > 1},
            "quoted": [row.label for row in self.quoted],
            "losses": {whole: _differences(of_one) for whole, of_one in self.losses.items()},
            "missing": self.comparison.missing(),
            "not_opened": dict(self.not_opened),
            "pictures": [p.path.relative_to(self.folder).as_posix() for p in self.pictures],
        }

    def _encoder(self, encoder: str) -> dict[str, Any]:
        c, spent = self.comparison, self.time_spent(encoder)
        records = {task: c.record(encoder, task) for task in c.tasks}
        return {
            **c.facts.get(encoder, {}),
            "tasks": {task: _task(record) for task, record in records.items() if record},
            "averages": {
                average.name: {"value": average.value, "missing": list(average.missing)}
                for average in self.averages[encoder]
            },
            "time": {
                "embedding_seconds": spent.embedding,
                "embedded_sentences": spent.embedded,
                "stored_sentences": spent.stored,
                "store_seconds": spent.storing,
                "requested_sentences": spent.requested,
                "scoring_seconds": spent.scoring,
                "scoring_share": spent.share,
                "interval_seconds": spent.intervals,
            },
        }


def _tested(test: PairTest) -> dict[str, Any]:
    return {**test._asdict(), "interval": list(test.interval)}


def _task(record: Record) -> dict[str, Any]:
    scores = {
        score.name: _bounded(score.value, record.intervals.get(score.name))
        for score in record.result.scores
    }
    fields = vars(record.result) | {"scores": scores}
    return {name: value for name, value in fields.items() if name != "task"}


def _differences(found: Mapping[str, Mapping[str, Difference]]) -> dict[str, Any]:
    return {
        encoder: {task: _bounded(*difference) for task, difference in of_one.items()}
        for encoder, of_one in found.items()
    }


def _bounded(value: float, interval: Interval | None) -> dict[str, Any]:
    return {
        "value": value if math.isfinite(value) else None,
        "interval": list(interval) if interval else None,
    }


def heading(report: Contents) -> str:
    """Return the title, the size of the comparison, hints and collapse alarms in Markdown."""
    c, count, tasks = report.whole, len(report.whole.encoders), len(report.whole.shown())
    missing = f" ({len(c.missing())} more have no data)" if c.missing() else ""
    lines = [
        "# Sentence embeddings",
        f"{count} encoder{'s' * (count != 1)} on {tasks} task{'s' * (tasks != 1)}{missing}, "
        f"protocol `{report.about.protocol.get('name', '?')}`, {report.about.made[:10]}.",
        *(f"> {hint}" for hint in report.about.hints),
    ]
    for encoder, task, note in alarms(report):
        lines.append(f"> **{text(encoder)}**, {text(task)}: {text(note)}")
    return "\n\n".join(lines)


def failures(report: Contents) -> str:
    """Return the section on encoders and tasks that failed; empty without failures."""
    rows = [(encoder, "all", error) for encoder, error in report.not_opened.items()]
    rows += report.comparison.failures()
    return section("Failed", table(["encoder", "task", "what happened"], rows)) if rows else ""
