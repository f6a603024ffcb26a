"""Stored lines are read back unchanged, by number and in order."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.search import SearchError, stored_lines
from declutr.search.stored_lines import OFFSETS, TEXT, StoredLines, write_lines

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=12)  # lone surrogates too


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY_TEXT, max_size=20), st.integers(1, 30))
def test_any_lines_are_read_back(tmp_path_factory, lines: list[str], block: int) -> None:
    folder = tmp_path_factory.mktemp("lines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_lines, "_BLOCK", block)
        patch.setattr(stored_lines, "_BUFFERED", 3)
        assert write_lines(iter(lines), folder) == len(lines)
        stored = StoredLines(folder)
        assert list(stored) == lines and len(stored) == len(lines)
        assert [stored[row] for row in range(len(lines))] == lines
        blank = [row for row, line in enumerate(lines) if not line.strip()]
        assert stored.blank().tolist() == blank


def test_rows_out_of_range_are_errors(tmp_path: Path) -> None:
    write_lines(["a", "b"], tmp_path)
    for row in (-1, 2):
        with pytest.raises(IndexError, match=f"no line {row} among 2"):
            StoredLines(tmp_path)[row]


def test_the_file_is_opened_once_for_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(["a", "b", "c"], tmp_path)
    stored, opened = StoredLines(tmp_path), []

    def counted(*arguments: Any) -> Any:
        opened.append(arguments)
        return open(*arguments)

    monkeypatch.setattr(stored_lines, "open", counted, raising=False)
    assert stored.texts([2, 0, 2]) == ["c", "a", "c"]
    assert len(opened) == 1


def test_lines_are_replaced_when_all_are_written(tmp_path: Path) -> None:
    write_lines(["a", "b"], tmp_path)

    def broken():
        yield "c"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="broke"):
        write_lines(broken(), tmp_path)
    assert list(StoredLines(tmp_path)) == ["a", "b"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([TEXT, OFFSETS])


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(SearchError, match="does not hold the lines of an index"):
        StoredLines(tmp_path)
    write_lines(["a", "b"], tmp_path)
    with open(tmp_path / TEXT, "a") as text:
        text.write("more")
    with pytest.raises(SearchError, match="was changed after it was indexed"):
        StoredLines(tmp_path)
