"""Configurations that are programs are refused, and the message shows where."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.archives.safety import UnsafeArchive
from declutr.archives.safety.plain_json import dotted, entries, nearest_key, read_plain_json

JSONNET = {
    '{"a": importstr "/etc/passwd"}': "line 1 has the Jsonnet `importstr`",
    '{\n"a": 1,\n"b": import "other.jsonnet"}': "line 3 has the Jsonnet `import`",
    'local x = 1; {"a": x}': "`local`",
    '{"a": std.extVar("HOME")}': "`std`",
    "function(x) {}": "`function`",
    '{"a": 1} // a note': r"has the comment `//`",
    '# a note\n{"a": 1}': r"line 1 has the comment `#`",
    '{"a": /* a note */ 1}': r"has the comment `/\*`",
    "{'a': 1}": "has text in `'`",
    '{"a": 1,}': "Expecting property name|trailing comma",
    '{a: "import"}': "Expecting property name",
    '{"a": NaN}': "it holds NaN",
    "": "Expecting value",
}


@pytest.mark.parametrize("text", JSONNET)
def test_what_is_not_plain(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(UnsafeArchive, match=JSONNET[text]) as refusal:
        read_plain_json(file)
    assert "config.json is not plain JSON: " in str(refusal.value)
    assert "--trust (trust=True)" in str(refusal.value)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_no_json(encoding: str, tmp_path: Path) -> None:
    """Python would find out the first by itself; Jsonnet would read something else."""
    (tmp_path / "config.json").write_text('{"ä": 1}', encoding=encoding)
    with pytest.raises(UnsafeArchive, match=r"config\.json is no UTF-8 text"):
        read_plain_json(tmp_path / "config.json")


def test_words_of_jsonnet_inside_strings(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"import": "importstr // # \\" local"}')
    assert read_plain_json(tmp_path / "config.json") == {"import": 'importstr // # " local'}


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(LEAVES, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=12)


@given(VALUES)
def test_entries_are_everything_inside(value: object) -> None:
    for path, held in entries(value):
        inner = value
        for key in path:
            inner = inner[key]  # type: ignore[index]
        assert inner is held
    count = sum(1 for _ in entries(value))
    assert count == len(list(_inside(value)))


def _inside(value: object) -> list[object]:
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return []
    return [*items, *(deeper for item in items for deeper in _inside(item))]


def test_paths() -> None:
    assert dotted(("model", "encoders", 0, "type")) == "model.encoders.0.type"
    assert nearest_key(("model", "encoders", 0, 1)) == "encoders"
    assert nearest_key((0,)) == ""
