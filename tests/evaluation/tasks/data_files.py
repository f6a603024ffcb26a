"""Files of data as tests write and damage them, and what a task scores on them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from declutr.evaluation.sentence_vectors import SentenceVectors
from declutr.evaluation.task import PROTOTYPING, BrokenData, MissingData, Protocol, Task

Pairs = list[tuple[str, str, float]]
"""Two sentences and their gold score."""
QUICK = replace(PROTOTYPING, kfold=3, batch_size=8, tenacity=1)


def write(path: Path, lines: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_benchmark(folder: Path, splits: dict[str, Pairs]) -> None:
    for split, pairs in splits.items():
        rows = [f"g\tf\ty\t0\t{gold}\t{a}\t{b}" for a, b, gold in pairs]
        write(folder / f"sts-{split}.csv", rows)


def write_sick(folder: Path, splits: dict[str, Pairs]) -> None:
    names = {"train": "train", "dev": "trial", "test": "test_annotated"}
    for split, pairs in splits.items():
        rows = [f"1\t{a}\t{b}\t{gold}\tNEUTRAL" for a, b, gold in pairs]
        write(folder / f"SICK_{names[split]}.txt", ["i\ta\tb\tr\te", *rows])


def cut(path: Path, count: int = 20) -> None:
    """Remove the last bytes of a file."""
    path.write_bytes(path.read_bytes()[:-count])


def replaced(old: str, new: str, count: int = 1) -> Callable[[Path], None]:
    """Return a function that replaces the first occurrences of a text, which must be there."""

    def change(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, count))

    return change


def without_lines(text: str) -> Callable[[Path], object]:
    """Return a function that removes the lines with a text from a file."""
    return lambda path: write(path, [r for r in path.read_text().splitlines() if text not in r])


def damage_is_named(path: Path, damage: Callable, message: str, task: Callable[[], Task]) -> None:
    """Assert that a task says what is wrong with a file, and that missing data are told apart."""
    damage(path)
    kind = MissingData if damage is Path.unlink else BrokenData
    with pytest.raises(kind, match=message) as error:
        task().sentences()
    assert path.name in str(error.value)


def task_named(name: str, tasks: Callable, data: Path, protocol: Protocol = QUICK) -> Task:
    return {task.name: task for task in tasks(data, protocol)}[name]


def values(task: Task, encode: Callable[[list[str]], np.ndarray]) -> dict[str, float]:
    """Return the scores of a task by name, after its sentences were embedded."""
    vectors = SentenceVectors(encode)
    vectors.add(task.sentences())
    scores = task.scores(vectors)
    assert len({score.name for score in scores}) == len(scores)
    assert task.main in {score.name for score in scores}
    return {score.name: score.value for score in scores}
