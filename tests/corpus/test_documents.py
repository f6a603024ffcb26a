"""Tests of reading documents; the oracle is the rows as they were written."""

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.corpus.documents import (
    SourceError,
    file_format,
    normalize_whitespace,
    read_documents,
    read_stream,
)

ROWS = ["the first", "", "  third, with blanks ", "", "", "naïve 文 𝔘", "last"]
LINES = "\n".join(ROWS) + "\n"
RECORDS = "".join(json.dumps({"n": n, "text": row}) + "\n" for n, row in enumerate(ROWS))


def read(*files: Path, **options) -> list[str]:
    return list(read_documents(files, **options))


def read_bytes(content: bytes, *options) -> list[str]:
    """Return the rows of a stream, which stays open."""
    stream = io.BytesIO(content)
    rows = list(read_stream(stream, "stdin", *options))
    assert not stream.closed
    return rows


def parquet(file: Path, column: Sequence, name: str = "text", **options) -> Path:
    pq.write_table(pa.table({name: column}), file, **options)
    return file


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def packed(name: str, content: str | bytes) -> bytes:
    """Return content compressed as the name of its file says."""
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    return PACKERS.get(Path(name).suffix.lower(), bytes)(data)


class TestFormats:
    @pytest.mark.parametrize(
        ("names", "content"),
        [
            ("a.txt noextension a.TXT a.tsv.txt .hidden/a.txt", LINES),
            ("a.txt.gz a.TXT.GZ a.gz a.txt.bz2 a.txt.xz", LINES),
            ("a.jsonl a.json a.ndjson a.JSONL a.jsonl.gz", RECORDS),
            ("a.json", json.dumps([{"text": row} for row in ROWS])),
        ],
        ids=["text", "compressed", "json-lines", "json-array"],
    )
    def test_the_name_tells_how_rows_are_read(self, write, names, content):
        for name in names.split():
            assert read(write(name, packed(name, content))) == ROWS

    @pytest.mark.parametrize("group", [1, 3, 100])
    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_parquet(self, tmp_path, group, kind):
        file = parquet(tmp_path / "a.parquet", pa.array(ROWS, kind), row_group_size=group)
        assert read(file) == ROWS

    def test_null_is_a_blank_document(self, write, tmp_path):
        assert read(parquet(tmp_path / "a.parquet", ["a", None, "b"])) == ["a", "", "b"]
        assert read(write("a.jsonl", '{"text": "a"}\n{"text": null}\n')) == ["a", ""]

    def test_lone_surrogates_are_replaced(self, write):
        for name, form in (("a.jsonl", "{}\n"), ("a.json", "[{}]")):
            content = form.format(r'{"text": "half \ud83d, whole \ud83d\ude00"}')
            assert read(write(name, content)) == ["half \ufffd, whole \U0001f600"]

    def test_the_text_key_names_the_document(self, write, tmp_path):
        file = write("a.jsonl", '{"body": "a", "text": 1}\n{"body": "b", "text": [2]}\n')
        assert read(file, text_key="body") == ["a", "b"]
        assert read(parquet(tmp_path / "a.parquet", ["a"], "body"), text_key="body") == ["a"]

    def test_other_keys_may_change_their_type(self, write):
        file = write("a.jsonl", '{"text":"a","m":1}\n{"text":"b","m":"x"}\n{"text":"c","m":[1]}\n')
        assert read(file) == ["a", "b", "c"]

    def test_blank_json_lines_are_rows(self, write):
        """The command `allennlp predict` counts them as rows, too."""
        assert read(write("a.jsonl", '\n{"text":"a"}\n  \n{"text":"b"}\n')) == ["", "a", "", "b"]

    def test_texts_that_look_like_dates_stay(self, write):
        for name, form in (("a.jsonl", "{}\n"), ("a.json", '\n [{{"text":"a"}},\n {}]')):
            content = form.format('{"text":"2020-01-01T00:00:00"}')
            assert read(write(name, content))[-1] == "2020-01-01T00:00:00"

    def test_several_files_in_the_given_order(self, write):
        text, records = write("b.txt", "1\n2\n"), write("a.jsonl", '{"text": "3"}\n')
        assert read(text, records) == ["1", "2", "3"]
        assert read(records, text) == ["3", "1", "2"]

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("a", "text"),
            ("a.txt.gz", "text"),
            ("a.json.txt", "text"),
            ("a.gz.jsonl", "lines"),
            ("v1.2.JSON.bz2", "json"),
            ("a.parquet", "parquet"),
            ("a.CSV", "csv"),
            ("a.tsv.gz", "tsv"),
            (".gz", "text"),
        ],
    )
    def test_the_name_tells_the_format(self, name, kind):
        assert file_format(Path("folder.jsonl") / name) == kind


