"""Tests of shard files; the oracle is the array that was written, compared bit by bit."""

import json
import os
import stat
import sys

import numpy as np
import pytest

from declutr.inference.bulk.shard_files import (
    DTYPES,
    FORMATS,
    read_shard,
    require,
    write_shard,
    write_whole,
)


def every_kind_of_number(dtype: str) -> np.ndarray:
    """Return an array `(n, 4)` of all exponents, both signs, the extremes, and 0 of both signs."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    exponents = rng.uniform(np.log2(info.smallest_subnormal), np.log2(info.max), 4000)
    numbers = np.exp2(exponents) * rng.choice([-1, 1], 4000)
    edges = [info.max, info.min, info.tiny, info.smallest_subnormal, info.eps, 1 / 3, 0.0, -0.0]
    return np.concatenate([numbers, edges]).astype(dtype).reshape(-1, 4)


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
class TestRoundTrip:
    def test_every_bit_is_preserved(self, format, dtype, tmp_path):
        vectors = every_kind_of_number(dtype)
        write_shard(tmp_path / "a", format, 0, vectors)
        found = read_shard(tmp_path / "a", format, dtype, 4)
        assert found.dtype == dtype and found.shape == vectors.shape
        assert np.array_equal(bits(found), bits(vectors))

    def test_rows_that_are_not_finite_stay_so(self, format, dtype, tmp_path):
        vectors = np.array([[1, 2], [np.nan, np.nan], [3, 4]], dtype)
        write_shard(tmp_path / "a", format, 0, vectors)
        assert np.array_equal(read_shard(tmp_path / "a", format, dtype, 2), vectors, equal_nan=True)

    def test_the_same_array_gives_the_same_bytes(self, format, dtype, tmp_path):
        for name in "ab":
            write_shard(tmp_path / name, format, 7, every_kind_of_number(dtype))
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_npy_is_plain_numpy_and_stays_on_the_disk(tmp_path):
    vectors = every_kind_of_number("float32")
    write_shard(tmp_path / "a.npy", "npy", 0, vectors)
    assert np.array_equal(np.load(tmp_path / "a.npy"), vectors)
    assert isinstance(read_shard(tmp_path / "a.npy", "npy", "float32", 4), np.memmap)


def test_json_lines_are_readable_without_declutr(tmp_path):
    write_shard(tmp_path / "a", "jsonl", 5, np.array([[0.1, -2], [np.nan, 0]], np.float32))
    rows = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert [row["row"] for row in rows] == [5, 6]
    assert np.float32(rows[0]["embedding"][0]) == np.float32(0.1)
    assert rows[0]["embedding"][1] == -2 and rows[1]["embedding"] is None


def test_parquet_is_readable_without_declutr(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    vectors = every_kind_of_number("float32")
    write_shard(tmp_path / "a", "parquet", 5, vectors)
    table = parquet.read_table(tmp_path / "a")
    assert table.schema.field("row").type == pyarrow.int64()
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32(), 4)
    assert table["row"].to_pylist() == list(range(5, 5 + len(vectors)))
    assert table["embedding"][1].as_py() == vectors[1].tolist()


def test_a_missing_pyarrow_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    require("npy")
    require("jsonl")
    with pytest.raises(ImportError, match=r"Parquet needs pyarrow.*pip install.*npy and jsonl do"):
        require("parquet")


class TestWriteWhole:
    def test_an_old_file_stays_until_the_new_one_is_complete(self, tmp_path):
        target = tmp_path / "file"
        target.write_bytes(b"before")

        def broken(file):
            file.write(b"half")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            write_whole(target, broken)
        assert target.read_bytes() == b"before"

    def test_a_file_gets_its_name_after_it_is_on_the_disk(self, tmp_path, monkeypatch):
        """Trace the calls: renamed earlier, the file could be empty after a power cut."""
        order, fsync, replace = [], os.fsync, os.replace

        def traced_fsync(descriptor):
            order.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", traced_fsync)
        monkeypatch.setattr(os, "replace", lambda *names: order.append("name") or replace(*names))
        write_whole(tmp_path / "file", lambda file: file.write(b"all"))
        assert order == ["file", "name", "folder"] and (tmp_path / "file").read_bytes() == b"all"
