"""Several folders of results as one comparison, and what is not comparable."""

import dataclasses
from pathlib import Path

import pytest

from declutr.evaluation.report.dimensions import families
from declutr.evaluation.report.merged_folders import NothingToCompare, merged
from declutr.evaluation.report.truncated_encoders import add_with_dimensions
from declutr.evaluation.results import ResultFolder
from declutr.evaluation.run import Run
from declutr.evaluation.task import PUBLISHED, Protocol, Task
from tests.evaluation.fakes import Absent, Encoder, Positive, Similar

TEXTS = [f"text {number}" for number in range(40)]
OTHER = dataclasses.replace(PUBLISHED, seed=7)


def folder(
    place: Path,
    *encoders: Encoder,
    tasks: list[Task],
    protocol: Protocol = PUBLISHED,
    version: str = "1",
) -> Path:
    run = Run(ResultFolder(place), tasks, protocol, version, say=lambda line: None, overwrite=True)
    for encoder in encoders:
        run.add(encoder)
    return place


def test_results_come_together_and_others_are_told(tmp_path) -> None:
    mr = Positive("MR", TEXTS)
    first = folder(tmp_path / "first", Encoder("a"), tasks=[mr, Similar(), Absent()])
    second = folder(
        tmp_path / "second", Encoder("b"), Encoder("a"), tasks=[mr, Positive("CR", TEXTS)]
    )
    folder(second, Encoder("late"), tasks=[Similar(pairs=30)], version="2")
    third = folder(tmp_path / "third", Encoder("c"), tasks=[mr], protocol=OTHER)
    found = merged([first, second, third])
    c = found.comparison
    assert c.encoders == ["a", "b"] and c.tasks[:3] == ["STS12", "MR", "CR"]
    assert [task for task in c.tasks if c.score("a", task)] == ["STS12", "MR", "CR"]
    assert found.protocol["seed"] == PUBLISHED.seed and found.versions == ["1"]
    assert found.left_out == [
        (str(second), "late", "STS12", f"other data than in {first}"),
        (str(third), "c", "MR", "protocol: seed 7 there, 1111 now"),
    ]


def test_encoders_of_one_name_are_told_apart(tmp_path) -> None:
    first = folder(tmp_path / "x" / "out", Encoder("a"), tasks=[Similar()])
    second = tmp_path / "y" / "out"
    run = Run(ResultFolder(second), [Similar()], PUBLISHED, "1", say=lambda line: None)
    add_with_dimensions(run, Encoder("a", fingerprint="b"), [2])
    c = merged(
        [
            first,
            second,
            folder(tmp_path / "z" / "out", Encoder("a", fingerprint="c"), tasks=[Similar()]),
        ]
    ).comparison
    assert c.encoders == ["a", "a (out)", "a@2", f"a ({tmp_path / 'z' / 'out'})"]
    assert families(c)["a (out)"] == {2: "a@2"}


def test_an_encoder_that_has_changed_is_left_out(tmp_path) -> None:
    place = folder(tmp_path, Encoder("a"), tasks=[Positive("MR", TEXTS), Similar()])
    folder(place, Encoder("a", fingerprint="new"), tasks=[Similar()])
    found = merged([place])
    assert found.comparison.tasks == ["STS12"]
    assert found.left_out[0][1:] == ("a", "MR", "the encoder of that name has changed since")


def test_a_folder_without_results_is_refused(tmp_path) -> None:
    with pytest.raises(NothingToCompare, match="has no results, expected a folder that `declutr"):
        merged([tmp_path])
