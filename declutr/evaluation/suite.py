"""All tasks of a data folder, and a run of an encoder over some of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tqdm.auto import tqdm

from declutr.evaluation.scores import Score
from declutr.evaluation.sentence_vectors import Encode, SentenceVectors
from declutr.evaluation.task import PUBLISHED, MissingData, Protocol, Task, TaskError

logger = logging.getLogger(__name__)

_STOPS = ("SigTermReceived",)
"""Exceptions, by name, that end the process: AllenNLP's handler of SIGTERM raises this one."""

LAYOUT = ("downstream", "probing", "probing_surrogate", "retrieval", "extra")
"""Folders of the data, of which some are there."""

_TASKS = ("MR", "CR", "MPQA", "SUBJ", "SST", "TREC", "MRPC", "SICK", "SNLI", "COCO", "STS")
_INSIDE = {
    "downstream": _TASKS,
    **{f"downstream/{task}": ("*",) for task in _TASKS},
    "probing": ("*.txt",),
    "probing_surrogate": ("*.txt",),
    "retrieval": ("*/corpus.jsonl",),
    "extra": ("ag_news_test", "cranfield"),
}
"""Folders further down, and what they hold, as patterns."""


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

    # Raises

    `ValueError` : `data` is a folder above or below such a one.
    """
    from declutr.evaluation.tasks import (
        caption_retrieval,
        classification,
        geometry,
        probing,
        relatedness,
        retrieval,
    )

    modules = (classification, relatedness, caption_retrieval, probing, retrieval, geometry)
    require_data_folder(Path(data))
    tasks = [task for module in modules for task in module.tasks(Path(data), protocol)]
    if corpus is not None:
        tasks.append(retrieval.SpanRetrieval(Path(corpus)))
    return tasks


def require_data_folder(folder: Path) -> None:
    """See that a folder is not one above or below that with the data, where nothing is found.

    One that looks like neither will do: it may be empty.

    # Raises

    `ValueError` : it is; the error names the right one.
    """
    if _is_laid_out(folder):
        return
    if _is_laid_out(folder / "data"):
        names = ", ".join(f"{name}/" for name in LAYOUT)
        raise ValueError(
            f"'{folder}' has none of {names}; '{folder / 'data'}' has. Give that folder."
        )
    for inside, patterns in _INSIDE.items():
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            continue
        parts = Path(inside).parts
        for place in (folder.absolute(), folder.resolve()):
            if place.parts[-len(parts) :] == parts:
                raise ValueError(
                    f"'{folder}' is {inside}/ itself, expected the folder that it is in: "
                    f"'{place.parents[len(parts) - 1]}'. Give that folder."
                )
        if inside == "downstream":
            held = ", ".join(task for task in _TASKS if (folder / task).exists())
            raise ValueError(
                f"'{folder}' holds {held}, expected a folder laid out as SentEval's, with them in "
                "downstream/. Put them into a folder of that name, and give the one that it is in."
            )


def _is_laid_out(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in LAYOUT)


def chosen(tasks: Sequence[Task], patterns: Sequence[str]) -> list[Task]:
    """Those whose name or group matches one of some shell patterns (`STS*`, `probing`).

    # Raises

    `ValueError` : a pattern matches nothing; it lists the names there are.
    """

    def matches(task: Task, pattern: str) -> bool:
        return fnmatchcase(task.name, pattern) or fnmatchcase(task.group, pattern)

    for pattern in patterns:
        if not any(matches(task, pattern) for task in tasks):
            groups = ", ".join(dict.fromkeys(task.group for task in tasks))
            names = ", ".join(task.name for task in tasks)
            raise ValueError(
                f"No task or group matches {pattern!r}. Groups: {groups}. Tasks: {names}."
            )
    return [task for task in tasks if any(matches(task, pattern) for pattern in patterns)]


def evaluate(encode: Encode, tasks: Sequence[Task], progress: bool = False) -> Iterator[TaskResult]:
    """Embed all sentences of the tasks, each different one once; then a result for each task.

    A task that fails is a result with an error; the others go on. If the encoder fails, all do; if
    some of its embeddings are of another shape, those that need them.

    Attributes that a task names in a dictionary `before_scoring`, with their first values, have
    those again after it is scored: what is noted of an encoder is not there for the next.
    """
    failed: dict[int, TaskResult] = {}  # by place among the tasks
    sentences: dict[str, None] = {}  # an ordered set
    for place, task in enumerate(tasks):
        try:
            sentences.update(dict.fromkeys(task.sentences()))
        except Exception as error:
            failed[place] = _failure(task, error)
    vectors = SentenceVectors(encode, progress=progress)
    broken: str | None = None
    try:
        vectors.add(sentences)
    except Exception as error:
        go_on_after(error)
        broken = f"The encoder failed. {in_words(error)}"
        logger.warning("The encoder failed.", exc_info=not isinstance(error, TaskError))
    del sentences
    with tqdm(total=len(tasks), desc="scoring", unit="task", disable=not progress) as bar:
        for place, task in enumerate(tasks):
            bar.set_postfix_str(task.name)
            if place in failed:
                yield failed[place]
            elif broken is not None:
                yield TaskResult(task.name, task.group, task.main, error=broken)
            else:
                yield _scored(task, vectors)
            bar.update()


def _scored(task: Task, vectors: SentenceVectors) -> TaskResult:
    start = time.perf_counter()
    try:
        scores = list(task.scores(vectors))
        names = [score.name for score in scores]
        if task.main not in names or len(set(names)) < len(names):
            raise TaskError(
                f"Expected scores of different names, {task.main!r} among them, got {names}."
            )
        for score in scores:
            _ = score.value  # items that a statistic cannot take show here, as this task's fault
        result = TaskResult(task.name, task.group, task.main, scores, notes=list(task.notes()))
    except Exception as error:
        result = _failure(task, error)
    finally:
        vars(task).update(getattr(task, "before_scoring", {}))
    result.seconds = time.perf_counter() - start
    return result


def _failure(task: Task, error: Exception) -> TaskResult:
    go_on_after(error)
    if not isinstance(error, TaskError):
        logger.warning("%s failed.", task.name, exc_info=error)
    missing = isinstance(error, MissingData)
    return TaskResult(task.name, task.group, task.main, error=in_words(error), missing=missing)


def go_on_after(error: Exception) -> None:
    """Raise what ends the process; anything else is for the caller to tell."""
    if type(error).__name__ in _STOPS:
        raise error


def in_words(error: Exception) -> str:
    """What went wrong; with the type, if nobody foresaw it."""
    text = str(error).strip()
    if isinstance(error, TaskError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
