"""AskUbuntu in the published layout, with the scores of USEB."""

from pathlib import Path

import pytest

from declutr.evaluation.suite import all_tasks
from declutr.evaluation.task import PUBLISHED, BrokenData, MissingData, Task
from declutr.evaluation.tasks.askubuntu import tasks
from tests.evaluation.fakes import hashed
from tests.evaluation.tasks.data_files import values, write

TITLES = [f"{n}\ttitle {n} \tbody , of {n}" for n in range(100, 140)]


def line(query: int, similar: list[int], candidates: list[int]) -> str:
    names = [" ".join(map(str, numbers)) for numbers in (similar, candidates, candidates[::-1])]
    return "\t".join([str(query), *names])


TEST = [
    line(100, [101, 103], [101, 102, 103, 104, 105]),
    line(101, [], [106, 107]),
    line(102, [108, 109], [108, 109]),
    line(103, [112], [110, 111, 112]),
]


def askubuntu(data: Path, test: list[str] = TEST, titles: list[str] = TITLES) -> Task:
    folder = data / "extra" / "askubuntu"
    write(folder / "text_tokenized.txt", titles)
    write(folder / "test.txt", test)
    write(folder / "dev.txt", TEST[:1])
    (task,) = tasks(data, PUBLISHED)
    return task


def average_precision(query: int, of: str) -> float:
    similar, candidates = (field.split() for field in of.split("\t")[1:3])
    asked, *rows = hashed([f"title {name}" for name in (query, *candidates)]).astype(float)
    cosines = [row @ asked / (row @ row) ** 0.5 for row in rows]
    near = [name for _, name in sorted(zip(cosines, candidates, strict=True), reverse=True)]
    ranks = [rank for rank, name in enumerate(near, start=1) if name in similar]
    return sum(number / rank for number, rank in enumerate(ranks, start=1)) / len(ranks)


def test_queries_without_a_similar_candidate_are_left_out(tmp_path: Path) -> None:
    """As in USEB, one of which all candidates are similar counts."""
    task = askubuntu(tmp_path)
    assert [task.name for task in all_tasks(tmp_path) if task.group == "reranking"] == ["AskUbuntu"]
    assert task.sentences()[:3] == ["title 100", "title 101", "title 102"]
    assert task.notes() == [
        "3 queries, 10 candidates, 5 of which are relevant.",
        "3 queries where the published data has 186: compare with care",
    ]
    found = average_precision(100, TEST[0]), average_precision(103, TEST[3])
    scores = values(task, hashed)
    assert scores["MAP"] == pytest.approx(100 * (found[0] + 1 + found[1]) / 3)
    assert scores["MAP dev"] == pytest.approx(100 * found[0])


def test_missing_and_broken_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"askubuntu/text_tokenized.txt is not there"):
        tasks(tmp_path, PUBLISHED)[0].sentences()
    task = askubuntu(tmp_path, titles=TITLES[:12])
    with pytest.raises(BrokenData, match=r"test.txt, line 4: got question 112, expected one of te"):
        task.sentences()
    with pytest.raises(BrokenData, match=r"test.txt, line 1: expected 3 fields, got 1 in '100'"):
        askubuntu(tmp_path, ["100"]).sentences()
    with pytest.raises(BrokenData, match=r"test.txt: no query has a similar candidate"):
        askubuntu(tmp_path, TEST[1:2]).sentences()
