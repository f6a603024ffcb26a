"""JSON is only read within bounds."""

import math
from pathlib import Path

import pytest

from declutr.archives import MAX_DEPTH, JSONError, read_bounded_json


def written(folder: Path, content: str | bytes) -> Path:
    file = folder / "some.json"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_json_within_bounds_is_read(tmp_path: Path) -> None:
    text = '{"a": [1, null, "é"], "b": {"a": true}}'
    assert read_bounded_json(written(tmp_path, text)) == {"a": [1, None, "é"], "b": {"a": True}}
    assert math.isinf(read_bounded_json(written(tmp_path, "Infinity")))
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read_bounded_json(written(tmp_path, deep))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not plain JSON: Expecting property name"),
        (b"\xff", r"is no UTF-8 text \("),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "has the key 'b' twice in one object"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "is nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "is nested too deeply"),
        ("1" * 5_000, "is not plain JSON: Exceeds the limit"),
        ("[" + "1," * 2**20 + "1]", r"has 2\.0 MiB; expected at most 1 MiB of such a file"),
    ],
)
def test_json_out_of_bounds_is_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(JSONError, match=message):
        read_bounded_json(written(tmp_path, content))


def test_the_caller_sets_size_and_constants(tmp_path: Path) -> None:
    with pytest.raises(JSONError, match=r"expected at most 0 MiB"):
        read_bounded_json(written(tmp_path, "[1, 2]"), limit=5)
    with pytest.raises(JSONError, match="it holds NaN"):
        read_bounded_json(written(tmp_path, "[NaN]"), constants=False)
