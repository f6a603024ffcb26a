"""Tests of records; the oracle is the records as written. See also `test_documents`."""

import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from declutr.corpus.records import parsed, read_records, record_format
from declutr.corpus.text_files import SourceError

ROWS = [{"text": "a", "n": 1, "l": ["x", None]}, {"text": None, "n": 2, "l": []}]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


class TestFormat:
    @pytest.mark.parametrize(
        ("content", "kind"), [('\n\n [{"a": 1}]', "json"), ('{"a": [1]}\n', "lines"), ("", "lines")]
    )
    def test_the_content_of_a_json_file_tells_it(self, tmp_path, content, kind):
        (tmp_path / "a.json").write_text(content)
        (tmp_path / "a.jsonl").write_text(content)
        assert record_format(tmp_path / "a.json") == kind
        assert record_format(tmp_path / "a.jsonl") == "lines"

    def test_the_name_of_other_files_tells_it(self, tmp_path):
        for name, kind in (("a.parquet", "parquet"), ("a.txt", "text"), ("a.tsv.gz", "tsv")):
            assert record_format(tmp_path / name) == kind


def test_lines_are_yielded_unparsed(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\nno\n')
    lines = list(read_records(tmp_path / "a.jsonl", "lines"))
    assert lines == ['{"a": 1}\n', "\n", "no\n"]
    assert parsed(lines[0], "f", 1) == {"a": 1}
    with pytest.raises(SourceError, match=r"'f', row 3 is not JSON \(.*one object a line"):
        parsed(lines[2], "f", 3)


def test_records_of_json_arrays(tmp_path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    assert list(read_records(tmp_path / "a.json", "json")) == ROWS


class TestParquet:
    def test_values(self, parquet):
        assert list(read_records(parquet, "parquet")) == ROWS

    def test_only_the_key_is_read_if_it_exists(self, parquet):
        assert list(read_records(parquet, "parquet", key="n")) == [{"n": 1}, {"n": 2}]
        assert list(read_records(parquet, "parquet", key="z")) == ROWS

    def test_dictionary_encoded_columns(self, tmp_path):
        words = pa.array(["b", "a", None, "b"]).dictionary_encode()
        pq.write_table(pa.table({"text": words}), tmp_path / "a.parquet")
        rows = read_records(tmp_path / "a.parquet", "parquet")
        assert [row["text"] for row in rows] == ["b", "a", None, "b"]

    def test_a_compressed_file(self, parquet, tmp_path):
        (tmp_path / "b.parquet.gz").write_bytes(gzip.compress(parquet.read_bytes()))
        assert list(read_records(tmp_path / "b.parquet.gz", "parquet")) == ROWS

    def test_memory_does_not_grow_with_a_row_group(self, tmp_path):
        texts = [f"{n} " * 100 for n in range(100_000)]  # The table has 69 MB.
        options = {"use_dictionary": False, "compression": "none"}
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", **options)
        pool = pa.system_memory_pool()
        before, default = pool.max_memory(), pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            count = sum(1 for _ in read_records(tmp_path / "a.parquet", "parquet", key="text"))
        finally:
            pa.set_memory_pool(default)
        assert count == len(texts) and 0 < pool.max_memory() - before < 16 << 20

    def test_reading_does_not_import_datasets(self, parquet, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        assert list(read_records(parquet, "parquet")) == ROWS
