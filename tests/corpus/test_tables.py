"""Tests of tables; the oracle is the rows as they were written."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Row, read_rows

TABLE = [{"a": "one", "b": 'two "2"'}, {"a": "drei, III", "b": "vier"}]


def named(rows) -> list[dict]:
    return [{k: v for k, v in row.values.items() if isinstance(k, str)} for row in rows]


TSV = "a\tb\n" + "".join(f"{row['a']}\t{row['b']}\n" for row in TABLE)
LINES = "\n".join(map(json.dumps, TABLE)) + "\n\n"
CSV = 'a,b\none,"two ""2"""\n"drei, III",vier\n'


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.tsv", TSV),
            ("a.txt", TSV.replace("\n", "\r\n")),
            ("a.tsv", "\ufeff" + TSV.replace("\n", "\n\n")),
            ("a.tsv.gz", gzip.compress(TSV.encode(), mtime=0)),
            ("a.csv", CSV),
            ("a.CSV.gz", gzip.compress(CSV.encode(), mtime=0)),
            ("a.jsonl", LINES),
            ("a.json", LINES),
            ("a.json", json.dumps(TABLE)),
            ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0)),
        ],
    )
    def test_every_format_gives_the_same_rows(self, write, name, content):
        assert named(read_rows([write(name, content)])) == TABLE

    def test_parquet(self, tmp_path):
        pq.write_table(pa.Table.from_pylist(TABLE), tmp_path / "a.parquet")
        assert named(read_rows([tmp_path / "a.parquet"])) == TABLE

    def test_lone_surrogates_are_replaced(self, write):
        (row,) = read_rows([write("a.jsonl", r'{"a": "half \ud83d"}' + "\n")])
        assert row.text("a") == "half \ufffd" and row.texts("a") == ["half \ufffd"]

    def test_several_files_have_a_header_each(self, write):
        file = write("a.tsv", TSV)
        assert named(read_rows([file, file])) == TABLE * 2

    def test_columns_by_number(self, write):
        contents = {True: TSV, False: TSV.split("\n", 1)[1]}
        with_header, without = (
            list(read_rows([write("a.tsv", contents[header])], header)) for header in contents
        )
        for row, other in zip(with_header, without, strict=True):
            assert [row.text(n) for n in (0, 1)] == [other.text(n) for n in (0, 1)]
            assert list(other.values) == [0, 1]

    def test_quotes_between_tabs_are_characters(self, write):
        (row,) = read_rows([write("a.tsv", '"a\t"b" c\n')], header=False)
        assert row.texts(0) == ['"a'] and row.text(1) == '"b" c'

    def test_fields_between_tabs_that_are_quoted_as_in_csv_are_told(self, write, caplog):
        written = io.StringIO()
        rows = [["a", "b"], ["one", 'he said "no" twice, "no"'], ['"', "plain"]]
        csv.writer(written, delimiter="\t", lineterminator="\n").writerows(rows)
        first, _ = read_rows([write("a.tsv", written.getvalue())])
        assert first.text("b") == '"he said ""no"" twice, ""no"""'
        assert "a.tsv', line 2: a field is in quotes and has doubled quotes in it" in caplog.text
        assert len(caplog.records) == 1

    def test_other_quotes_between_tabs_are_not_told(self, write, caplog):
        fields = ['"', '""', '"a"', '"a" and "b"', '""a""', '"a "" b', 'a ""b""', '"a"" b" c"']
        rows = [row.text(0) for row in read_rows([write("a.tsv", "\n".join(["x", *fields]))])]
        assert rows == fields and not caplog.records
        assert list(read_rows([write("a.csv", 'x\n"a ""b"""\n')])) and not caplog.records

    def test_fields_of_csv_may_hold_lines(self, write):
        first, second = read_rows([write("a.csv", 'a,b\n"x\ny",z\nu,v\n')])
        assert first.text("a") == "x y" and first.place.endswith("line 3")
        assert second.place.endswith("a.csv', line 4")

    @given(
        st.lists(
            st.tuples(*[st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)] * 2),
            min_size=1,
        )
    )
    def test_any_text_between_tabs_is_read_back(self, tmp_path_factory, rows):
        file = tmp_path_factory.mktemp("table") / "a.tsv"
        file.write_bytes("".join(f"{a}\t{b}\n" for a, b in rows).encode())
        assert [(row.text(0), row.text(1)) for row in read_rows([file], header=False)] == rows


class TestRow:
    ROW = Row("'a.jsonl', line 3", {"a": " x\n y ", "n": None, "l": ["b", " c"], "i": 7})

    def test_texts(self):
        assert self.ROW.text("a") == "x y" and self.ROW.text("n") == ""
        assert self.ROW.texts("a") == ["x y"] and self.ROW.texts("l") == ["b", "c"]
        assert self.ROW.value("i") == 7

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda row: row.text("i"), "^'a.jsonl', line 3: column 'i' holds int, expected a str"),
            (lambda row: row.text("l"), "line 3: column 'l' holds list, expected a string"),
            (lambda row: row.text("z"), r"line 3: no column 'z', found \['a', 'n', 'l', 'i'\]. S"),
            (lambda row: row.text(0), "line 3: no column 0, found"),
            (lambda row: Row("p", {0: "a"}).text(1), r"no column 1, found 1 column\(s\), counted "),
        ],
    )
    def test_missing_columns_and_wrong_types_are_refused(self, call, message):
        with pytest.raises(SourceError, match=message):
            call(self.ROW)


class TestWrong:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.tsv", "a\tb\nx\ty\n\nx\ty\tz\n", r"a.tsv', line 4 has 3 field\(s\), expected 2"),
            ("a.tsv", "a\tb\nx\n", r"2 has 1 field\(s\), expected 2 as in the header \(a, b\)"),
            ("a.tsv", "a\ta\nx\ty\n", r"line 1: two columns have the same name, got \['a', 'a'\]"),
            ("a.tsv", b"a\tb\nx\t\xff\n", "a.tsv', line 2: byte 3 is not valid UTF-8"),
            ("a.csv", 'a,b\nx,"y"z\n', "a.csv', line 2 is not CSV .*Expected fields between com"),
            ("a.csv", 'a,b\nx,"y\nz\n', "a.csv', line 3 is not CSV .*Expected fields between com"),
            ("a.jsonl", '{"a": "x"}\n\n{"a" "x"}\n', "a.jsonl', row 3 is not JSON"),
            ("a.jsonl", '\n["x"]\n', "a.jsonl', line 2 is list, expected an object of columns"),
            ("a.json", '["x"]\n', "a.json', row 1 is str, expected an object of columns"),
            ("a.json", '[{"a": ', "a.json' could not be read as json"),
        ],
    )
    def test_errors_name_the_file_and_line(self, write, name, content, message):
        with pytest.raises(SourceError, match=message):
            list(read_rows([write(name, content)]))

    def test_bytes_that_are_not_text_may_be_replaced(self, write):
        file = write("a.tsv", b"x\t\xff\n")
        assert next(read_rows([file], False, "replace")).text(1) == "\ufffd"
        lines = write("a.jsonl", b'{"a": "\xff"}\n')
        assert next(read_rows([lines], False, "replace")).text("a") == "\ufffd"
