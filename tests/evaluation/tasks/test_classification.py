"""Each data set of single sentences in its own format, complete and broken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from declutr.evaluation.task import BrokenData, Task
from declutr.evaluation.tasks import classification
from declutr.evaluation.tasks.labelled_text import ClassificationTask
from tests.evaluation.known_encoders import revealing, sentence
from tests.evaluation.tasks.data_files import (
    QUICK,
    cut,
    damage_is_named,
    replaced,
    task_named,
    without_lines,
    write,
)

TREC = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write all tasks: 20 sentences for each class and split, or 60 in a file for each class."""
    downstream = tmp_path / "downstream"
    for name, (positive, negative, _) in classification.BINARY.items():
        for file, kind in ((positive, 1), (negative, 0)):
            write(downstream / name / file, [sentence(row, kind) for row in range(60)])
    for number, split in enumerate(("train", "dev", "test")):
        rows = range(100 * number, 100 * number + 100)
        two = [f"{sentence(row, row % 2)} \t{row % 2}" for row in rows]
        five = [f"{row % 5} {sentence(row, row % 5)}" for row in rows]
        write(downstream / "SST" / "binary" / f"sentiment-{split}", two)
        write(downstream / "SST" / "fine" / f"sentiment-{split}", five)
    for file, count in (("train_5500.label", 120), ("TREC_10.label", 30)):
        lines = [f"{TREC[row % 6]}:fine {sentence(row, row % 6)}: ?" for row in range(count)]
        write(downstream / "TREC" / file, lines)
    news = [(row % 4 + 1, row, sentence(row, row % 4)) for row in range(120)]
    lines = [f'"{label}","A ""title"", {row}","a\\{text}"' for label, row, text in news]
    write(tmp_path / "extra" / "ag_news_test" / "test.csv", lines)
    return tmp_path


def named(data: Path, name: str) -> Task:
    return task_named(name, classification.tasks, data)


NAMES = ["MR", "CR", "MPQA", "SUBJ", "SST2", "SST5", "TREC", "AGNews"]


def test_all_tasks_exist_without_data(tmp_path: Path) -> None:
    tasks = [task for task in classification.tasks(tmp_path, QUICK) if task.name in NAMES]
    assert [task.name for task in tasks] == NAMES
    assert [task.group for task in tasks] == ["downstream"] * 7 + ["extra"]
    assert {task.main for task in tasks} == {"accuracy"}


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_that_knows_the_label_is_always_right(name: str, data: Path) -> None:
    task = named(data, name)
    sentences = task.sentences()
    assert {score.name: score.value for score in task.scores(revealing)}["accuracy"] == 100
    tested = {"SST2": 100, "SST5": 100, "TREC": 30}.get(name, 120)
    assert len(task.scores(revealing)[0].items["gold"]) == tested
    assert all("where the published data has" in note for note in task.notes())
    assert len(task.notes()) == {"SST2": 3, "SST5": 3, "TREC": 2}.get(name, 1)
    for row in (0, 1, 5):  # neither mark-up nor the label is left in the sentence
        if name == "TREC":
            assert f"{sentence(row, row % 6)}: ?" in sentences
        elif name == "AGNews":
            assert f'A "title", {row} a {sentence(row, row % 4)}' in sentences
        else:
            assert any(sentence(row, kind) in sentences for kind in range(5))


BINARY, FINE = "SST/binary/sentiment", "SST/fine/sentiment"
NEWS = "../extra/ag_news_test/test.csv"
NO_ITEM = r"has no item of class \['1'\]"
BROKEN_NEWS = [
    (replaced('"1",', '"9",'), r"line 1: got the label '9'"),
    (replaced('"1","A ""title"", 0",', '"1",'), r"line 1: expected 3 fields .*, got 2"),
    (replaced('kind3"\n', "kind3"), r"line 4: .* expected after"),
    (cut, r"test.csv, line 120: unexpected end of data"),  # within quotes
]


