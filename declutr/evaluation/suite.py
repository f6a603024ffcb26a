"""The list of all tasks of a data folder, and the evaluation of an encoder on some of them."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tqdm.auto import tqdm

from declutr.evaluation.scores import Score
from declutr.evaluation.sentence_vectors import Encode, SentenceVectors
from declutr.evaluation.task import PUBLISHED, MissingData, Protocol, Task, TaskError
from declutr.system import is_sigterm, local_path

logger = logging.getLogger(__name__)

LAYOUT = ("downstream", "probing", "probing_surrogate", "retrieval", "extra")
"""Names of the subfolders of a data folder, not all of which need be there."""

_TASKS = ("MR", "CR", "MPQA", "SUBJ", "SST", "TREC", "MRPC", "SICK", "SNLI", "COCO", "STS")
_INSIDE = {
    "downstream": _TASKS,
    **{f"downstream/{task}": ("*",) for task in _TASKS},
    "probing": ("*.txt",),
    "probing_surrogate": ("*.txt",),
    "retrieval": ("*/corpus.jsonl", "*/*/corpus.jsonl"),
    "extra": ("ag_news_test", "askubuntu", "cranfield"),
}
"""Folders inside a data folder, each with patterns of files or folders that it contains."""


@dataclass
class TaskResult:
    """The outcome of a task for one encoder: its scores, or the reason why there are none."""

    task: str
    group: str
    main: str
    """The name of the score that stands for the task."""
    scores: list[Score] = field(default_factory=list)
    """The scores; empty if the task could not be scored."""
    error: str | None = None
    """The reason why the task could not be scored, in words for the user; None if it was."""
    missing: bool = False
    """Whether the task could not be scored because it has no data."""
    notes: list[str] = field(default_factory=list)
    """Remarks that a reader of the scores should know."""
    seconds: float = 0.0
    """The time spent on scoring, such as the training of classifiers, without embedding."""


def all_tasks(
    data: str | Path, protocol: Protocol = PUBLISHED, corpus: str | Path | None = None
) -> list[Task]:
    """Return every task, those without data included, in the order of the report.

    # Parameters

    data : a folder in SentEval's layout (`downstream/`, `probing/`), or one with tasks of the
        user's own (`declutr.evaluation.tasks.described_tasks`), or both in one.
    protocol : the settings of classifiers and regressors.
    corpus : a file of documents, one a line, for label-free span retrieval; without it, that task
        is left out.

    # Raises

    `ValueError` : `data` is a folder above or below a data folder, or a description is wrong.
    """
    from declutr.evaluation.tasks.described_tasks import described_tasks
    from declutr.evaluation.tasks.task_description import (
        DESCRIPTION,
        descriptions,
        without_description,
    )

    data = local_path(data)
    tasks = _built_in(data, protocol)
    if any(descriptions(data)):
        own = described_tasks(data, protocol, {task.name for task in tasks})
        parts = [data / name for name in LAYOUT if (data / name).is_dir()]
        published = any(not (part / DESCRIPTION).is_file() for part in parts)
        for folder in without_description(data) if not published else ():
            logger.warning("'%s' has no %s, and is left out.", folder, DESCRIPTION)
        tasks = [*tasks, *own] if published else own
    else:
        require_data_folder(data)
    if corpus is not None:
        from declutr.evaluation.tasks.retrieval import SpanRetrieval

        tasks.append(SpanRetrieval(local_path(corpus)))
    return tasks


def _built_in(data: Path, protocol: Protocol) -> list[Task]:
    """Return the tasks of all modules, for a folder in SentEval's layout; parts may be absent."""
    from declutr.evaluation.tasks import (
        askubuntu,
        caption_retrieval,
        classification,
        geometry,
        probing,
        relatedness,
        retrieval,
    )

    modules = (
        *(classification, relatedness, caption_retrieval, probing),
        *(retrieval, askubuntu, geometry),
    )
    return [task for module in modules for task in module.tasks(data, protocol)]


def require_data_folder(folder: Path) -> None:
    """Raise if a folder lies above or below a data folder, where no task would find its files.

    A folder that resembles neither is accepted, because it may be empty.

    # Raises

    `ValueError` : the folder lies above or below a data folder; the message names the right one.
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


def chosen(
    tasks: Sequence[Task], patterns: Sequence[str], protocol: Protocol = PUBLISHED
) -> list[Task]:
    """Return the tasks whose name or group matches one of the shell patterns (`STS*`, `probing`).

    A pattern may also be a folder of tasks of the user's own, or the name of another score of a
    classification task: `few-shot:TREC`, `knn:SST*`, `clustering:TREC`.

    # Raises

    `ValueError` : a pattern matches nothing, and the message lists all names and groups; or a
        description is wrong.
    """
    from declutr.evaluation.tasks.described_tasks import named_tasks

    taken = {task.name for task in (*_built_in(Path(os.devnull), protocol), *tasks)}
    wanted: list[Task] = []
    for pattern in patterns:
        matching = [
            task
            for task in tasks
            if fnmatchcase(task.name, pattern) or fnmatchcase(task.group, pattern)
        ]
        matching = matching or named_tasks(
            pattern, tasks, protocol, taken | {task.name for task in wanted}
        )
        if not matching:
            groups = ", ".join(dict.fromkeys(task.group for task in tasks))
            names = ", ".join(task.name for task in tasks)
            raise ValueError(
                f"No task or group matches {pattern!r}. Groups: {groups}. Tasks: {names}. A folder "
                "of your own tasks has a task.json, or folders that have one."
            )
        wanted += (task for task in matching if task not in wanted)
    return [*(task for task in tasks if task in wanted), *(t for t in wanted if t not in tasks)]


def evaluate(encode: Encode, tasks: Sequence[Task], progress: bool = False) -> Iterator[TaskResult]:
    """Embed each distinct sentence of the tasks once, then yield a result for each task in order.

    A task that fails yields a result with an error, and the others go on. If the encoder fails, all
    tasks fail; if only some embeddings have the wrong shape, only the tasks that need them fail.

    A task may name attributes, with their initial values, in a dictionary `before_scoring`. They
    are reset to these values after scoring, so that nothing about one encoder remains for the next.

    # Parameters

    encode : a function from n texts to their embeddings `(n, d)`.
    tasks : the tasks to score.
    progress : show progress bars.
    """
    failed: dict[int, TaskResult] = {}  # by index of the task
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
            _ = score.value  # items that do not fit the statistic raise here, within this task
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
    """Raise the error if it has to end the process; otherwise leave it to the caller to report."""
    if is_sigterm(error):
        raise error


def in_words(error: Exception) -> str:
    """Return the message of an error; for an unexpected error, the name of its type comes first."""
    text = str(error).strip()
    if isinstance(error, TaskError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
