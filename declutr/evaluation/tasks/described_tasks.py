"""Tasks of one's own data: made of folders with a `task.json`, without Python."""

import os
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from declutr.evaluation.task import Protocol, Task, TaskError
from declutr.evaluation.tasks.described_documents import reranking, retrieval
from declutr.evaluation.tasks.described_pairs import bitext_mining, pair_classification, similarity
from declutr.evaluation.tasks.described_texts import VARIANTS, classification, variant
from declutr.evaluation.tasks.labelled_text import ClassificationTask
from declutr.evaluation.tasks.summarisation import summarisation
from declutr.evaluation.tasks.task_description import (
    DESCRIPTION,
    Description,
    descriptions,
    read_description,
)


def described_tasks(place: Path, protocol: Protocol, taken: Collection[str] = ()) -> list[Task]:
    """Return the tasks of a folder with a `task.json`, or of the folders in it that have one.

    The data are read later, by `Task.sentences`.

    # Parameters

    place : the folder.
    protocol : the settings of classifiers and regressors.
    taken : names that the tasks must not have.

    # Raises

    `ValueError` : there is no description, some are wrong, or two tasks have the same name. The
        message has a line for each of these.
    """
    files = list(descriptions(place))
    if not files:
        raise ValueError(
            f"Found no {DESCRIPTION} in '{place}', expected one there, or in each of its folders."
        )
    found: list[Task] = []
    errors = []
    for file in files:
        try:
            made = _tasks_of(read_description(file), protocol)
        except TaskError as error:
            errors.append(str(error))
            continue
        for task in made:
            if task.name in taken or task.name in [other.name for other in found]:
                errors.append(
                    f'{file}: another task is called {task.name!r}. Give this one a "name" of its '
                    "own."
                )
        found += made
    raise_all(errors, len(files))
    return found


def named_tasks(
    pattern: str, tasks: Sequence[Task], protocol: Protocol, taken: Collection[str]
) -> list[Task]:
    """Return the tasks that a folder holds, or the variants of tasks, as in `few-shot:TREC`.

    # Parameters

    pattern : a folder, or a variant and a shell pattern of names or groups.
    tasks : the known tasks; those of a folder are not made again.
    protocol : the settings of new tasks.
    taken : names that tasks of a folder must not have.

    # Returns

    The tasks; none if the pattern is neither of these.
    """
    kind, colon, names = pattern.partition(":")
    if colon and kind in VARIANTS:
        return [
            VARIANTS[kind](task, protocol)
            for task in tasks
            if isinstance(task, ClassificationTask)
            and (fnmatchcase(task.name, names) or fnmatchcase(task.group, names))
            and (task.combine is None or kind != "clustering")  # pairs are not clustered
        ]
    place = Path(pattern)
    if not place.exists() or not (os.sep in pattern or any(descriptions(place))):
        return []
    files = {file.resolve() for file in descriptions(place)}
    known = [t for t in tasks if t.described_in and t.described_in.resolve() in files]
    return known or described_tasks(place, protocol, taken)


def check_data(tasks: Sequence[Task]) -> None:
    """Read the data of the tasks that are the user's own, before anything is embedded.

    # Raises

    `ValueError` : data cannot be used; the message has a line for each task.
    """
    tasks = [task for task in tasks if task.described_in is not None]
    errors = []
    for task in tasks:
        try:
            task.sentences()
        except TaskError as error:
            named = str(task.described_in and task.described_in.parent) in str(error)
            errors.append(f"{error}" if named else f"{task.described_in}: {error}")
    raise_all(errors, len(tasks))


def raise_all(errors: Sequence[str], count: int) -> None:
    """Raise `ValueError` with a line for each different error, if there is any."""
    errors = list(dict.fromkeys(errors))
    if errors:
        more = f"{len(errors)} of {count} tasks cannot be used:\n" if len(errors) > 1 else ""
        raise ValueError(more + "\n".join(errors))


def _tasks_of(about: Description, protocol: Protocol) -> list[Task]:
    """Return a task for each type; those after the first have the type before their name."""
    found: list[Task] = []
    for kind in about.types:
        task = _MAKERS[kind](about, protocol)
        task.name = about.name if kind == about.types[0] else f"{kind}:{about.name}"
        task.described_in = about.path
        found.append(task)
    return found


_MAKERS: dict[str, Callable[[Description, Protocol], Task]] = {
    "classification": classification,
    **{kind: variant(kind) for kind in VARIANTS},
    "sts": similarity,
    "pair-classification": pair_classification,
    "bitext-mining": bitext_mining,
    "retrieval": retrieval,
    "reranking": reranking,
    "summarisation": summarisation,
}
"""What makes a task of a description, by type."""
