"""Names of tasks, and what a configuration says of a task or of a user's own files."""

from typing import Optional, Union

from allennlp.common.checks import ConfigurationError

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Column
from declutr.system import raised_as
from declutr.system.nearest import did_you_mean
from declutr.task_models.glue.labelled_rows import SENTEVAL_TASKS
from declutr.task_models.glue.layouts import LAYOUTS, Classes, Layout, Scores

TASKS = [*LAYOUTS, *SENTEVAL_TASKS]
LABELS = ("class", "score")
Columns = Union[str, int, list[Union[str, int]]]


def task_and_layout(
    task: Optional[str],
    texts: Optional[Columns],
    label: Optional[Union[str, int]],
    labels: Optional[str],
    header: Optional[bool],
) -> tuple[Optional[str], Optional[Layout]]:
    """Return the name of the task, if any, and the layout, if the files have columns.

    # Raises

    `ConfigurationError` : values are unknown or contradict each other.
    `SourceError` : the task is unknown.
    """
    given = {"texts": texts, "label": label, "labels": labels, "header": header}
    if task is not None:
        task = task_name(task, TASKS)
        needless = [key for key, value in given.items() if value is not None]
        if needless:
            raise ConfigurationError(
                f"The task '{task}' says where everything is, but {', '.join(needless)} is given "
                "too. Remove it, or the task for files of your own."
            )
        return task, LAYOUTS.get(task)
    columns = tuple(texts if isinstance(texts, list) else [] if texts is None else [texts])
    if len(columns) not in (1, 2):
        raise ConfigurationError(
            f"Got {len(columns)} column(s) of texts and no task. Expected texts with one column or "
            f"two, by name or number, or a task: {', '.join(TASKS)}."
        )
    if labels is not None and labels not in LABELS:
        raise ConfigurationError(f"Unknown labels '{labels}': expected one of {', '.join(LABELS)}.")
    if labels is not None and label is None:
        raise ConfigurationError(
            f"labels is '{labels}', but no label says in which column they are. Give its name or "
            "number, or remove labels."
        )
    numbers = [column for column in (*columns, label) if isinstance(column, int)]
    names = [column for column in (*columns, label) if isinstance(column, str)]
    if any(number < 0 for number in numbers):
        raise ConfigurationError(f"Columns are numbered from 0, got {min(numbers)}.")
    if names and (header is False or (header is None and numbers)):
        raise ConfigurationError(
            f"Columns have names only with a header, got {names}"
            f"{f' and {numbers}' if numbers else ''}. Set header to true if the first line has "
            "them, or give numbers alone, from 0."
        )
    return None, own_layout(columns, label, labels == "score", header)


def task_and_kind(task: Optional[str], labels: Optional[str]) -> tuple[Optional[str], bool]:
    """Return the name of the task, if any, and whether its labels are scores."""
    if labels is not None and labels not in LABELS:
        raise ConfigurationError(f"Unknown labels '{labels}': expected one of {', '.join(LABELS)}.")
    if task is None:
        return None, labels == "score"
    with raised_as(ConfigurationError, SourceError):
        task = task_name(task, TASKS)
    scores = task in LAYOUTS and isinstance(LAYOUTS[task].labels, Scores)
    if labels is not None and (labels == "score") != scores:
        raise ConfigurationError(
            f"The task '{task}' has {'scores' if scores else 'classes'}, but labels is '{labels}'. "
            "Remove labels."
        )
    return task, scores


def own_layout(
    texts: tuple[Column, ...], label: Column | None, scores: bool, header: bool | None
) -> Layout:
    """Return the layout of a user's own files, in which only an empty label means "no label".

    # Parameters

    texts, label : columns, by name or by number from 0.
    scores : whether labels are numbers instead of classes.
    header : whether there is a header; by default there is unless a column is given by number.
    """
    columns = texts if label is None else (*texts, label)
    if header is None:
        header = not any(isinstance(column, int) for column in columns)
    places = tuple((column,) for column in texts), () if label is None else (label,)
    kind = Scores(unlabelled=("",)) if scores else Classes(unlabelled=("",))
    return Layout(*places, kind, header)


def task_name(task: str, known: list[str]) -> str:
    """Return the known name of a task, ignoring case, hyphens and underscores.

    # Raises

    `SourceError` : the name is unknown.
    """
    plain = {_plain(name): name for name in known}
    if _plain(task) in plain:
        return plain[_plain(task)]
    raise SourceError(
        f"No task '{task}': expected one of {', '.join(known)}, or null for files of your own, "
        f"with texts and label that name their columns.{did_you_mean(task, known)}"
    )


def _plain(task: str) -> str:
    return task.lower().replace("-", "").replace("_", "")
