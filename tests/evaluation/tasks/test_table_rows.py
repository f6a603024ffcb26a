"""Rows of CSV, TSV and JSON files as people write them, and what is said of bad ones."""

import re
from pathlib import Path

import pytest

from declutr.evaluation.task import BrokenData, MissingData
from declutr.evaluation.tasks.table_rows import Layout, read_table

NEEDED, PLAIN = ("text", "label"), Layout()
EXPECTED = [("a, b", "x"), ('say "no"\nor café', "y")]


def table(folder: Path, name: str, content: str | bytes, layout: Layout = PLAIN) -> list:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(folder / name, NEEDED, layout)


CSV = 'label,text,id\nx,"a, b",1\n\ny,"say ""no""\nor café",2\n'
JSON = '{"text": "a, b", "label": "x"}', '{"text": "say \\"no\\"\\nor caf\\u00e9", "label": "y"}'


@pytest.mark.parametrize(
    ("name", "content", "layout"),
    [
        ("a.csv", CSV, Layout()),
        ("a.csv", CSV.replace("\n", "\r\n").replace('no""\r\n', 'no""\n'), Layout()),
        ("a.csv", CSV.encode("utf-8-sig"), Layout()),
        ("a.csv", CSV.encode("utf-16"), Layout()),
        ("a.csv", CSV.encode("latin-1"), Layout(encoding="latin-1")),
        ("a.csv", CSV.encode("utf-8-sig"), Layout(encoding="utf-8")),
        ("a.csv", re.sub(",(?! )", ";", CSV), Layout()),
        ("a.CSV", re.sub(",(?! )", "|", CSV), Layout()),
        ("a.txt", re.sub(",(?! )", ":", CSV), Layout(delimiter=":")),
        ("a.tsv", re.sub(",(?! )", "\t", CSV), Layout(quoted=True)),
        ("a.jsonl", "\n".join(JSON), Layout()),
        ("a.json", "\n\n".join(JSON), Layout()),
        ("a.json", f"[{','.join(JSON)}]".encode("utf-8-sig"), Layout()),
    ],
)
def test_formats_delimiters_quotes_and_encodings(tmp_path, name, content, layout) -> None:
    rows = table(tmp_path, name, content, layout)
    assert [(row.text("text"), row.label("label")) for row in rows] == EXPECTED


def test_quotes_mean_nothing_between_tabs_and_columns_may_have_numbers(tmp_path) -> None:
    rows = table(tmp_path, "a.tsv", 'text\tlabel\n"a\tb"\n')
    assert rows[0].text("text") == '"a' and rows[0].label("label") == 'b"'
    (tmp_path / "b.csv").write_text("x,1\ny,2\n")
    rows = read_table(tmp_path / "b.csv", [1, 0], Layout(header=False))
    assert [(row.line, row.text(0), row.number(1)) for row in rows] == [
        (1, "x", 1.0),
        (2, "y", 2.0),
    ]


def test_fields_between_tabs_that_are_quoted_as_in_csv_are_told(tmp_path, caplog) -> None:
    written = 'text\tlabel\nplain\tx\n"say ""no"""\ty\n"say ""no"""\ty\n'
    for quoted, text in ((True, 'say "no"'), (False, '"say ""no"""')):
        rows = table(tmp_path, "a.tsv", written, Layout(quoted=quoted))
        assert rows[1].text("text") == text and not caplog.records
    assert table(tmp_path, "a.tsv", written)[1].text("text") == '"say ""no"""'
    (record,) = caplog.records
    assert "a.tsv, line 3: a field is in quotes and has doubled quotes" in record.getMessage()


def test_labels_of_every_type_are_texts(tmp_path) -> None:
    values = ['"a"', "1", "1.0", "true", '" b "']
    rows = table(tmp_path, "a.jsonl", "".join(f'{{"text": "t", "label": {v}}}\n' for v in values))
    assert [row.label("label") for row in rows] == ["a", "1", "1", "true", "b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", "PK", "a.xlsx: expected a file that ends with one of .csv, .tsv, .txt, .jsonl"),
        ("a.csv", "", "a.csv has no row, expected the columns 'text', 'label'"),
        ("a.csv", "text,label\n", "a.csv has no row"),
        ("a.csv", "question,label\na,b\n", "line 1: expected the columns 'text', 'label', found"),
        ("a.csv", "text,text\na,b\n", "line 1: two columns have the same name"),
        (
            "a.csv",
            "text,label\na,b\nc\n",
            "line 3: got 1 fields, expected 2 as in the header (text",
        ),
        ("a.csv", "text,label\na,b,c\n", "line 2: got 3 fields, expected 2 as in the header (text"),
        ("a.csv", 'text,label\na,b\n"a" b,c\n', "line 3: ',' expected after '\"'. Expected fields"),
        ("a.csv", 'text,label\na,b\n"a,b\n', "line 3: unexpected end of data. Expected fields"),
        ("a.csv", b"text,label\na,b\n\xe9,b\n", "line 3: byte 1 (0xE9) is not UTF-8"),
        ("a.jsonl", '{"text": 1}\n', "line 1: expected the columns 'text', 'label', found 'text'"),
        ("a.jsonl", '["a"]\n', "line 1: expected an object with 'text', 'label', got list"),
        ("a.jsonl", "\n{'text': 1}\n", "line 2: expected one JSON object on each line, got"),
        ("a.json", '[{"text":\n"a"', "line 2: expected one JSON object on each line, got"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path, name, content, message) -> None:
    with pytest.raises(BrokenData, match=re.escape(message)) as error:
        table(tmp_path, name, content)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_a_bad_value_is_told_with_its_place(tmp_path) -> None:
    content = '{"text": " ", "label": null}\n{"text": 3, "label": 1.5}\n'
    blank, other = table(tmp_path, "a.jsonl", content)
    for read, message in (
        (lambda: blank.text("text"), "a.jsonl, line 1, column 'text': got ' ', expected a text"),
        (lambda: other.text("text"), "line 2, column 'text': got 3, expected a text"),
        (lambda: blank.label("label"), "column 'label': got nothing, expected a label"),
        (lambda: other.label("label"), "column 'label': got 1.5, expected a label"),
        (lambda: blank.number("text"), "column 'text': got ' ', expected a number, such as 3.5"),
    ):
        with pytest.raises(BrokenData, match=re.escape(message)):
            read()
    for wrong in ("3,5", "nan", "inf", ""):
        (tmp_path / "b.csv").write_text(f"n;m\n{wrong};1\n")
        (row,) = read_table(tmp_path / "b.csv", ["n"], Layout())
        with pytest.raises(BrokenData, match=r"line 2, column 'n': got .*expected a number"):
            row.number("n")
    with pytest.raises(MissingData, match=r"c.csv is not there"):
        read_table(tmp_path / "c.csv", ["n"], Layout())
    with pytest.raises(
        BrokenData, match=r"b.csv, line 2: byte 5 .* is not ascii, the encoding that"
    ):
        table(tmp_path, "b.csv", "n;m\né;1\n", Layout(encoding="ascii"))
