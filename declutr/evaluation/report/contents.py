"""The contents of a report, which all of its forms share."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from declutr.evaluation.report.averages import Average, Definition
from declutr.evaluation.report.comparison import Comparison, Difference
from declutr.evaluation.report.dimensions import curves, losses, whole_encoders
from declutr.evaluation.report.pairs import TESTED, pairs
from declutr.evaluation.report.plots import Picture
from declutr.evaluation.report.quoted import Quoted
from declutr.evaluation.report.ranking import ranking


@dataclass(frozen=True)
class About:
    """The facts about a run that a report states.

    # Parameters

    command : the command line.
    data : the folder of the data, as the user gave it.
    protocol : the settings of the protocol by name.
    versions : versions of libraries by name.
    made : the time of the report in ISO 8601.
    hints : remarks for the user, such as how to get pictures.
    """

    command: str
    data: str
    protocol: Mapping[str, Any]
    versions: Mapping[str, str]
    made: str
    hints: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class TimeSpent:
    """The seconds and the sentences that an encoder took in all of its runs."""

    embedding: float
    """Seconds of embedding."""
    embedded: int
    """The number of sentences that went through the encoder."""
    requested: int
    """The number of sentences that tasks asked for, with repetitions."""
    tasks: dict[str, float]
    """Seconds of scoring by task."""
    intervals: float
    """Seconds of computing intervals of scores."""
    stored: int
    """The number of sentences whose embedding was stored before."""
    storing: float
    """Seconds of reading and writing stored embeddings."""

    @property
    def scoring(self) -> float:
        """Seconds of scoring in total."""
        return sum(self.tasks.values())

    @property
    def total(self) -> float:
        """Seconds of embedding, storing, scoring and intervals together."""
        return self.embedding + self.storing + self.scoring + self.intervals

    @property
    def share(self) -> float | None:
        """The share of scoring in the total time, 0 to 1; None if no time was spent."""
        return self.scoring / self.total if self.total else None


@dataclass
class Contents:
    """The contents of a report; differences are computed once, on construction.

    # Parameters

    comparison : the results; truncated encoders (`declutr.evaluation.report.dimensions`) are shown
        in a section of their own.
    averages : the averages of each encoder, all in the same order.
    about : facts about the run.
    pictures : pictures that were drawn; links to them are relative to `folder`.
    folder : the folder that the report will be written to.
    not_opened : encoders that could not be opened, with the reason.
    quoted : rows of papers' tables to show beside the results.
    rank_by : the definition of the score that encoders are ordered by; None for no ranking.
    left_out : folder, encoder and tasks of results that are not comparable, with the reason.
    """

    comparison: Comparison
    averages: Mapping[str, Sequence[Average]]
    about: About
    pictures: Sequence[Picture] = ()
    folder: Path = Path()
    not_opened: Mapping[str, str] = field(default_factory=dict)
    quoted: Sequence[Quoted] = ()
    rank_by: Definition | None = None
    left_out: Sequence[tuple[str, str, str, str]] = ()

    def __post_init__(self) -> None:
        start = time.perf_counter()
        self.whole = whole_encoders(self.comparison)
        by = self.rank_by
        definitions = list(TESTED)
        if by is not None and by not in TESTED and by.name not in self.comparison.tasks:
            definitions.append(by)
        self.pairs = pairs(self.whole, definitions)
        self.contestants = self.pairs.contestants
        self.ranking = (
            None if by is None else ranking(self.whole, self.contestants, self.quoted, by)
        )
        self.differences: dict[str, dict[str, Difference]] = {
            encoder: self.whole.differences(encoder) for encoder in self.whole.encoders[1:]
        }
        self.curves = curves(self.comparison)
        self.losses = losses(self.comparison)
        self.comparing_seconds = time.perf_counter() - start

    def averages_of(self, encoder: str) -> dict[str, float]:
        """Return the averages that an encoder has, by name."""
        of_one = self.averages[encoder]
        return {average.name: average.value for average in of_one if average.value is not None}

    def picture(self, name: str) -> str:
        """Return a picture with its caption in Markdown; empty text if it was not drawn."""
        for picture in self.pictures:
            if picture.path.stem == name:
                place = picture.path.relative_to(self.folder).as_posix()
                return f"![{picture.title}]({place})\n\n*{picture.caption}*"
        return ""

    def time_spent(self, encoder: str) -> TimeSpent:
        """Return the time that an encoder took in all of its runs into this folder."""
        runs = self.comparison.facts.get(encoder, {}).get("runs", [])
        names = ("seconds", "embedded", "requested", "stored", "store_seconds")
        # Releases up to 2.2 stored no embeddings.
        total = {name: sum(run.get(name, 0) for run in runs) for name in names}
        records = {
            task: record
            for task in self.comparison.tasks
            if (record := self.comparison.record(encoder, task))
        }
        tasks = {task: record.result.seconds for task, record in records.items()}
        intervals = sum(record.interval_seconds for record in records.values())
        return TimeSpent(
            total["seconds"],
            total["embedded"],
            total["requested"],
            tasks,
            intervals,
            total["stored"],
            total["store_seconds"],
        )
