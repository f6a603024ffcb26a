"""Texts in memory are written as the readers of recipes read them, whole and in their order."""

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from declutr.corpus.documents import read_documents
from declutr.runs.training_texts import NAMES, TextFiles

TRAIN, VALIDATION = NAMES
TEXTS = {"type": "declutr"}
PAIRS = {"type": "text_pairs"}
TRIPLETS = {"type": "text_pairs", "negative": "negative"}
CLASSES = {"type": "text_pairs", "anchor": "text", "positive": "text", "labels": "class"}
INFERENCE = {"type": "text_pairs", "format": "nli"}
Item = namedtuple("Item", ["anchor", "positive"])


def written(folder: Path, reader: dict[str, Any], data: Any, validation: Any = None) -> list[Any]:
    """The rows of the training file."""
    assert TextFiles(reader).write(folder, data, validation)[0] == TRAIN
    return rows_of(folder / TRAIN)


def rows_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.open(encoding="utf-8", newline="\n")]


@pytest.mark.parametrize(
    "texts",
    [
        ["one\ntwo", "", "ä\u2028b"],
        ("one\ntwo", "", "ä\u2028b"),
        pd.Series(["one\ntwo", "", "ä\u2028b"]),
        pd.DataFrame({"text": ["one\ntwo", "", "ä\u2028b"], "n": [1, 2, 3]}),
        np.array(["one\ntwo", "", "ä\u2028b"]),
        [{"text": "one\ntwo"}, {"text": ""}, {"text": "ä\u2028b"}],
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_documents_survive(texts: Any, tmp_path: Path) -> None:
    written(tmp_path, TEXTS, texts)
    assert list(read_documents([tmp_path / TRAIN])) == ["one\ntwo", "", "ä\u2028b"]


def test_a_generator_and_another_key(tmp_path: Path) -> None:
    rows = written(tmp_path, {**TEXTS, "text_key": "body"}, (str(i) for i in range(3)))
    assert rows == [{"body": "0"}, {"body": "1"}, {"body": "2"}]


@pytest.mark.parametrize(
    ("reader", "rows", "columns"),
    [
        (PAIRS, [("a", "b")], {"anchor": "a", "positive": "b"}),
        (PAIRS, [Item("a", "b")], {"anchor": "a", "positive": "b"}),
        (TRIPLETS, [["a", "b", "c"]], {"anchor": "a", "positive": "b", "negative": "c"}),
        (CLASSES, [("a", np.int64(2))], {"text": "a", "label": 2}),
        (CLASSES, [{"label": "1", "text": "a", "more": None}], {"text": "a", "label": "1"}),
        (INFERENCE, [("a", "b", 0)], {"premise": "a", "hypothesis": "b", "label": 0}),
        (PAIRS, pd.DataFrame({"positive": ["b"], "anchor": ["a"]}), {"anchor": "a"}),
    ],
)
def test_rows(reader: dict[str, Any], rows: Any, columns: dict, tmp_path: Path) -> None:
    (row,) = written(tmp_path, reader, rows)
    assert {name: row[name] for name in columns} == columns


def test_classes_that_are_named_get_numbers(tmp_path: Path) -> None:
    rows = written(tmp_path, CLASSES, [("a", "sport"), ("b", "art")], [("c", "trade")])
    assert [row["label"] for row in rows] == [1, 0]
    assert rows_of(tmp_path / VALIDATION) == [{"text": "c", "label": 2}]


@pytest.mark.parametrize(
    ("reader", "data", "message"),
    [
        (TEXTS, [("a", "b")], "takes texts, got tuple of 2 at position 0. Pairs are for recipes"),
        (TEXTS, ["a", None], "Expected strings, got NoneType at position 1"),
        (TEXTS, {"a": 1}, "got dict with the keys"),
        (PAIRS, ["a"], r"Expected rows of \(anchor, positive\), tuples or dicts, got str"),
        (PAIRS, [("a", "b", "c")], r"Expected rows of \(anchor, positive\), got one of 3"),
        (PAIRS, [{"anchor": "a"}], r"\['anchor'\], expected .*; 'positive' is missing"),
        ({**PAIRS, "anchor": 0}, [("a", "b")], r"columns by number, \[0\], which only files have"),
        ({"type": "glue"}, ["a"], "The reader 'glue' of this recipe takes files, got list"),
        (TEXTS, [__file__, __file__], "All 2 texts name files, .* a list of pathlib.Path"),
    ],
)
def test_refused(reader: dict[str, Any], data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TextFiles(reader).write(tmp_path, data, None)
    assert list(tmp_path.iterdir()) == []


def test_paths_stay_where_they_are(tmp_path: Path) -> None:
    files = TextFiles(TEXTS)
    assert files.write(tmp_path / "new", "docs.txt", Path("v.txt")) == ("docs.txt", "v.txt")
    assert files.write(tmp_path / "new", [Path("a"), Path("b")], None) == (["a", "b"], None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("given", ["texts", "path"])
def test_a_share_is_held_out(given: str, tmp_path: Path) -> None:
    """The same every time, and no text is in both parts."""
    texts = [f"text {number % 40}" for number in range(50)]
    (tmp_path / "docs.txt").write_text("\n".join(texts) + "\n")
    data: Any = texts if given == "texts" else tmp_path / "docs.txt"
    rows = written(tmp_path / "new", TEXTS, data, 0.1)
    held = rows_of(tmp_path / "new" / VALIDATION)
    assert len(rows) + len(held) == 50 and len(held) in (5, 6)
    assert not {row["text"] for row in rows} & {row["text"] for row in held}
    assert rows == written(tmp_path / "again", TEXTS, iter(texts), 0.1)


def test_a_share_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(
        "anchor\tpositive\n" + "".join(f"a{i}\tb\n" for i in "1234")
    )
    assert len(written(tmp_path / "new", PAIRS, tmp_path / "pairs.tsv", 0.25)) == 3


@pytest.mark.parametrize(
    ("reader", "data", "share", "message"),
    [
        (TEXTS, ["a", "b"], 1.5, "validation=1.5 is no share of the data"),
        (TEXTS, ["a", "a"], 0.5, "a share of different texts, got 1"),
        ({"type": "sentences", "positives": "next"}, ["a", "b"], 0.5, "follow each other"),
    ],
)
def test_no_share(reader: dict, data: Any, share: float, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        TextFiles(reader).write(tmp_path, data, share)
