"""Tests of what is accepted as texts, and of the advice for what is not."""

import gzip
import logging
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from declutr.corpus.documents import SourceError
from declutr.corpus.text_inputs import NamedFiles, as_texts, names_a_file, require_rows, text_blocks

FRAME = pd.DataFrame({"id": [1, 2], "text": ["a cat", "bread"]})


class PolarsFrame:
    """A stand-in for a polars DataFrame, so that polars need not be installed."""

    columns = ("body",)


class PolarsSeries(list):
    """A stand-in for a polars Series, which iterates its values and has one dimension."""


PolarsFrame.__module__ = "polars.dataframe.frame"


@pytest.mark.parametrize(
    "inputs",
    [
        ["a cat", "bread"],
        ("a cat", "bread"),
        (text for text in ("a cat", "bread")),
        FRAME["text"],
        FRAME["text"].astype("string"),
        FRAME["text"].astype("category"),
        FRAME.set_index("text").index,
        FRAME["text"].to_numpy(),
        np.array(["a cat", "bread"]),
        PolarsSeries(["a cat", "bread"]),
        {1: "a cat", 2: "bread"}.values(),
    ],
    ids=lambda inputs: type(inputs).__name__,
)
def test_sequences_of_texts_are_accepted(inputs):
    assert as_texts(inputs) == ["a cat", "bread"]


def test_a_single_text_becomes_a_list_of_one():
    assert as_texts("a cat") == ["a cat"]
    with pytest.raises(TypeError, match="got a single one; put it in a list"):
        require_rows("a cat")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (FRAME, r"DataFrame with the columns \['id', 'text'\]; give one: frame\[\"text\"\].tolis"),
        (PolarsFrame(), r"PolarsFrame .* give one: frame\[\"body\"\].to_list\(\)"),
        (pa.table({"text": ["a"]}), r"Table .*\['text'\]; give one: frame\[\"text\"\].to_pylist\("),
        (pd.DataFrame([["a"]]), r"DataFrame .* columns \[0\]; give one: frame\[0\].tolist"),
        (pd.DataFrame({f"c{n}": [] for n in range(20)}), r"DataFrame .*'c9', …\]; give one"),
        ({"k1": "a cat"}, r"dict with the keys \['k1'\]; give list\(inputs.values\(\)\)"),
        (OrderedDict(a="b"), "OrderedDict with the keys"),
        ({"a cat"}, "set, which has no order; give a list, such as sorted"),
        (frozenset(), "frozenset, which has no order"),
        (Path("docs.txt"), r"\w*Path; the texts of a file come from declutr\.corpus\.documents"),
        (b"a cat", r"bytes; decode it, inputs.decode\('utf-8'\)"),
        (np.array([["a", "b"]]), r"ndarray of shape \(1, 2\); give one dimension"),
        (np.array("a"), r"ndarray of shape \(\); give one dimension"),
        (None, "NoneType"),
        (3, "int"),
    ],
)
def test_inputs_that_do_not_iterate_over_texts_are_refused(inputs, said):
    for check in (as_texts, require_rows):
        with pytest.raises(TypeError, match=f"^Expected texts: a list of .*; got {said}"):
            check(inputs)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"a", r"bytes at position 1: decode it: value.decode\('utf-8'\)"),
        (None, 'NoneType at position 1: a missing text.*""'),
        (float("nan"), r"nan at position 1: a missing text.*series.fillna\(\"\"\)"),
        (pd.NA, "NAType at position 1: a missing text"),
        (["a"], "list at position 1: texts are not nested"),
        (np.array(["a"]), "ndarray at position 1: texts are not nested"),
        ({"text": "a"}, "dict at position 1: give the text in it"),
        (3, r"int at position 1: give str\(value\)"),
        (torch.tensor(3), "Tensor at position 1"),
    ],
)
def test_other_values_among_texts_are_refused(value, said):
    for inputs in (["a", value], (one for one in ("a", value))):
        with pytest.raises(TypeError, match=f"^Expected strings, got {said}"):
            as_texts(inputs)


def test_missing_values_of_a_series_are_refused():
    for missing in (pd.Series(["a", None]), pd.Series(["a", None], dtype="string")):
        with pytest.raises(TypeError, match="at position 1: a missing text"):
            as_texts(missing)


def test_a_series_with_labels_named_like_columns():
    series = pd.Series(["a cat", "sat"], index=["columns", "column_names"])
    assert as_texts(series) == ["a cat", "sat"]


ODD = ["", "a\0b", "\ud800", "x" * 4096, "x" * 100_000, "a/" * 3000, "~", ".", "ka\nlo", "http://"]


def test_a_text_that_names_a_file_warns_once(tmp_path: Path, caplog) -> None:
    file = tmp_path / "docs.txt"
    file.write_text("ka\nlo\n")
    files = NamedFiles("read it")
    assert files.texts("ka lo") == "ka lo" and not caplog.records
    for _ in range(2):
        assert files.texts(str(file)) == str(file)
    assert caplog.text.count("docs.txt' names a file, and is embedded as the text it is.") == 1
    assert "If its lines were meant: read it." in caplog.text
    assert files.texts([str(file)]) == [str(file)]


def test_a_text_that_is_a_url_warns(caplog: pytest.LogCaptureFixture) -> None:
    NamedFiles("read it").texts("see https://example.org/docs.txt")
    assert not caplog.records
    NamedFiles("read it").texts("https://example.org/docs.txt")
    assert "names a file" in caplog.text


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_texts_that_cannot_be_names_are_not_names(text: str) -> None:
    assert not names_a_file(text)


def test_a_path_is_read_row_by_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfka\n\n  \nlo \xff\n")
    with caplog.at_level(logging.WARNING):
        assert NamedFiles("").texts(tmp_path / "a.txt") == ["ka", "", "  ", "lo \ufffd"]
    assert "1 line(s) hold U+FFFD" in caplog.text
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "mi"}\n\n{"text": "tu"}\n'))
    assert NamedFiles("").texts(tmp_path / "b.jsonl.gz") == ["mi", "", "tu"]


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Found no documents at '.*absent\.txt'"):
        NamedFiles("").texts(tmp_path / "absent.txt")


def test_a_block_ends_at_the_limit_of_characters() -> None:
    blocks = list(text_blocks(["a" * 4, "b", "c" * 9, "d"], 100, 5))
    assert blocks == [["aaaa", "b"], ["c" * 9], ["d"]]


@given(st.lists(st.text(max_size=9)), st.integers(1, 5), st.integers(1, 20))
def test_blocks_hold_all_texts_in_order(texts: list[str], most: int, characters: int) -> None:
    blocks = list(text_blocks(iter(texts), most, characters))
    assert [text for block in blocks for text in block] == texts
    for block in blocks:
        assert 1 <= len(block) <= most
        assert sum(map(len, block[:-1])) < characters  # The last text makes it full.
    for block in blocks[:-1]:
        assert len(block) == most or sum(map(len, block)) >= characters
