"""All tasks of a data folder, and a run of an encoder over some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from declutr.evaluation.scores import Score
from declutr.evaluation.sentence_vectors import Encode
from declutr.evaluation.task import PUBLISHED, Protocol, Task


@dataclass
class TaskResult:
    """What came of a task for one encoder."""

    task: str
    group: str
    main: str
    """The name of the score that stands for the task."""
    scores: list[Score] = field(default_factory=list)
    """None if it could not be scored."""
    error: str | None = None
    """Why it could not be scored, in words for the user."""
    missing: bool = False
    """Whether that is because there is no data for it."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Spent on scoring (classifiers), embedding not included."""


def all_tasks(
    data: str | Path, protocol: Protocol = PUBLISHED, corpus: str | Path | None = None
) -> list[Task]:
    """Every task there is, those without data included, in the order of the report.

    # Parameters

    data : a folder laid out as SentEval's (`downstream/`, `probing/`).
    corpus : documents, one a line, for label-free span retrieval; left out without.
    """
    raise NotImplementedError  # being written


def chosen(tasks: Sequence[Task], patterns: Sequence[str]) -> list[Task]:
    """Those whose name or group matches one of some shell patterns (`STS*`, `probing`).

    # Raises

    `ValueError` : a pattern matches nothing; it lists the names there are.
    """
    raise NotImplementedError  # being written


def evaluate(encode: Encode, tasks: Sequence[Task], progress: bool = False) -> Iterator[TaskResult]:
    """Embed all sentences of the tasks, each different one once; then a result for each task.

    A task that fails is a result with an error; the others go on.
    """
    raise NotImplementedError  # being written