class TestLines:
    def test_windows_line_ends(self, write):
        for name in ("a.txt", "a.txt.gz"):
            assert read(write(name, packed(name, LINES.replace("\n", "\r\n")))) == ROWS

    @pytest.mark.parametrize(
        ("content", "rows"),
        [
            ("", []),
            ("\n", [""]),
            ("\n\n", ["", ""]),
            ("a", ["a"]),
            ("a\n\nb", ["a", "", "b"]),
            ("a\n\n", ["a", ""]),
            ("\na", ["", "a"]),
        ],
    )
    def test_blank_lines_and_last_line(self, write, content, rows):
        assert read(write("a.txt", content)) == rows

    def test_only_line_ends_end_a_line(self, write):
        row = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\x00h"
        assert read(write("a.txt", f"{row}\n{row}\n")) == [row, row]

    def test_byte_order_mark(self, write):
        for name in ("a.txt", "a.txt.gz"):
            assert read(write(name, packed(name, "\ufeffa\n\ufeffb\n"))) == ["a", "\ufeffb"]
        assert read(write("a.jsonl", '\ufeff{"text": "a"}\n')) == ["a"]

    @given(st.lists(st.text(st.characters(blacklist_characters="\0\n", codec="utf-8")), max_size=9))
    @settings(max_examples=25, deadline=None)
    def test_any_lines_are_read_back(self, tmp_path_factory, rows):
        file = tmp_path_factory.mktemp("any") / "a.txt"
        rows = [row.removeprefix("\ufeff") if not n else row for n, row in enumerate(rows)]
        rows = [row.removesuffix("\r") for row in rows]
        file.write_bytes("".join(f"{row}\n" for row in rows).encode("utf-8"))
        assert read(file) == rows

    def test_rows_do_not_change_where_blocks_end(self, write):
        rows = ["x" * (n % 977) for n in range(26_000)]  # 12.7 MB; a block has 10 MB.
        file = write("a.txt", "\r\n".join(rows))
        assert read(file) == rows


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_the_byte_order_marks_of_joined_files_are_told(write, caplog, name):
    with caplog.at_level(logging.WARNING, logger="declutr.corpus.documents"):
        rows = read(write(name, "\ufefftext\nka\n\ufefflo\ufeff\nmi\n"))
    assert rows == ["text", "ka", "\ufefflo\ufeff", "mi"][name.endswith("csv") :]
    assert "1 line(s) hold a byte order mark" in caplog.text and "is line 3" in caplog.text


class TestCarriageReturns:
    """A line feed ends a row, as `wc -l` counts, and a carriage return alone does not."""

    def test_one_alone_stays_in_its_line(self, write, caplog):
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.documents"):
            rows = read(write("a.txt", "a cat\rsat\nbread\r\r\nb\r"))
        assert rows == ["a cat\rsat", "bread\r", "b"]
        assert "2 line(s) hold a carriage return, which does not end a line" in caplog.text
        assert read_bytes(b"a\rb\r\nc\n") == ["a\rb", "c"]

    @pytest.mark.parametrize("name", ["a.txt", "a.csv"])
    def test_files_of_old_macs_are_refused(self, write, name):
        with pytest.raises(SourceError, match=r"2 carriage return\(s\) and no line feed.* `tr "):
            read(write(name, "text\rone\rtwo"))
        with pytest.raises(SourceError, match="'stdin' has 1 carriage return"):
            read_bytes(b"one\rtwo\r")

    def test_one_between_json_records_is_refused(self, write):
        with pytest.raises(SourceError, match="row 1 is not JSON"):
            read(write("a.jsonl", '{"text": "a"}\r{"text": "b"}\n'))
        array = '[{"text": "a"},\r {"text": "b"}]\r'
        assert read(write("a.json", array)) == ["a", "b"]


class TestFilesThatChange:
    @pytest.mark.parametrize("change", ["grows", "stays"])
    def test_are_told(self, write, caplog, change):
        file = write("docs.txt", "one\ntwo\nthr")
        rows = read_documents([file])
        assert next(rows) == "one"
        if change == "grows":
            file.write_text("one\ntwo\nthree\n")
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.documents"):
            assert len(list(rows)) == 2
        assert ("changed while it was being read" in caplog.text) is (change != "stays")