@pytest.mark.parametrize(
    ("name", "file", "damage", "message"),
    [
        ("MR", "MR/rt-polarity.neg", Path.unlink, "is not there"),
        ("MR", "MR/rt-polarity.pos", cut, "ends in the middle of line 60, expected 5331"),
        ("CR", "CR/custrev.neg", lambda path: path.write_text(""), "custrev.neg is empty"),
        ("SST2", f"{BINARY}-dev", cut, "ends in the middle of line"),
        ("SST2", f"{BINARY}-dev", Path.unlink, "is not there"),
        ("SST2", f"{BINARY}-test", without_lines("kind1"), f"sentiment-test {NO_ITEM}"),
        (
            "SST2",
            f"{BINARY}-train",
            replaced("\t1", "\t7"),
            r"line 2: got the label '7', expected one of \['0', '1'\]",
        ),
        ("SST2", f"{BINARY}-train", replaced("\t1", " 1"), "line 2: expected 2 fields, got 1"),
        ("SST5", f"{FINE}-train", replaced("4 this", "this"), "line 5: got the label 'this'"),
        ("SST5", f"{FINE}-dev", without_lines("kind1"), f"sentiment-dev {NO_ITEM}"),
        ("TREC", "TREC/TREC_10.label", replaced("ABBR:", "WHY:"), "line 1: got the label 'WHY'"),
        (
            "TREC",
            "TREC/train_5500.label",
            without_lines("kind1"),
            r"train_5500.label has no item of class \['DESC'\]",
        ),
        *(("AGNews", NEWS, damage, message) for damage, message in BROKEN_NEWS),
    ],
)
def test_broken_files_are_named(
    name: str, file: str, damage: Callable, message: str, data: Path
) -> None:
    damage_is_named(data / "downstream" / file, damage, message, lambda: named(data, name))


def test_latin_1_is_read(data: Path) -> None:
    path = data / "downstream" / "TREC" / "train_5500.label"
    path.write_bytes(path.read_text().replace("number 0", "num\u00e9ro 0").encode("latin-1"))
    assert any("num\u00e9ro 0" in text for text in named(data, "TREC").sentences())


def test_sizes_of_files_add_up_to_those_of_tasks() -> None:
    for positive, negative, published in classification.BINARY.values():
        rows = [classification.FILE_ROWS[file] for file in (positive, negative)]
        assert sum(rows) == published
    totals = {"SST2": 70_042, "SST5": 11_855, "TREC": 5_952, "MRPC": 5_801, "SICK": 9_927}
    for name, total in {**totals, "SNLI": 569_033}.items():
        assert sum(getattr(classification, f"{name}_ROWS").values()) == total


@pytest.mark.parametrize("name", classification.BINARY)
def test_a_complete_file_needs_no_last_line_end(name: str, tmp_path: Path) -> None:
    positive, negative, published = classification.BINARY[name]
    for file in (positive, negative):
        rows = classification.FILE_ROWS[file]
        path = tmp_path / "downstream" / name / file
        write(path, [sentence(row, 0) for row in range(rows)])
        path.write_bytes(path.read_bytes()[:-1])
    task = named(tmp_path, name)
    assert len(task.sentences()) == published
    assert task.notes() == []


def test_a_bad_byte_is_named(data: Path) -> None:
    for name, file in (("CR", "CR/custrev.pos"), ("SST2", "SST/binary/sentiment-dev")):
        path = data / "downstream" / file
        path.write_bytes("caf\u00e9 kind1\t1\n".encode() + b"bad \xff kind0\t0\n")
        with pytest.raises(BrokenData, match=rf"{path.name}, line 2: byte 5 .0xFF. is not UTF-8"):
            named(data, name).sentences()


def test_tasks_are_classifications_with_the_given_protocol(tmp_path: Path) -> None:
    for task in classification.tasks(tmp_path, QUICK):
        assert isinstance(task, ClassificationTask)
        assert task._protocol is QUICK or task.name == "SNLI"
