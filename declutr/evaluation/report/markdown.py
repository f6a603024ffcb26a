"""A comparison of encoders: Markdown for people, JSON for programs, lines for a terminal."""

from __future__ import annotations

from typing import Any

from declutr.evaluation.report import run_sections as of_run
from declutr.evaluation.report import score_sections as of_scores
from declutr.evaluation.report.as_json import FORMAT, as_json
from declutr.evaluation.report.contents import About, Contents
from declutr.evaluation.report.dimension_sections import dimension_rows, dimensions
from declutr.evaluation.report.score_sections import CONVENTION
from declutr.evaluation.report.tables import aligned

__all__ = ["CONVENTION", "FORMAT", "About", "Report"]


class Report(Contents):
    """All that is reported, in each of its forms; `Contents` has the parameters."""

    def markdown(self) -> str:
        """The report, GitHub's Markdown."""
        parts = [
            of_run.heading(self),
            of_run.failures(self),
            of_scores.scores(self),
            self.picture("tasks"),
            of_scores.averages(self),
            of_scores.conventions(self),
            self.picture("similarities"),
            of_scores.geometry(self),
            self.picture("plane"),
            self.picture("map"),
            dimensions(self),
            of_scores.differences(self),
            of_run.missing(self),
            of_run.notes(self),
            of_run.time(self),
            of_run.encoders(self),
            of_run.method(self),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The same for programs, and every score: JSON values; what is not a number is null."""
        return as_json(self)

    def summary(self) -> list[str]:
        """The main scores in lines for a terminal."""
        c = self.whole
        tasks = [task for tasks in c.groups().values() for task in tasks]
        rows = [["", *c.encoders]]
        for task in tasks:
            cells = [c.cell(encoder, task) for encoder in c.encoders]
            rows.append([task, *("–" if cell is None else f"{cell.value:.2f}" for cell in cells)])
        lines = aligned(rows)
        if by_dimension := dimension_rows(self):
            lines += ["", *aligned(by_dimension), ""]
        missing = self.comparison.missing()
        if missing:
            lines.append(f"No data: {', '.join(missing)}")
        for encoder, task, error in self.comparison.failures():
            lines.append(f"Failed: {encoder} on {task}: {error}")
        return lines
