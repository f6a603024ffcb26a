"""Reading of lines from complete and truncated files, in all supported encodings."""

from pathlib import Path

import pytest

from declutr.evaluation.task import BrokenData, MissingData
from declutr.evaluation.text_files import (
    fields_of,
    label_of,
    other_size,
    read_lines,
    require_all_labels,
    words,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lines"


def test_only_line_feeds_end_a_line(file: Path) -> None:
    file.write_bytes("caf\u00e9 \u2028 one line\nb\r\n\nc\n".encode())
    assert read_lines(file) == ["caf\u00e9 \u2028 one line", "b", "", "c"]
    for empty in (b"", b" \n\n"):
        file.write_bytes(empty)
        with pytest.raises(BrokenData, match=r"lines is empty"):
            read_lines(file)
    with pytest.raises(MissingData, match=r"nothing is not there"):
        read_lines(file.with_name("nothing"))


def test_a_last_line_needs_an_end_only_if_others_are_missing(file: Path) -> None:
    file.write_bytes(b"a\nb\nc")
    for published in (None, 2, 3):
        assert read_lines(file, published) == ["a", "b", "c"]
    with pytest.raises(BrokenData, match=r"middle of line 3, expected 4 lines.*end after its last"):
        read_lines(file, 4)
    file.write_bytes(b"a\nb\n")
    assert read_lines(file, 3) == ["a", "b"]  # a part of the data in complete lines


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
def test_a_byte_order_mark_tells_the_encoding(file: Path, encoding: str) -> None:
    text = "caf\u00e9 \U0001f600\r\nb\r\n"
    marked = text if encoding in ("utf-8-sig", "utf-16", "utf-32") else "\ufeff" + text
    file.write_bytes(marked.encode(encoding))
    for latin_1 in (True, False):
        assert read_lines(file, 2, latin_1) == ["caf\u00e9 \U0001f600", "b"]


def test_utf_16_that_is_cut_off_or_has_no_mark_is_refused(file: Path) -> None:
    file.write_bytes("ab\n".encode("utf-16")[:-1])
    with pytest.raises(BrokenData, match=r"begins as UTF-16, but byte 7 is not .truncated data"):
        read_lines(file)
    file.write_bytes("ab\n".encode("utf-16-le"))
    with pytest.raises(BrokenData, match=r"lines, line 1: a byte 0.*without a byte order mark"):
        read_lines(file)


def test_latin_1_is_read_where_it_may_be(file: Path) -> None:
    file.write_bytes("a\ncaf\u00e9\n".encode("latin-1"))
    assert read_lines(file) == ["a", "caf\u00e9"]
    with pytest.raises(BrokenData, match=r"lines, line 2: byte 4 .0xE9. is not UTF-8. Mend the"):
        read_lines(file, latin_1=False)


@pytest.mark.parametrize("latin_1", [True, False])
def test_a_bad_byte_does_not_turn_utf_8_into_latin_1(file: Path, latin_1: bool) -> None:
    file.write_bytes("caf\u00e9\n\u00e9t\u00e9 ".encode() + b"\xff bad\n")
    with pytest.raises(BrokenData, match=r"lines, line 2: byte 7 .0xFF. is not UTF-8"):
        read_lines(file, latin_1=latin_1)


def test_errors_on_fields_labels_and_sizes_say_what_was_expected() -> None:
    assert (words(" a  b\t"), words("  ")) == ("a b", ".")
    assert label_of("x", {"x": 3}, Path("f"), 1) == 3
    with pytest.raises(BrokenData, match=r"f, line 7: got the label 'y', expected one of \['x'\]"):
        label_of("y", {"x": 3}, Path("f"), 7)
    assert fields_of("a|b|c", "|", 2, Path("f"), 1) == ["a", "b", "c"]
    with pytest.raises(BrokenData, match=r"f, line 2: expected 3 fields, got 2 in 'a\|b'"):
        fields_of("a|b", "|", 3, Path("f"), 2)
    require_all_labels(Path("f"), [0, 1], {"a": 0, "b": 1})
    with pytest.raises(BrokenData, match=r"f has no item of class \['b'\]"):
        require_all_labels(Path("f"), [0, 0], {"a": 0, "b": 1})
    assert other_size("rows", 5, 5) == []
    note = "5 rows where the published data has 1,000: compare with care"
    assert other_size("rows", 5, 1000) == [note]