class TestTables:
    ROWS = ("a cat, sat", 'he said "no"', "", "tab\there")
    LINES = ("two\r\nlines", "a\nb")  # These texts have line ends within one field.

    @staticmethod
    def table(delimiter: str, rows: Sequence[str], **options) -> str:
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter=delimiter, **options)
        writer.writerows([("id", "text"), *enumerate(rows)])
        return file.getvalue()

    @pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize(
        ("name", "delimiter"), [("a.csv", ","), ("a.TSV", "\t"), ("a.csv.gz", ",")]
    )
    def test_what_csv_writes_is_read_back(self, write, name, delimiter, end, quoting):
        rows = self.ROWS if delimiter == "\t" else self.ROWS + self.LINES
        content = self.table(delimiter, rows, lineterminator=end, quoting=quoting)
        assert read(write(name, packed(name, f"\ufeff{content}"))) == list(rows)

    def test_the_text_key_names_the_column(self, write):
        assert read(write("a.csv", "text,body\n1,x\n\n2,y\n"), text_key="body") == ["x", "y"]

    def test_a_document_longer_than_csv_takes_by_itself(self, write):
        assert read(write("a.csv", f"text\n{'x' * 200_000}\n")) == ["x" * 200_000]

    def test_empty_tables_have_no_rows(self, write):
        assert read(write("a.csv", "")) == read(write("b.tsv", "id\ttext\n")) == []

    @pytest.mark.parametrize(
        ("name", "header", "said"),
        [
            ("a.csv", "id;text", r"no column 'text'. Found \['id;text'\]; set text_.*--text-key"),
            ("a.tsv", "id\tbody", r"no column 'text'. Found \['id', 'body'\]; .* ends in .txt"),
            ("a.csv", "text,text", "more than one column 'text'"),
        ],
    )
    @pytest.mark.parametrize("on_bad_row", [None, lambda error: None])
    def test_a_missing_column_is_refused(self, write, name, header, said, on_bad_row):
        with pytest.raises(SourceError, match=said):
            read(write(name, f"{header}\n1,a\n"), on_bad_row=on_bad_row)

    def test_a_row_of_more_or_fewer_fields_is_refused(self, write):
        file = write("a.csv", "id,text\n1,a\n2,b, c\n3,d\n")
        said = r"a.csv', line 3 has 3 field\(s\), expected 2 .*in qu"
        with pytest.raises(SourceError, match=said):
            read(file)
        errors: list[SourceError] = []
        assert read(file, on_bad_row=errors.append) == ["a", "", "d"] and len(errors) == 1

    @pytest.mark.parametrize(
        ("name", "content", "line"),
        [
            ("a.csv", 'text\n"a" b\n', 2),
            ("a.csv", 'text\na\n"b\nc\n', 4),
            ("a.csv", "id,text\n1,a\rb\n", 2),
            ("a.tsv", 'id\ttext\n1\t"Hello.\n2\tHe said "\n3\tx\n', 3),
            ("a.tsv", 'text\nFirst.\n"I left.\nAnother.\nI came back."\nLast.\n', 5),
        ],
        ids=["quote-inside", "never-closed", "carriage-return", "another-row", "one-column"],
    )
    def test_quotes_that_do_not_match_are_refused(self, write, name, content, line):
        said = rf"line {line} is not [CT]SV \(.*JSON lines can hold"
        with pytest.raises(SourceError, match=said):
            read(write(name, content))

    def test_a_table_named_txt_is_read_as_lines(self, write):
        assert read(write("a.csv.txt", "text\na,b\n")) == ["text", "a,b"]


