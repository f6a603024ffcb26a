"""Tests of the digests by which a run tells that its data changed."""

from pathlib import Path

from declutr.corpus.file_digests import INDEX_NAME
from declutr.corpus.source_digests import source_digests


def test_digests_are_of_what_is_in_the_files(tmp_path: Path) -> None:
    file, moved = tmp_path / "docs.txt", tmp_path / "moved.txt"
    assert source_digests(str(file)) is None  # not there
    file.write_text("a\nb\n")
    first = source_digests(str(file))
    assert first is not None and len(first) == 1
    moved.write_text("a\nb\n")
    assert source_digests([str(moved)]) == first
    file.write_text("b\na\n")
    second = source_digests(file)
    assert second is not None and second != first
    assert source_digests([str(moved), str(file)]) == first + second
    assert source_digests([]) is None and source_digests("https://a.b/c.txt") is None


def test_the_index_of_a_reader_is_used(tmp_path: Path) -> None:
    file, place = tmp_path / "docs.txt", tmp_path / "cache"
    file.write_text("a\n")
    assert source_digests(str(file), str(place)) == source_digests(str(file))
    assert str(file) in (place / INDEX_NAME).read_text()
