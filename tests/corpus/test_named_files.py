"""Paths are read; the name of a file is a text, and one word is said about it."""

import gzip
import logging
from pathlib import Path

import pytest

from declutr.corpus.documents import SourceError
from declutr.corpus.named_files import NamedFiles, names_a_file

ODD = ["", "a\0b", "\ud800", "x" * 4096, "x" * 100_000, "a/" * 3000, "~", ".", "ka\nlo", "http://"]


def test_a_name_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "docs.txt"
    file.write_text("ka\nlo\n")
    files = NamedFiles("read it")
    assert files.texts("ka lo") == "ka lo" and not caplog.records
    for _ in range(2):
        assert files.texts(str(file)) == str(file)
    assert caplog.text.count("docs.txt' names a file, and is embedded as the text it is.") == 1
    assert "If its lines were meant: read it." in caplog.text
    assert files.texts([str(file)]) == [str(file)]


def test_urls_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    NamedFiles("read it").texts("see https://example.org/docs.txt")
    assert not caplog.records
    NamedFiles("read it").texts("https://example.org/docs.txt")
    assert "names a file" in caplog.text


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_texts_are_no_names(text: str) -> None:
    assert not names_a_file(text)


def test_a_path_is_read_row_by_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfka\n\n  \nlo \xff\n")
    with caplog.at_level(logging.WARNING):
        assert NamedFiles("").texts(tmp_path / "a.txt") == ["ka", "", "  ", "lo \ufffd"]
    assert "1 line(s) hold U+FFFD" in caplog.text
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "mi"}\n\n{"text": "tu"}\n'))
    assert NamedFiles("").texts(tmp_path / "b.jsonl.gz") == ["mi", "", "tu"]


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Found no documents at '.*absent\.txt'"):
        NamedFiles("").texts(tmp_path / "absent.txt")
