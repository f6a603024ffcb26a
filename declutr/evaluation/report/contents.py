"""What a report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from declutr.evaluation.report.averages import Average
from declutr.evaluation.report.comparison import Comparison, Difference
from declutr.evaluation.report.dimensions import curves, losses, whole_encoders
from declutr.evaluation.report.plots import Picture


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


@dataclass(frozen=True)
class TimeSpent:
    """What an encoder took in all runs: seconds, and sentences."""

    embedding: float
    embedded: int
    requested: int
    tasks: dict[str, float]
    """Seconds of scoring, by task."""

    @property
    def scoring(self) -> float:
        return sum(self.tasks.values())

    @property
    def share(self) -> float | None:
        """Of scoring, among all."""
        total = self.embedding + self.scoring
        return self.scoring / total if total else None


@dataclass
class Contents:
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
            encoder: self.whole.differences(encoder) for encoder in self.whole.encoders[1:]
        }
        self.curves = curves(self.comparison)
        self.losses = losses(self.comparison)

    def picture(self, name: str) -> str:
        """A picture in Markdown; nothing, if it was not drawn."""
        for picture in self.pictures:
            if picture.path.stem == name:
                place = picture.path.relative_to(self.folder).as_posix()
                return f"![{picture.title}]({place})\n\n*{picture.caption}*"
        return ""

    def time_spent(self, encoder: str) -> TimeSpent:
        """What an encoder took, over all its runs into this folder."""
        runs = self.comparison.facts.get(encoder, {}).get("runs", [])
        embedding, embedded, requested = (
            sum(run[name] for run in runs) for name in ("seconds", "embedded", "requested")
        )
        tasks = {
            task: record.result.seconds
            for task in self.comparison.tasks
            if (record := self.comparison.record(encoder, task))
        }
        return TimeSpent(embedding, embedded, requested, tasks)
