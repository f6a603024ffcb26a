"""The report of a comparison: Markdown for people, JSON for programs, lines for a terminal."""

import math
from collections.abc import Mapping
from typing import Any

from declutr.evaluation.bootstrap import Interval
from declutr.evaluation.report import score_sections as of_scores
from declutr.evaluation.report.comparison import Difference
from declutr.evaluation.report.contents import About, Contents
from declutr.evaluation.report.score_sections import CONVENTION, alarms
from declutr.evaluation.report.tables import aligned, seconds, section, table, text
from declutr.evaluation.report.truncated_encoders import WHOLE
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
            of_scores.scores(self),
            self.picture("tasks"),
            of_scores.averages(self),
            of_scores.conventions(self),
            self.picture("similarities"),
            of_scores.geometry(self),
            self.picture("plane"),
            self.picture("map"),
            of_scores.dimensions(self),
            of_scores.differences(self),
            missing(self),
            notes(self),
            time(self),
            encoders(self),
            method(self),
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
        if by_dimension := of_scores.dimension_rows(self):
            lines += ["", *aligned(by_dimension), ""]
        if missing := self.comparison.missing():
            lines.append(f"No data: {', '.join(missing)}")
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


def missing(report: Contents) -> str:
    """Return the section on tasks without data; empty if all have data."""
    missing = report.comparison.missing()
    if not missing:
        return ""
    lines = [f"* {text(task)}: {text(reason)}" for task, reason in missing.items()]
    about = "These tasks have no score, and no average that needs them is given."
    return section("Missing data", about, "\n".join(lines))


def notes(report: Contents) -> str:
    """Return the section with notes on tasks; empty without notes."""
    c = report.comparison
    lines = []
    for task, notes in c.notes().items():
        for note, encoders in notes.items():
            whose = "" if len(encoders) == len(c.encoders) else f" ({', '.join(encoders)})"
            lines.append(f"* {text(task)}: {text(note + whose)}")
    return section("Notes on tasks", "\n".join(lines)) if lines else ""


def time(report: Contents) -> str:
    """Return the section on the time that embedding and scoring took."""
    rows = []
    for encoder in report.comparison.encoders:
        spent = report.time_spent(encoder)
        timed = spent.embedded and spent.embedding
        longest = sorted(spent.tasks.items(), key=lambda item: -item[1])[:3]
        rows.append(
            [
                encoder,
                seconds(spent.embedding),
                f"{spent.embedded:,}",
                f"{spent.requested:,}",
                f"{spent.embedded / spent.embedding:,.0f}" if timed else "–",
                seconds(spent.scoring),
                "–" if spent.share is None else f"{100 * spent.share:.0f} %",
                seconds(spent.intervals),
                f"{spent.stored:,}",
                ", ".join(f"{task} {seconds(took)}" for task, took in longest if took >= 0.05),
            ]
        )
    header = ["encoder", "embedding", "sentences embedded", "asked for by tasks", "a second"]
    header += ["scoring", "share of scoring", "intervals", "stored before", "longest"]
    about = (
        "Each different sentence is embedded once, and leading dimensions are cut from that. Those "
        "that were stored before are not embedded again. Scoring is mostly the training of "
        "classifiers."
    )
    return section("Time", about, table(header, rows))


def encoders(report: Contents) -> str:
    """Return the section that describes the encoders."""
    rows = []
    for encoder in report.comparison.encoders:
        facts = report.comparison.facts.get(encoder, {})
        described = dict(facts.get("description", {}))
        dimension, mark = described.pop("dimension", None), described.pop("fingerprint", "")
        parameters = described.pop("parameters", None)
        mark, cut, kept = mark.partition("@")
        known = described | (facts.get("counts") or {})
        if WHOLE in described:  # the row of the whole encoder has the rest
            known = {WHOLE: described[WHOLE]}
        told = ", ".join(
            f"{name.replace('_', ' ')} {f'{value:,}' if type(value) is int else value}"
            for name, value in known.items()
            if value is not None
        )
        given, short = str(facts.get("spec", "")).strip(), f"{mark[:12]}{cut}{kept}"
        sizes = [f"{size:,}" if size else "–" for size in (parameters, dimension)]
        rows.append([encoder, f"`{given}`", *sizes, told, f"`{short}`"])
    header = ["encoder", "given as", "parameters", "dimension", "what it is", "fingerprint"]
    return section("Encoders", table(header, rows))


_INTERVALS = (
    "95 %, percentiles of {:,} bootstrap samples of test items (Efron, 1979), drawn within subsets "
    "where a test set has some. Scores on folds of cross-validation count every item once. They "
    "hold for these embeddings and these classifiers; other seeds of training may differ by more."
)


def method(report: Contents) -> str:
    """Return the section on how the report was made."""
    about, drawn = report.about, report.comparison.resamples
    lines = [
        f"* Command: `{about.command}`",
        f"* Data: `{about.data}`",
        f"* Protocol: {_listed(about.protocol)}",
        f"* Versions: {_listed(about.versions)}",
        f"* Made: {about.made}",
        f"* Intervals: {_INTERVALS.format(drawn)}"
        if drawn
        else "* Intervals: none were asked for.",
    ]
    return section("How this was made", "\n".join(lines))


def _listed(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