class TestEncoding:
    @pytest.mark.parametrize(
        "codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8"]
    )
    @pytest.mark.parametrize(
        ("name", "content"),
        [("a.txt", LINES), ("a.txt.gz", LINES), ("a.jsonl", RECORDS), ("a.csv", 'text\n"à, b"\n')],
    )
    def test_byte_order_marks(self, write, name, content, codec):
        marked = content if codec in ("utf-16", "utf-32") else f"\ufeff{content}"
        plain = write(f"plain-{name.removesuffix('.gz')}", content)
        assert read(write(name, packed(name, marked.encode(codec)))) == read(plain)

    @pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le"])
    @pytest.mark.parametrize("errors", ["strict", "replace"])
    @pytest.mark.parametrize("text", ["a cat\nbread\n", "春天里河边的老房子又卖掉了。\n" * 9])
    def test_utf_16_without_a_mark_is_refused(self, write, codec, errors, text):
        with pytest.raises(SourceError, match=r"a.txt' has \d+ NUL bytes .* `iconv -f UTF-16LE"):
            read(write("a.txt", text.encode(codec)), encoding_errors=errors)
        with pytest.raises(SourceError, match=r"'stdin' has \d+ NUL bytes"):
            read_bytes(text.encode(codec))

    def test_a_stream_with_a_mark(self):
        assert read_bytes("a\r\nb".encode("utf-16")) == ["a", "b"]

    def test_invalid_bytes_after_a_mark_are_refused(self, write):
        file = write("a.txt", "a\nb\n".encode("utf-16") + b"\x00")
        said = r"mark of UTF-16, but is not valid \(truncated data\)"
        with pytest.raises(SourceError, match=said):
            read(file)
        assert read(file, encoding_errors="replace") == ["a", "b", "\ufffd"]

    BAD = b"one\n\n\xc3\xa9\xff!\ntwo\n\xe2\x82\n"

    @pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.TXT.GZ"])
    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_strict_names_line_and_byte(self, write, name, end):
        file = write(name, packed(name, self.BAD.replace(b"\n", end)))
        said = rf"{file}', line 3: byte 3 is not valid UTF-8 .*Convert the file .* 'replace'"
        with pytest.raises(SourceError, match=said):
            read(file)

    def test_a_character_cut_off_at_the_end_of_the_file(self, write):
        with pytest.raises(SourceError, match=r"line 2: byte 2 .*unexpected end"):
            read(write("a.txt", b"a\nb\xe2\x82"))

    def test_an_invalid_byte_far_into_the_file(self, write):
        with pytest.raises(SourceError, match="line 12001: byte 1 "):
            read(write("a.txt", b"x" * 1000 + b"\n" + (b"x" * 1000 + b"\n") * 11_999 + b"\xff\n"))

    @pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
    def test_replaced_bytes_are_counted(self, write, caplog, name):
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.documents"):
            rows = read(write(name, packed(name, self.BAD)), encoding_errors="replace")
        assert rows == ["one", "", "é\ufffd!", "two", "\ufffd"]
        assert "2 line(s) hold U+FFFD" in caplog.text and "first is line 3" in caplog.text

    def test_u_fffd_in_a_valid_file_is_not_called_invalid(self, write, caplog):
        assert read(write("a.txt", "Sch\ufffdn\n".encode()), encoding_errors="replace")
        assert "1 line(s) hold U+FFFD, most often for bytes that are not valid" in caplog.text

    def test_valid_text_logs_nothing(self, write, caplog):
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.documents"):
            assert read(write("a.txt", LINES), encoding_errors="replace") == ROWS
        assert not caplog.records

    def test_json_lines(self, write):
        file = write("a.jsonl", b'{"text": "a"}\n{"text": "b\xff"}\n{"text": "c"}\n')
        with pytest.raises(SourceError, match=r"a\.jsonl', line 2: byte 12 is not valid UTF-8"):
            read(file)
        assert read(file, encoding_errors="replace") == ["a", "b\ufffd", "c"]

    def test_an_unknown_encoding_errors_is_refused(self, write):
        with pytest.raises(SourceError, match=r"Unknown encoding_errors 'ignore': .*'replace'"):
            read(write("a.txt", LINES), encoding_errors="ignore")


class TestErrors:
    def test_missing_key(self, write, tmp_path):
        said = r"no key 'text'. Found \['body', 'n'\]; set text_key"
        with pytest.raises(SourceError, match=f"row 1: {said}"):
            read(write("a.jsonl", '{"body": "a", "n": 1}\n'))
        pq.write_table(pa.table({"body": ["a"], "n": [1]}), tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=said):
            read(tmp_path / "a.parquet")

    def test_two_columns_of_the_same_name(self, tmp_path):
        columns = [pa.array([text]) for text in "abc"]
        table = pa.Table.from_arrays(columns, ["text", "text", "other"])
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=r"two columns have the same name, got \['text'"):
            read(tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet", text_key="other") == ["c"]

    @pytest.mark.parametrize(
        ("value", "name"), [("1", "int"), ('["a"]', "list"), ('{"a": 1}', "dict"), ("true", "bool")]
    )
    def test_key_holds_no_string(self, write, tmp_path, value, name):
        file = write("a.jsonl", f'{{"text": "a"}}\n{{"text": {value}}}\n')
        with pytest.raises(SourceError, match=f"row 2: 'text' is {name}, expected a string"):
            read(file)
        file = parquet(tmp_path / "a.parquet", [json.loads(value)])
        with pytest.raises(SourceError, match=f"row 1: 'text' is {name}, expected a string"):
            read(file)

    @pytest.mark.parametrize("suffix", ["jsonl", "json"])
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"text":', r"row 3 is not JSON \(.*\). Expected one object a line"),
            ('"a"', "row 3 is str, expected an object with the key 'text'"),
            ('{"body": "a"}', r"row 3: no key 'text'. Found \['body'\]"),
        ],
    )
    def test_broken_line_is_named(self, write, suffix, line, message):
        file = write(f"a.{suffix}", f'{{"text": "a"}}\n\n{line}\n')
        with pytest.raises(SourceError, match=message):
            read(file)

    @pytest.mark.parametrize(
        ("name", "content", "kind"),
        [
            ("a.json", b'[{"text": "a"}, {"text":', "json"),
            ("a.parquet", b"not parquet at all", "parquet"),
            ("a.txt.gz", b"not gzip at all", "text"),
            ("a.txt.gz", gzip.compress(bytes(range(32, 127)) * 99, mtime=0)[:-20], "text"),
            ("a.txt.xz", b"not xz at all", "text"),
        ],
        ids=["broken-array", "no-parquet", "no-gzip", "cut-gzip", "no-xz"],
    )
    def test_broken_file(self, write, name, content, kind):
        with pytest.raises(SourceError, match=f"{name}' could not be read as {kind}: .+"):
            read(write(name, content))

    @pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json.gz", "a.txt.gz", "a.parquet"])
    def test_empty_file_has_no_rows(self, write, name):
        file = write(name, packed(name, b""))
        if name == "a.parquet":
            parquet(file, pa.array([], pa.string()))
        assert read(file) == []


