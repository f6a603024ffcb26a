"""Oracle: a codec that counts its calls. What is tokenised, when, and what is left on disk."""

import gzip
import logging
import multiprocessing
import os
import shutil
import socket
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from declutr.corpus import default_cache_dir, open_corpus
from declutr.sources import SourceError
from declutr.token_store import TokenStore


class BytesCodec:
    """One token a word, one value a byte. Calls are noted in a file, for other processes to see."""

    dtype = np.dtype(np.uint8)

    def __init__(self, log: Path | None = None, fingerprint: str = "bytes") -> None:
        self.log, self.fingerprint, self.texts = log, fingerprint, 0

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        self.texts += len(texts)
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{os.getpid()}\n")
        arrays = [np.frombuffer(text.encode("utf-8"), np.uint8) for text in texts]
        return arrays, [len(text.split()) for text in texts]


class FailingCodec(BytesCodec):
    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        if self.texts:
            raise RuntimeError("out of words")
        return super().encode(texts)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "stores"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "a.txt"
    file.write_text("one\n\n  two \t words \n")
    return file


def opened(path, cache: Path, codec=None, **options) -> TokenStore:
    return open_corpus(path, codec or BytesCodec(), cache_dir=cache, progress=False, **options)


def texts(store: TokenStore) -> list[str]:
    return [document.tobytes().decode() for document in store]


class TestRows:
    def test_one_row_one_document_blank_ones_included(self, file, cache):
        store = opened(file, cache)
        assert texts(store) == ["one", "", "two words"]
        assert store.num_tokens.tolist() == [1, 0, 2]
        assert store.meta["num_tokens"] == 3
        assert store.meta["files"] == [str(file)]

    def test_more_rows_than_are_tokenised_at_once(self, tmp_path, cache):
        rows = [f"row {n}" for n in range(1000)]
        (tmp_path / "a.txt").write_text("\n".join(rows))
        codec = BytesCodec()
        assert texts(opened(tmp_path / "a.txt", cache, codec)) == rows
        assert codec.texts == 1000

    def test_several_files(self, file, tmp_path, cache):
        (tmp_path / "b.jsonl").write_text('{"body": "three"}\n')
        store = opened([tmp_path / "b.jsonl", file], cache, text_key="body")
        assert texts(store) == ["three", "one", "", "two words"]

    def test_only_blank_rows(self, tmp_path, cache):
        (tmp_path / "a.txt").write_text("\n \n")
        assert texts(opened(tmp_path / "a.txt", cache)) == ["", ""]


class TestTokenisedOnce:
    def test_not_again(self, file, cache):
        codec = BytesCodec()
        first = opened(file, cache, codec)
        assert codec.texts == 3
        assert texts(opened(file, cache, codec)) == texts(first)
        assert codec.texts == 3

    def test_wherever_the_file_lies_and_whatever_it_is_called(self, file, tmp_path, cache):
        codec = BytesCodec()
        opened(file, cache, codec)
        moved = tmp_path / "elsewhere" / "b.txt"
        moved.parent.mkdir()
        shutil.move(file, moved)
        os.utime(moved, (1, 1))
        assert texts(opened(moved, cache, codec)) == ["one", "", "two words"]
        assert codec.texts == 3
        assert len(stores(cache)) == 1

    def test_by_relative_and_absolute_path(self, file, cache, monkeypatch):
        codec = BytesCodec()
        monkeypatch.chdir(file.parent)
        opened("a.txt", cache, codec)
        opened([file], cache, codec)
        assert codec.texts == 3

    def test_text_key_of_no_account_for_text(self, file, cache):
        codec = BytesCodec()
        opened(file, cache, codec)
        opened(file, cache, codec, text_key="body")
        assert codec.texts == 3

    def test_is_pickled_without_its_content(self, file, cache):
        import pickle

        store = pickle.loads(pickle.dumps(opened(file, cache)))
        assert texts(store) == ["one", "", "two words"]


