"""What stands for texts is taken; what would be taken for others is refused, with advice."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from declutr.corpus.text_inputs import as_texts, require_rows

FRAME = pd.DataFrame({"id": [1, 2], "text": ["a cat", "bread"]})


class PolarsFrame:
    """What tells a polars DataFrame; the package need not be there."""

    columns = ("body",)


class PolarsSeries(list):
    """Iterates its values, and has one dimension, as that of polars."""


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
def test_sequences_of_texts(inputs):
    assert as_texts(inputs) == ["a cat", "bread"]


def test_a_single_text_is_one():
    assert as_texts("a cat") == ["a cat"]
    with pytest.raises(TypeError, match="got a single one; put it in a list"):
        require_rows("a cat")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (
            FRAME,
            r"DataFrame with the columns \['id', 'text'\]; give one: frame\[\"text\"\].tolist\(",
        ),
        (PolarsFrame(), r"PolarsFrame .* give one: frame\[\"body\"\].to_list\(\)"),
        (
            pa.table({"text": ["a"]}),
            r"Table .*\['text'\]; give one: frame\[\"text\"\].to_pylist\(\)",
        ),
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
def test_what_gives_something_else_when_iterated(inputs, said):
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
def test_what_is_no_text_among_texts(value, said):
    for inputs in (["a", value], (one for one in ("a", value))):
        with pytest.raises(TypeError, match=f"^Expected strings, got {said}"):
            as_texts(inputs)


def test_missing_values_of_a_series():
    for missing in (pd.Series(["a", None]), pd.Series(["a", None], dtype="string")):
        with pytest.raises(TypeError, match="at position 1: a missing text"):
            as_texts(missing)


def test_labels_of_a_series_that_tables_have_too():
    series = pd.Series(["a cat", "sat"], index=["columns", "column_names"])
    assert as_texts(series) == ["a cat", "sat"]