class TestBadRows:
    LINES = b'{"text": "a"}\nno json\n{"body": 1}\n{"text": 3}\n[1]\n\n{"text": "b"}\n'
    DEEP = b"[" * 100_000 + b"\n" + b'{"text": ' + b"1" * 5000 + b"}\n"

    def test_become_blank_with_on_bad_row(self, write):
        errors: list[SourceError] = []
        rows = read(write("a.jsonl", self.LINES), on_bad_row=errors.append)
        assert rows == ["a", "", "", "", "", "", "b"]
        said = ["row 2 is not JSON", "row 3: no key 'text'", "'text' is int", "row 5 is list"]
        assert all(part in str(error) for part, error in zip(said, errors, strict=True))

    def test_json_that_exceeds_the_limits_of_python(self, write):
        errors: list[SourceError] = []
        assert read(write("a.jsonl", self.DEEP), on_bad_row=errors.append) == ["", ""]
        assert all("is not JSON" in str(error) for error in errors)
        with pytest.raises(SourceError, match="row 1 is not JSON"):
            read(write("a.jsonl", self.DEEP))

    def test_in_a_json_array(self, write):
        errors: list[SourceError] = []
        file = write("a.json", '[{"text": "a"}, 3, {"text": "b"}]')
        assert read(file, on_bad_row=errors.append) == ["a", "", "b"]
        assert "row 2 is int" in str(errors[0])


class TestStream:
    @pytest.mark.parametrize(
        "content", [LINES, LINES.replace("\n", "\r\n"), "\ufeff" + LINES, "", "\n\n", "a\n\nb"]
    )
    def test_rows_equal_those_of_a_file_with_the_same_bytes(self, write, content):
        assert read_bytes(content.encode("utf-8")) == read(write("a.txt", content))

    def test_json_lines(self, write):
        for content in (RECORDS, "\n" + RECORDS):
            assert read_bytes(content.encode(), "lines") == read(write("a.jsonl", content))

    def test_bytes_that_are_not_utf8(self, caplog):
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.documents"):
            assert read_bytes(TestEncoding.BAD) == ["one", "", "é\ufffd!", "two", "\ufffd"]
        assert "'stdin': 2 line(s) hold U+FFFD" in caplog.text

    def test_bad_rows(self):
        errors: list[SourceError] = []
        rows = read_bytes(TestBadRows.LINES, "lines", "text", errors.append)
        assert rows == ["a", "", "", "", "", "", "b"] and len(errors) == 4
        with pytest.raises(SourceError, match="'stdin', row 2 is not JSON"):
            read_bytes(TestBadRows.LINES, "lines")

    def test_a_kind_that_cannot_be_streamed_is_refused(self):
        with pytest.raises(SourceError, match=r"'text' or 'lines' .*, got 'parquet'"):
            list(read_stream(io.BytesIO(), "stdin", "parquet"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \t\r\n\u3000", ""),
        ("  A\tb \n C ", "A b C"),
        ("a\u00a0b\u2028c\x85d", "a b c d"),
        ("a\u200bb", "a\u200bb"),  # A zero-width space is not white space.
    ],
)
def test_normalize_whitespace(text, expected):
    assert normalize_whitespace(text) == expected
