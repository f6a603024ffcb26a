"""Tests of embedding runs; the oracles are single rows, and a run without interruptions."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from declutr.inference.bulk import FORMATS, EmbeddingFolderError, StoredEmbeddings, embed_rows
from declutr.inference.bulk import shard_run as module
from declutr.inference.bulk.embedding_run import default_shard_rows, differences
from tests.inference.bulk.fakes import DIMENSION, Encoder, embedding, without_checksums

ABOUT = {"content": "fake", "normalize": False}
ROWS: list[str | None] = [f"row {n} " + "x" * (n % 7) for n in range(25)]
ROWS[3:6] = ["", "  \t", None]
ROWS[11] = "a nan here"
ROWS[20] = "half \ud83d of a pair"
CLEAN = [(row or "").replace("\ud83d", "\ufffd") for row in ROWS]


def run(folder: Path, rows: Any = ROWS, encoder: Encoder | None = None, **options: Any):
    encoder = encoder or Encoder()
    settings = {
        "dimension": DIMENSION,
        "describe": ABOUT,
        "shard_rows": 4,
        "truncated_texts": lambda: encoder.truncated_texts,
    }
    return embed_rows(encoder, rows, folder, **{**settings, **options})


def run_to(out: Path, stop: int | None, **options: Any) -> None:
    """Run, and interrupt the run after `stop` rows unless it is `None`."""
    with pytest.raises(KeyboardInterrupt) if stop is not None else nullcontext():
        run(out, encoder=Encoder(fail_at=stop), **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def expected(texts: list[str]) -> np.ndarray:
    vectors = np.array([embedding(text) for text in texts]).reshape(len(texts), DIMENSION)
    vectors[~np.isfinite(vectors).all(axis=1)] = np.nan
    return vectors


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """Return the files of a run over `ROWS` without interruptions."""
    run(tmp_path / "whole")
    return contents(tmp_path / "whole")


@pytest.mark.parametrize("format", ["npy", "parquet", "jsonl"])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 25])
@pytest.mark.parametrize("shard_rows", [1, 4, 100])
def test_one_embedding_for_each_row(out, format, rows, shard_rows):
    summary = run(out, ROWS[:rows], format=format, shard_rows=shard_rows)
    stored = StoredEmbeddings(out)
    assert np.array_equal(stored[:], expected(CLEAN[:rows]), equal_nan=True)
    assert summary.rows == summary.embedded_rows == len(stored) == rows
    assert summary.shards == -(-rows // shard_rows) == len(list(out.glob("embeddings-*")))


def test_counts_are_summed_over_shards(out):
    rows = [*ROWS, "long " * 10]
    counts = run(out, rows, Encoder(longest=40)).counts
    assert counts.blank_rows == 3 and counts.unreadable_rows == 1
    assert counts.not_finite_rows == 1 and counts.replaced_rows == 1
    assert counts.truncated_rows == 1
    assert StoredEmbeddings(out).manifest.counts == counts


def test_float16(out):
    rows = ["a", "inf", "x" * 1_000_000]
    summary = run(out, rows, dtype="float16")  # the last text's length overflows float16
    found = np.load(out / "embeddings-00000.npy")
    assert found.dtype == np.float16 and summary.counts.not_finite_rows == 2
    assert np.array_equal(found[0], embedding("a").astype(np.float16))
    assert np.isnan(found[1:]).all()


class TestMemory:
    def test_one_block_of_text_at_a_time(self, out, monkeypatch):
        monkeypatch.setattr(module, "BLOCK_CHARACTERS", 100)
        encoder, rows = Encoder(), [f"{n:030d}" for n in range(30)]
        run(out, rows, encoder, shard_rows=10)
        assert [len(call) for call in encoder.calls] == [4, 4, 2] * 3
        assert np.array_equal(StoredEmbeddings(out)[:], expected(rows))

    def test_rows_are_read_only_when_they_are_needed(self, out):
        """Count files as rows are read: a shard is on the disk before the next one is read."""
        seen = []

        def rows() -> Iterator[str]:
            for number in range(10):
                seen.append(len(list(out.glob("embeddings-*.npy"))))
                yield str(number)

        run(out, rows())
        assert seen == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]

    @pytest.mark.parametrize(
        ("dimension", "dtype", "rows"),
        [
            (1, "float32", 65_536),
            (256, "float32", 65_536),
            (257, "float32", 32_768),
            (384, "float32", 32_768),
            (768, "float32", 16_384),
            (768, "float16", 32_768),
            (10**9, "float32", 1),
        ],
    )
    def test_size_of_a_shard(self, dimension, dtype, rows):
        assert default_shard_rows(dimension, dtype) == rows

    def test_the_default_size_of_shards_is_kept_by_a_resumed_run(self, out):
        run(out, shard_rows=None)
        assert StoredEmbeddings(out).manifest.settings["shard_rows"] == 65_536
        run(out, shard_rows=None, overwrite=True)
        run(out / "other", shard_rows=3)
        encoder = Encoder()
        run(out / "other", encoder=encoder, shard_rows=None)  # the size of the run that is resumed
        assert not encoder.calls


class TestGoingOn:
    @pytest.mark.parametrize("format", ["npy", "parquet", "jsonl"])
    def test_a_run_resumes_after_an_interruption_at_any_shard(self, tmp_path, format):
        run(tmp_path / "whole", format=format)
        for stop in range(0, 25, 4):
            out = tmp_path / str(stop)
            run_to(out, stop, format=format)
            encoder = Encoder()
            summary = run(out, encoder=encoder, format=format)
            assert encoder.texts == CLEAN[stop:]  # no row of a finished shard
            assert (summary.embedded_rows, summary.rows) == (25 - stop, 25)
            assert contents(out) == contents(tmp_path / "whole")

    def test_killed_before_the_manifest_lists_a_shard(self, out, whole, monkeypatch):
        def killed(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module.ShardRun, "_keep", killed)
            run(out)
        assert (out / "embeddings-00000.npy").exists()
        run(out)
        assert contents(out) == whole

    def test_killed_while_writing(self, out, whole):
        run_to(out, 8)
        for name in ("embeddings-00002.npy.tmp", "embeddings-00009.npy.tmp", "manifest.json.tmp"):
            (out / name).write_bytes(b"half")
        run(out)
        assert contents(out) == whole

    def test_finished_shards_survive_an_error_of_the_source(self, out, whole):
        def rows() -> Iterator[str | None]:
            yield from ROWS[:10]
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            run(out, rows())
        encoder = Encoder()
        run(out, encoder=encoder)
        assert encoder.texts == CLEAN[8:] and contents(out) == whole

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("damage", ["missing", "short", "one bit"])
    def test_a_missing_or_damaged_shard_is_embedded_again(self, out, damage, format, caplog):
        run(out, format=format)
        sound = contents(out)
        (path,) = out.glob("embeddings-00002.*")
        told = r"embeddings-00002\.\w+' is gone or was changed"
        if damage == "missing":
            path.unlink()
        elif damage == "short":
            os.truncate(path, 100)
        else:
            damaged = bytearray(path.read_bytes())
            damaged[-3] ^= 1
            path.write_bytes(damaged)
            told = r"embeddings-00002\.\w+' is damaged: .* It is made again"
        encoder = Encoder()
        run(out, encoder=encoder, format=format)
        assert encoder.texts == CLEAN[8:12] and contents(out) == sound
        assert re.search(told, caplog.text)

    def test_a_run_of_release_1_5_is_resumed(self, out, whole, caplog):
        """Resume without checksums, where only the headers of npy files are checked."""
        run_to(out, 12)
        without_checksums(out)
        np.save(out / "embeddings-00001.npy", np.zeros((8, 2), np.float32))
        encoder = Encoder()
        run(out, encoder=encoder)
        assert encoder.texts == CLEAN[4:8] + CLEAN[12:]
        assert "embeddings-00001.npy' holds an array (8, 2)" in caplog.text

    def test_a_finished_run_does_nothing(self, out, whole):
        run(out)
        times = {p: p.stat().st_mtime_ns for p in out.iterdir() if p.name != ".lock"}
        encoder = Encoder()
        summary = run(out, encoder=encoder)
        assert not encoder.calls and (summary.embedded_rows, summary.rows) == (0, 25)
        assert {p: p.stat().st_mtime_ns for p in times} == times

    def test_about_may_change(self, out):
        run(out, about={"place": "here"})
        run(out, about={"place": "there"})
        assert StoredEmbeddings(out).manifest.about == {"place": "here"}


class TestRefused:
    @pytest.mark.parametrize(
        ("rows", "got"),
        [
            ("docs.txt", "got a single one; put it in a list"),
            *((rows, "Expected texts: .*; got") for rows in ({"a": "b"}, b"a", np.array([["a"]]))),
        ],
    )
    def test_an_iterable_of_something_else_is_refused(self, out, rows, got):
        with pytest.raises(TypeError, match=got):
            run(out, rows)
        assert not out.exists()

    @pytest.mark.parametrize("value", [0, b"", float("nan"), ["a"]])
    def test_a_row_that_is_no_text(self, out, value):
        with pytest.raises(TypeError, match=r"Expected strings, got .* at position 2"):
            run(out, ["a", "b", value])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"describe": {**ABOUT, "normalize": True}},
                "encoder.normalize: false there, true now",
            ),
            ({"describe": {"normalize": False}}, 'encoder.content: "fake" there, none now'),
            ({"shard_rows": 5}, "shard_rows: 4 there, 5 now"),
            ({"format": "jsonl"}, 'format: "npy" there, "jsonl" now'),
            ({"dtype": "float16"}, 'dtype: "float32" there, "float16" now'),
        ],
    )
    @pytest.mark.parametrize("finished", [True, False])
    def test_other_settings(self, out, options, message, finished):
        run_to(out, None if finished else 8)
        before = contents(out)
        with pytest.raises(EmbeddingFolderError, match=rf"made otherwise. {message}.*--overwrite"):
            run(out, **options)
        assert contents(out) == before
        run(out, **options, overwrite=True)
        assert len(StoredEmbeddings(out)) == 25

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            (["other", *ROWS[1:]], r"rows 0 to 3 \(from 0\) are not .*embeddings-00000.npy"),
            ([*ROWS[:9], "other", *ROWS[10:]], r"rows 8 to 11 .* are not"),
            ([*ROWS[:24], "other"], r"rows 24 to 24 .* are not"),
            ([*ROWS[:3], None, *ROWS[4:]], r"rows 0 to 3 .* are not"),  # this row was "" before
            (ROWS[1:], "rows 0 to 3"),
            (ROWS[:24], "ends after 24 rows, .* has embeddings of 25"),
            (ROWS[:10], "ends after 10 rows"),
            ([], "ends after 0 rows"),
            ([*ROWS, "more"], "goes on after the 25 rows"),
            (ROWS[:9], "goes on after the 8 rows"),  # which filled their shards
        ],
    )
    def test_other_rows(self, out, rows, message):
        run(out, ROWS[:8] if "8 rows" in message else ROWS)
        before, encoder = contents(out), Encoder()
        with pytest.raises(EmbeddingFolderError, match=rf"The input has changed: .*{message}"):
            run(out, rows, encoder)
        assert contents(out) == before and not encoder.calls

    def test_other_rows_where_a_shard_is_missing(self, out):
        run(out)
        (out / "embeddings-00002.npy").unlink()
        with pytest.raises(EmbeddingFolderError, match=r"other rows where .*-00002.npy' is miss"):
            run(out, [*ROWS[:8], "other", *ROWS[9:]])
        assert not (out / "embeddings-00002.npy").exists()

    def test_a_second_run_at_the_same_time(self, out):
        out.mkdir()
        with FileLock(out / ".lock"), pytest.raises(EmbeddingFolderError, match="Another run is"):
            run(out)
        assert run(out).rows == 25

    def test_shards_of_unknown_origin(self, out):
        out.mkdir()
        (out / "embeddings-00000.npy").write_bytes(b"precious")
        for overwrite in (False, True):
            with pytest.raises(EmbeddingFolderError, match=r"embeddings-00000.npy but no manifest"):
                run(out, overwrite=overwrite)
            assert contents(out) == {"embeddings-00000.npy": b"precious"}

    @pytest.mark.parametrize("content", [b'{"name": "an app"}', b"\xff\xfe no JSON"])
    def test_a_manifest_of_something_else(self, out, content):
        out.mkdir()
        (out / "manifest.json").write_bytes(content)
        (out / "embeddings-00000.npy").write_bytes(b"precious")
        before = contents(out)
        for overwrite in (False, True):
            with pytest.raises(EmbeddingFolderError, match=r"is not the manifest .*left as it is"):
                run(out, overwrite=overwrite)
            assert contents(out) == before

    @pytest.mark.parametrize(
        ("inside", "message"),
        [
            ("", "is a file, expected a folder"),
            ("out", r"file/out' cannot be written to \(Not a directory\). Choose"),
        ],
    )
    def test_a_file_in_the_place_of_a_folder(self, tmp_path, inside, message):
        (tmp_path / "file").write_text("")
        with pytest.raises(EmbeddingFolderError, match=message):
            run(tmp_path / "file" / inside)

    @pytest.mark.parametrize("shape", [(3, DIMENSION), (4, DIMENSION - 1), (4,)])
    def test_an_encoder_that_returns_another_shape(self, out, shape):
        message = rf"shape \(4, 4\), the encoder gave \({shape[0]}"
        with pytest.raises(EmbeddingFolderError, match=message):
            embed_rows(lambda _: np.zeros(shape), ["a"] * 4, out, dimension=DIMENSION, describe={})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"format": "csv"}, "Unknown format 'csv', expected one of"),
            ({"dtype": "int8"}, "Unknown dtype 'int8', expected one of"),
            ({"shard_rows": 0}, "shard_rows must be at least 1, got 0"),
            ({"dimension": 0}, "dimension must be at least 1, got 0"),
        ],
    )
    def test_settings_out_of_range(self, out, options, message):
        with pytest.raises(ValueError, match=message):
            run(out, **options)
        assert not out.exists()


def test_overwriting_removes_surplus_shards(out):
    run(out, shard_rows=1)
    (out / "notes.txt").write_text("mine")
    run(out, ROWS[:6], format="jsonl", overwrite=True)
    shards = {f"embeddings-0000{number}.jsonl" for number in (0, 1)}
    assert set(contents(out)) == {*shards, "manifest.json", "notes.txt"}


def test_overwriting_with_unreadable_input_removes_nothing(out, whole):
    run(out)

    def rows() -> Iterator[str]:
        yield "another row"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        run(out, rows(), overwrite=True)
    assert contents(out) == whole


def test_overwriting_what_another_release_wrote(out):
    run(out)
    content = {**json.loads((out / "manifest.json").read_text()), "version": 99}
    (out / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(EmbeddingFolderError, match=r"version 99, expected 1.*--overwrite"):
        run(out)
    run(out, ROWS[:3], overwrite=True)
    assert len(StoredEmbeddings(out)) == 3


def test_the_folder_may_be_moved(out, tmp_path, whole):
    run_to(out, 8)
    shutil.move(out, tmp_path / "moved")
    run(tmp_path / "moved")
    assert contents(tmp_path / "moved") == whole


def test_settings_are_recorded(out):
    run(out, about={"place": "somewhere"}, describe={"pooling": ("mean",), "width": 4})
    content = json.loads((out / "manifest.json").read_text())
    sizes = {"dimension": 4, "shard_rows": 4, "encoder": {"pooling": ["mean"], "width": 4}}
    assert content["settings"] == {"format": "npy", "dtype": "float32", **sizes}
    run(out, describe={"pooling": ("mean",), "width": 4})  # a tuple is a list in JSON


class TestProgress:
    def test_on_a_terminal(self, out, monkeypatch, capsys):
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        size = sum(len(text.encode()) + 1 for text in CLEAN)
        run(out, progress=True, total_bytes=size)
        last = capsys.readouterr().err.split("\r")[-1]
        assert "100%" in last and "25.0/25.0" in last and "0.0 MB of text" in last

    def test_logs_hold_no_bars(self, out, capsys):
        run(out, progress=True)
        run(out, progress=False)
        assert not capsys.readouterr().err


def test_differences_are_named_by_their_path():
    before = {"a": 1, "encoder": {"normalize": True, "old": 1, "pooling": ["mean"]}, "same": {}}
    now = {"a": 1, "encoder": {"normalize": False, "new": None, "pooling": ["mean"]}, "same": {}}
    assert differences(before, now) == [
        "encoder.normalize: true there, false now",
        "encoder.old: 1 there, none now",
        "encoder.new: none there, null now",
    ]
    assert differences(before, before) == []