class TestTokenisedAgain:
    @pytest.mark.parametrize(
        "content",
        ["one\n\n  two \t wordz \n", "one\n  two \t words \n\n", "one\n\n  two \t words \n\n"],
        ids=["a-letter", "order", "longer"],
    )
    def test_other_content(self, file, cache, content):
        opened(file, cache)
        file.write_text(content)
        codec = BytesCodec()
        opened(file, cache, codec)
        assert codec.texts and len(stores(cache)) == 2

    def test_other_content_of_the_same_length_within_a_clock_tick(self, file, cache):
        before = file.stat()
        opened(file, cache)
        file.write_text("ONE\n\n  two \t words \n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert texts(opened(file, cache))[0] == "ONE"

    def test_other_key(self, tmp_path, cache):
        (tmp_path / "a.jsonl").write_text('{"text": "a", "body": "b"}\n')
        assert texts(opened(tmp_path / "a.jsonl", cache)) == ["a"]
        assert texts(opened(tmp_path / "a.jsonl", cache, text_key="body")) == ["b"]

    def test_other_tokenizer(self, file, cache):
        opened(file, cache)
        codec = BytesCodec(fingerprint="other")
        opened(file, cache, codec)
        assert codec.texts == 3

    def test_other_treatment_of_bad_bytes(self, tmp_path, cache):
        (tmp_path / "a.txt").write_bytes(b"a\xff\n")
        assert texts(opened(tmp_path / "a.txt", cache, encoding_errors="replace")) == ["a\ufffd"]
        with pytest.raises(SourceError, match="line 1"):
            opened(tmp_path / "a.txt", cache)

    def test_other_order_of_files(self, tmp_path, cache):
        a, b = tmp_path / "a.txt", tmp_path / "b.txt"
        a.write_text("a\n")
        b.write_text("b\n")
        assert texts(opened([a, b], cache)) == ["a", "b"]
        assert texts(opened([b, a], cache)) == ["b", "a"]

    def test_same_bytes_in_another_format(self, tmp_path, cache):
        for name in ("a.jsonl", "a.txt"):
            (tmp_path / name).write_text('{"text": "a"}\n')
        assert texts(opened(tmp_path / "a.jsonl", cache)) == ["a"]
        assert texts(opened(tmp_path / "a.txt", cache)) == ['{"text": "a"}']


class TestFailures:
    @pytest.mark.parametrize("content", ["", "gz"])
    def test_empty(self, tmp_path, cache, content):
        file = tmp_path / ("a.txt.gz" if content else "a.txt")
        file.write_bytes(gzip.compress(b"") if content else b"")
        with pytest.raises(SourceError, match=rf"corpus is empty: not a single row in {file}"):
            opened(file, cache)
        assert stores(cache) == []

    def test_missing(self, tmp_path, cache):
        with pytest.raises(SourceError, match=r"Found no documents at .*missing.txt'. Expected"):
            opened(tmp_path / "missing.txt", cache)
        assert not cache.exists()

    def test_nothing_is_left_and_the_next_try_works(self, tmp_path, cache):
        (tmp_path / "a.txt").write_text("a\n" * 600)
        with pytest.raises(RuntimeError, match="out of words"):
            opened(tmp_path / "a.txt", cache, FailingCodec())
        assert stores(cache) == []
        assert len(opened(tmp_path / "a.txt", cache)) == 600

    def test_bad_row_leaves_nothing(self, tmp_path, cache):
        (tmp_path / "a.txt").write_bytes(b"a\n" * 600 + b"\xff")
        with pytest.raises(SourceError, match="line 601"):
            opened(tmp_path / "a.txt", cache)
        assert stores(cache) == []

    def test_what_a_killed_process_left_is_removed(self, file, cache):
        name = opened(file, cache).folder.name
        shutil.rmtree(cache / name)
        (cache / f"{name}.partial-{socket.gethostname()}-1").mkdir()
        (cache / f"{name}.partial-{socket.gethostname()}-1" / "meta.json").write_text("{}")
        assert texts(opened(file, cache)) == ["one", "", "two words"]
        assert stores(cache) == [name]

    def test_half_a_store_is_no_store(self, file, cache):
        folder = opened(file, cache).folder
        (folder / "meta.json").unlink()
        (folder / "values.npy").write_bytes(b"")
        assert texts(opened(file, cache)) == ["one", "", "two words"]


class TestPlace:
    def test_environment_then_home(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("DECLUTR_CACHE", "~/here")
        assert default_cache_dir() == tmp_path / "here"
        monkeypatch.setenv("DECLUTR_CACHE", "")
        assert default_cache_dir() == tmp_path / ".cache" / "declutr"
        monkeypatch.delenv("DECLUTR_CACHE")
        assert default_cache_dir() == tmp_path / ".cache" / "declutr"

    def test_home_in_cache_dir(self, file, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert opened(file, "~/stores").folder.parent == tmp_path / "stores"

    def test_logs_how_much_there_is(self, file, cache, caplog):
        with caplog.at_level(logging.INFO, logger="declutr.corpus"):
            opened(file, cache)
        assert "3 documents, 3 tokens" in caplog.text


def _open_in_process(file: Path, cache: Path, log: Path, start) -> None:
    codec = BytesCodec(log)
    start.wait(60)
    assert len(opened(file, cache, codec)) == 2000


def test_of_several_processes_one_tokenises(tmp_path, cache):
    file, log = tmp_path / "a.txt", tmp_path / "log"
    file.write_text("some words of a document\n" * 2000)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    processes = [
        context.Process(target=_open_in_process, args=(file, cache, log, start)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(90)
    assert [process.exitcode for process in processes] == [0, 0]
    pids = log.read_text().split()
    assert len(pids) == 8 and len(set(pids)) == 1  # 2000 rows, 256 at once
    assert len(stores(cache)) == 1


@pytest.mark.parametrize(
    ("name", "rows", "bound"),
    # The parser of JSON lines holds blocks of 10 MB, in four forms at once.
    [("a.txt", 12_000, 12e6), ("a.txt.gz", 12_000, 12e6), ("a.jsonl", 30_000, 58e6)],
)
def test_memory_stays_flat(tmp_path, cache, name, rows, bound):
    """24 and 60 MB of documents."""
    text = " ".join(["w" * 399] * 5)
    line = f'{{"text": "{text}"}}\n' if name.endswith("jsonl") else text + "\n"
    packed = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / name).write_bytes(packed((line * rows).encode()))
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / name).write_bytes(packed(line.encode()))
    opened(tmp_path / "few", cache)  # loads libraries
    tracemalloc.start()
    try:
        store = opened(tmp_path / name, cache)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(store) == rows and store.meta["num_tokens"] == rows * 5
    assert peak < bound < rows * len(line)


def stores(cache: Path) -> list[str]:
    """Folders in the cache, partial ones included."""
    return [p.name for p in cache.iterdir() if p.is_dir()] if cache.exists() else []
