"""Tests of tokenised corpora: what is tokenised when, and what is left on disk.

The oracle is a codec that counts its calls.
"""

import gzip
import hashlib
import json
import logging
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from declutr.corpus import store_places
from declutr.corpus import tokenized as corpus
from declutr.corpus.documents import SourceError
from declutr.corpus.token_store import DamagedStore, TokenStore
from declutr.corpus.tokenized import default_cache_dir, open_corpus


class BytesCodec:
    """A codec with one token per word and one value per byte.

    It logs its calls in a file, so that the calls of other processes can be counted.
    """

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
    """A codec that raises at the document "stop", or at another one."""

    def __init__(self, error: BaseException, at: str = "stop") -> None:
        super().__init__()
        self.error, self.at = error, at

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        if self.at in texts:
            raise self.error
        return super().encode(texts)


@pytest.fixture(autouse=True)
def workers(monkeypatch):
    """Set the number of processes: two for a large corpus, unless the test sets another."""
    monkeypatch.setenv("DECLUTR_WORKERS", "2")
    return lambda count: monkeypatch.setenv("DECLUTR_WORKERS", str(count))


@pytest.fixture
def small_batches(monkeypatch):
    """Set batches of ten documents, and two processes from the third batch on."""
    monkeypatch.setattr(corpus, "_BATCH_DOCUMENTS", 10)
    monkeypatch.setattr(corpus, "_BATCHES_ALONE", 2)


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
        rows = [f"row {n}" for n in range(5000)]
        (tmp_path / "a.txt").write_text("\n".join(rows))
        codec = BytesCodec()
        assert texts(opened(tmp_path / "a.txt", cache, codec)) == rows
        assert codec.texts == 5000

    def test_several_files(self, file, tmp_path, cache):
        (tmp_path / "b.jsonl").write_text('{"body": "three"}\n')
        store = opened([tmp_path / "b.jsonl", file], cache, text_key="body")
        assert texts(store) == ["three", "one", "", "two words"]

    def test_only_blank_rows(self, write, cache):
        assert texts(opened(write("a.txt", "\n \n"), cache)) == ["", ""]


class TestTokenisedOnce:
    def test_a_second_call_tokenises_nothing(self, file, cache):
        codec = BytesCodec()
        first = opened(file, cache, codec)
        assert codec.texts == 3
        assert texts(opened(file, cache, codec)) == texts(first)
        assert codec.texts == 3

    def test_a_moved_and_renamed_file_keeps_its_store(self, file, tmp_path, cache):
        codec = BytesCodec()
        opened(file, cache, codec)
        moved = tmp_path / "elsewhere" / "b.txt"
        moved.parent.mkdir()
        shutil.move(file, moved)
        os.utime(moved, (1, 1))
        assert texts(opened(moved, cache, codec)) == ["one", "", "two words"]
        assert codec.texts == 3
        assert len(stores(cache)) == 1

    def test_for_other_names_and_keys_of_the_same_text_file(self, file, cache, monkeypatch):
        codec = BytesCodec()
        monkeypatch.chdir(file.parent)
        opened("a.txt", cache, codec)
        opened([file], cache, codec)
        opened(file, cache, codec, text_key="body")
        assert codec.texts == 3

    def test_is_pickled_without_its_content(self, file, cache):
        store = pickle.loads(pickle.dumps(opened(file, cache)))
        assert texts(store) == ["one", "", "two words"]


class TestTokenisedAgain:
    @pytest.mark.parametrize(
        "content",
        ["one\n\n  two \t wordz \n", "one\n  two \t words \n\n", "one\n\n  two \t words \n\n"],
        ids=["a-letter", "order", "longer"],
    )
    def test_after_a_change_of_content(self, file, cache, content):
        opened(file, cache)
        file.write_text(content)
        codec = BytesCodec()
        opened(file, cache, codec)
        assert codec.texts and len(stores(cache)) == 2

    def test_after_a_change_of_the_same_length_within_a_clock_tick(self, file, cache):
        before = file.stat()
        opened(file, cache)
        file.write_text("ONE\n\n  two \t words \n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert texts(opened(file, cache))[0] == "ONE"

    def test_with_another_text_key_or_encoding_errors(self, write, cache):
        file = write("a.jsonl", b'{"text": "a\xff", "body": "b"}\n')
        for key, expected in (("text", "a\ufffd"), ("body", "b")):
            store = opened(file, cache, text_key=key, encoding_errors="replace")
            assert texts(store) == [expected]
        with pytest.raises(SourceError, match="line 1"):
            opened(file, cache)

    def test_with_another_tokenizer(self, file, cache):
        opened(file, cache)
        codec = BytesCodec(fingerprint="other")
        opened(file, cache, codec)
        assert codec.texts == 3

    def test_with_another_order_of_files(self, write, cache):
        a, b = write("a.txt", "a\n"), write("b.txt", "b\n")
        assert texts(opened([a, b], cache)) == ["a", "b"]
        assert texts(opened([b, a], cache)) == ["b", "a"]

    def test_with_the_same_bytes_in_another_format(self, write, cache):
        for name, expected in (("a.jsonl", "a"), ("a.txt", '{"text": "a"}')):
            assert texts(opened(write(name, '{"text": "a"}\n'), cache)) == [expected]


class TestStoresOf15:
    """Stores named as release 1.5.0 did are used if their rows are the same today."""

    PLAIN = b"one\r\n\r\ntwo\r\n"

    @staticmethod
    def folder(file: Path, cache: Path) -> Path:
        parts = [1, "bytes", "strict", "text", None, hashlib.sha256(file.read_bytes()).hexdigest()]
        return cache / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "content", "kept"),
        [
            ("a.txt", PLAIN, True),
            ("a.txt.gz", gzip.compress(PLAIN, mtime=0), True),
            ("a.txt", b"\xef\xbb\xbfone\n\xc3\xa9\n", True),
            ("a.txt", b"one\rmore\ntwo\n", False),
            ("a.txt.gz", gzip.compress(b"one\rmore\ntwo\n", mtime=0), False),
            ("a.txt", b"x" * ((1 << 22) - 1) + b"\r\n", True),
            ("a.txt", b"x" * ((1 << 22) - 1) + b"\ry\n", False),
            ("a.csv", b"text\none\ntwo\n", False),
            ("a.txt", "one\ntwo\n".encode("utf-16"), False),
        ],
    )
    def test_are_used_if_the_files_have_the_same_rows(
        self, tmp_path, cache, monkeypatch, name, content, kept
    ):
        file, codec = tmp_path / name, BytesCodec()
        file.write_bytes(content)
        store = opened(file, cache)
        rows, before = texts(store), self.folder(file, cache)
        store.folder.rename(before)
        again = opened(file, cache, codec)
        assert (again.folder == before) is kept and not (kept and codec.texts)
        assert texts(again) == rows
        # The files are compared only once.
        monkeypatch.setattr(store_places, "read_as_by_1_5", lambda files: pytest.fail("read again"))
        assert opened(file, cache, codec).folder == again.folder

    def test_of_files_that_are_refused_today_are_not_used(self, write, cache):
        file = write("a.txt", "one\n")
        store = opened(file, cache)
        write("a.txt", b"one\rtwo\r")
        store.folder.rename(self.folder(file, cache))
        with pytest.raises(SourceError, match="no line feed"):
            opened(file, cache)

    def test_that_were_interrupted_are_continued(self, write, cache, small_batches):
        file, codec = write("a.txt", "a\n" * 15 + "stop\n"), BytesCodec()
        with pytest.raises(RuntimeError):
            opened(file, cache, FailingCodec(RuntimeError()))
        (begun,) = cache.glob("*.partial")
        begun.rename(f"{self.folder(file, cache)}.partial")
        assert opened(file, cache, codec).folder == self.folder(file, cache)
        assert codec.texts == 6


class TestFailures:
    @pytest.mark.parametrize(
        ("name", "content"), [("a.txt", b""), ("b.gz", gzip.compress(b"", mtime=0))]
    )
    def test_an_empty_corpus_is_refused(self, write, cache, name, content):
        file = write(name, content)
        with pytest.raises(SourceError, match=rf"corpus is empty: not a single row in {file}"):
            opened(file, cache)
        assert stores(cache) == []

    def test_a_missing_corpus_is_refused(self, tmp_path, cache):
        with pytest.raises(SourceError, match=r"Found no documents at .*missing.txt'. Expected"):
            opened(tmp_path / "missing.txt", cache)
        assert not cache.exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("rows", [15, 900])
    def test_the_next_try_after_an_error_works(self, tmp_path, cache, small_batches, rows):
        """The error is raised in this process or in another; what was tokenised is kept."""
        (tmp_path / "a.txt").write_text("a\n" * rows + "stop\n")
        with pytest.raises(RuntimeError, match="out of words"):
            opened(tmp_path / "a.txt", cache, FailingCodec(RuntimeError("out of words")))
        assert len(opened(tmp_path / "a.txt", cache)) == rows + 1

    @pytest.mark.parametrize("rows", [15, 900])
    def test_bad_row_leaves_nothing(self, tmp_path, cache, small_batches, rows):
        (tmp_path / "a.txt").write_bytes(b"a\n" * rows + b"\xff")
        for _ in range(2):
            with pytest.raises(SourceError, match=f"line {rows + 1}: byte 1 is not valid"):
                opened(tmp_path / "a.txt", cache)
            assert stores(cache) == []

    def test_a_store_without_meta_is_made_again(self, file, cache):
        folder = opened(file, cache).folder
        (folder / "meta.json").unlink()
        (folder / "values.npy").write_bytes(b"")
        assert texts(opened(file, cache)) == ["one", "", "two words"]


class TestPlace:
    @pytest.mark.parametrize(
        ("value", "place"), [("~/here", "here"), ("", ".cache/declutr"), (None, ".cache/declutr")]
    )
    def test_the_environment_comes_before_the_home_folder(
        self, monkeypatch, tmp_path, value, place
    ):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("DECLUTR_CACHE")
        if value is not None:
            monkeypatch.setenv("DECLUTR_CACHE", value)
        assert default_cache_dir() == tmp_path / place

    def test_the_home_folder_is_expanded(self, file, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert opened(file, "~/stores").folder.parent == tmp_path / "stores"

    def test_the_log_gives_documents_and_tokens(self, file, cache, caplog):
        with caplog.at_level(logging.INFO, logger="declutr.corpus.tokenized"):
            opened(file, cache)
        assert "3 documents, 3 tokens" in caplog.text


def _open_in_process(file: Path, cache: Path, log: Path, start) -> None:
    codec = BytesCodec(log)
    start.wait(60)
    assert len(opened(file, cache, codec)) == 2000


@pytest.mark.slow
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
    assert len(pids) == 2 and len(set(pids)) == 1  # There are 2000 rows, and 1024 in a batch.
    assert len(stores(cache)) == 1


def rows_of(count: int) -> list[str]:
    """Return rows of many lengths, some of them blank."""
    return [" ".join(f"r{number}w{n}" for n in range(number % 17)) for number in range(count)]


class TestSeveralProcesses:
    @pytest.fixture
    def many(self, tmp_path) -> Path:
        (tmp_path / "many.txt").write_text("\n".join(rows_of(500)) + "\n")
        return tmp_path / "many.txt"

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [1, 2, 3, 7])
    def test_any_number_gives_the_same_bytes(
        self, many, tmp_path, cache, small_batches, workers, count
    ):
        workers(count)
        codec = BytesCodec(tmp_path / "log")
        store = opened(many, cache, codec)
        assert texts(store) == rows_of(500)
        workers(1)
        assert contents(store.folder) == contents(opened(many, tmp_path / "other").folder)
        pids = set((tmp_path / "log").read_text().split())
        assert len(pids) <= count and (str(os.getpid()) in pids) is (count == 1)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["pieces", "words"])
    def test_real_tokenizers_give_the_same_bytes(
        self, checkpoint, corpus_file, documents, cache, tmp_path, monkeypatch, workers, kind
    ):
        # Imported here because the interrupted processes import this module, and need no AllenNLP.
        from allennlp.data.token_indexers import PretrainedTransformerIndexer
        from allennlp.data.tokenizers import PretrainedTransformerTokenizer, WhitespaceTokenizer

        from declutr.data.codecs import text_codec

        monkeypatch.setattr(corpus, "_BATCH_DOCUMENTS", 2)
        monkeypatch.setattr(corpus, "_BATCHES_ALONE", 2)
        name = str(checkpoint)
        if kind == "pieces":
            indexers = {"tokens": PretrainedTransformerIndexer(name)}
            codec = text_codec(PretrainedTransformerTokenizer(name), indexers)
        else:
            codec = text_codec(WhitespaceTokenizer(), {})
        store = opened(corpus_file, cache, codec)
        workers(1)
        alone = opened(corpus_file, tmp_path / "other", codec)
        assert contents(store.folder) == contents(alone.folder)
        arrays, lengths = codec.encode(documents)
        assert [document.tolist() for document in store] == [array.tolist() for array in arrays]
        assert store.num_tokens.tolist() == lengths

    def test_a_small_corpus_starts_no_others(self, many, tmp_path, cache):
        codec = BytesCodec(tmp_path / "log")
        opened(many, cache, codec)
        assert set((tmp_path / "log").read_text().split()) == {str(os.getpid())}

    def test_batches_are_bounded_in_characters(self, tmp_path, cache, monkeypatch):
        monkeypatch.setattr(corpus, "_BATCH_CHARACTERS", 100)
        (tmp_path / "a.txt").write_text(("long " * 50 + "\n") * 6 + "short\n" * 30)
        opened(tmp_path / "a.txt", cache, BytesCodec(tmp_path / "log"))
        assert len((tmp_path / "log").read_text().split()) == 6 + 2

    @pytest.mark.slow
    def test_errors_of_workers_arrive_unchanged(self, many, cache, small_batches):
        many.write_text(many.read_text() + "stop\n")
        for error in (KeyError("stop"), SourceError("row 501 is odd")):  # This one keeps nothing.
            with pytest.raises(type(error)) as caught:
                opened(many, cache, FailingCodec(error))
            assert str(caught.value) == str(error)
        assert stores(cache) == [] and multiprocessing.active_children() == []

    def test_an_invalid_number_is_refused(self, many, cache, small_batches, workers):
        workers("many")
        with pytest.raises(ValueError, match="DECLUTR_WORKERS is 'many', expected a number"):
            opened(many, cache)


class SlowCodec(BytesCodec):
    """A codec that writes a note and then hangs at the document "wait"."""

    def __init__(self, note: Path) -> None:
        super().__init__()
        self.note = note

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        if "wait" in texts and not self.note.exists():
            beside = self.note.with_suffix(".new")
            beside.write_text(str(os.getpid()))
            os.replace(beside, self.note)
            time.sleep(600)
        return super().encode(texts)


def _tokenise_slowly(file: str, cache: str, note: str, journal_every: str) -> None:
    """Tokenise with a `SlowCodec`, in a process that a test interrupts."""
    from declutr.corpus import token_store_writer

    corpus._BATCH_DOCUMENTS, corpus._BATCHES_ALONE = 10, 2
    token_store_writer._JOURNAL_EVERY = float(journal_every)
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs ignore SIGINT.
    if "SIGTERM_RAISES" in os.environ:
        from allennlp.common.util import install_sigterm_handler

        install_sigterm_handler()
    opened(Path(file), Path(cache), SlowCodec(Path(note)))


class TestInterrupted:
    @pytest.fixture
    def file(self, tmp_path) -> Path:
        rows = rows_of(400)
        rows[300] = "wait"
        (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
        return tmp_path / "rows.txt"

    def start(self, file, cache, note, journal_every=0.0) -> subprocess.Popen:
        """Start a process that tokenises 300 documents and hangs at the next one."""
        code = f"import sys; from {__name__} import _tokenise_slowly as f; f(*sys.argv[1:])"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(file), str(cache), str(note), str(journal_every)],
            cwd=Path(__file__).parents[2],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # A Ctrl-C goes to all processes of a terminal.
        )
        deadline = time.monotonic() + 120
        while not note.exists() or not (journal_every or self.journal_is_there(cache)):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
        return process

    def journal_is_there(self, cache) -> bool:
        journal = next(cache.glob("*.partial/journal.json"), None)
        return journal is not None and json.loads(journal.read_text())["state"][0] >= 300

    @pytest.fixture
    def partial(self, file, cache, workers, small_batches) -> None:
        """Leave a partial store of the first 300 documents, as an interrupt does."""
        workers(1)
        with pytest.raises(KeyboardInterrupt):
            opened(file, cache, FailingCodec(KeyboardInterrupt(), at="wait"))

    def check_the_rest(self, file, cache, tmp_path, done: int) -> None:
        codec = BytesCodec()
        store = opened(file, cache, codec)
        assert codec.texts == 400 - done  # All in this process, as few are left.
        assert contents(store.folder) == contents(opened(file, tmp_path / "other").folder)
        assert stores(cache) == [store.folder.name]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("count", "journal_every", "done"),
        [(1, 0.0, 300), (2, 0.0, 300), (2, 1000.0, 0)],
        ids=["alone", "with-workers", "before-the-first-journal"],
    )
    def test_killed(self, file, cache, tmp_path, workers, count, journal_every, done):
        workers(count)
        process = self.start(file, cache, tmp_path / "note", journal_every)
        process.kill()
        process.communicate()
        assert_gone((tmp_path / "note").read_text())
        self.check_the_rest(file, cache, tmp_path, done)

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [1, 2])
    def test_interrupted_by_ctrl_c(self, file, cache, tmp_path, workers, count):
        workers(count)
        # A process alone has all 300 documents when it hangs, and writes the journal at its end.
        # With workers, the last journal tells that their results have arrived.
        process = self.start(file, cache, tmp_path / "note", 1000.0 if count == 1 else 0.0)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT
        assert "interrupted after 300 documents. They are kept: the next start" in errors
        assert errors.count("Traceback") == 1  # Workers print none.
        assert_gone((tmp_path / "note").read_text())
        self.check_the_rest(file, cache, tmp_path, done=300)

    @pytest.mark.slow
    @pytest.mark.parametrize("handler", [False, True])
    def test_terminated(self, file, cache, tmp_path, monkeypatch, handler):
        """The signal SIGTERM ends the process, or raises, as AllenNLP's commands have it."""
        if handler:
            monkeypatch.setenv("SIGTERM_RAISES", "yes")
        process = self.start(file, cache, tmp_path / "note")
        process.terminate()
        process.communicate(timeout=60)
        assert_gone((tmp_path / "note").read_text())
        self.check_the_rest(file, cache, tmp_path, done=300)

    def test_an_invalid_setting_at_the_next_start_costs_nothing(
        self, file, cache, tmp_path, partial, workers
    ):
        workers("four")
        with pytest.raises(ValueError, match="DECLUTR_WORKERS is 'four'"):
            opened(file, cache)
        workers(1)
        self.check_the_rest(file, cache, tmp_path, done=300)

    @pytest.mark.slow
    def test_a_worker_that_is_killed(self, file, cache, tmp_path):
        process = self.start(file, cache, tmp_path / "note")
        os.kill(int((tmp_path / "note").read_text()), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert "WorkerLost: A worker process ended with exit code -9" in errors
        assert process.returncode == 1
        self.check_the_rest(file, cache, tmp_path, done=300)

    @pytest.mark.slow
    def test_several_processes_tokenise_the_rest(self, file, cache, tmp_path, partial, workers):
        workers(2)
        store = opened(file, cache, BytesCodec(tmp_path / "log"))
        assert contents(store.folder) == contents(opened(file, tmp_path / "other").folder)
        assert str(os.getpid()) not in (tmp_path / "log").read_text().split()

    def test_a_file_changed_in_between_is_another_corpus(self, file, cache, partial):
        file.write_text("other\n" * 400)
        assert texts(opened(file, cache)) == ["other"] * 400

    def test_the_progress_bar_begins_with_what_is_done(self, file, cache, partial, capsys):
        open_corpus(file, BytesCodec(), cache_dir=cache, progress=True)
        bar = capsys.readouterr().err
        assert re.search(r"corpus:  7\d%", bar.split("\r")[1]) and "100%" in bar
        assert "400 documents" in bar


def assert_gone(pid: str) -> None:
    """Assert that a worker has ended, as a worker does with its process even while it hangs.

    A zombie counts as ended: only init is left to collect it.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    os.kill(int(pid), signal.SIGKILL)
    raise AssertionError(f"process {pid} still runs")


class ChangingCodec(BytesCodec):
    """A codec that changes the source when it comes to the second batch."""

    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        if self.texts == 10:
            self.change()
        return super().encode(texts)


class TestChangedWhileTokenising:
    @pytest.fixture
    def file(self, tmp_path, small_batches, workers) -> Path:
        workers(1)
        (tmp_path / "rows.txt").write_text("\n".join(rows_of(40)) + "\n")
        return tmp_path / "rows.txt"

    @pytest.mark.parametrize(
        "change",
        [
            lambda file: file.write_text("another\n" * 40),
            lambda file: file.open("a").write("one more\n"),
            lambda file: file.open("ab").write(b"\xff\n"),
            lambda file: file.unlink(),
            lambda file: file.write_text(file.read_text().replace("r16w0", "r16wx")),
        ],
        ids=["rewritten", "longer", "undecodable", "gone", "same-length"],
    )
    def test_a_change_is_refused_and_nothing_is_kept(self, file, cache, change):
        with pytest.raises(SourceError, match=r"rows.txt' changed while it was being read. Expect"):
            opened(file, cache, ChangingCodec(lambda: change(file)))
        assert stores(cache) == []

    def test_a_touched_file_is_accepted(self, file, cache):
        store = opened(file, cache, ChangingCodec(lambda: os.utime(file, (1, 1))))
        assert texts(store) == rows_of(40)

    def test_an_interrupt_after_a_change_keeps_nothing(self, file, cache):
        """Tokens of the changed file must not be taken for those of the first one later."""

        def change_and_stop():
            file.write_text("another\n" * 40)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            opened(file, cache, ChangingCodec(change_and_stop))
        assert stores(cache) == []


@pytest.mark.slow
def test_a_daemon_tokenises_alone(tmp_path, cache):
    """A worker of a torch loader is a daemon, which may not start processes."""
    (tmp_path / "a.txt").write_text("some words\n" * 500)
    context = multiprocessing.get_context("fork")
    process = context.Process(
        target=_open_in_small_batches, args=(tmp_path / "a.txt", cache), daemon=True
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0 and len(stores(cache)) == 1


def _open_in_small_batches(file: Path, cache: Path) -> None:
    corpus._BATCH_DOCUMENTS, corpus._BATCHES_ALONE = 10, 2
    assert len(opened(file, cache)) == 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "bound"),
    # The reader of JSON lines holds blocks of 10 MB in four forms at once.
    [("a.txt", 12_000, 12e6), ("a.txt.gz", 12_000, 12e6), ("a.jsonl", 30_000, 58e6)],
)
def test_memory_does_not_grow_with_the_corpus(tmp_path, cache, name, rows, bound):
    """The documents have 24 and 60 MB."""
    text = " ".join(["w" * 399] * 5)
    line = f'{{"text": "{text}"}}\n' if name.endswith("jsonl") else text + "\n"
    packed = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / name).write_bytes(packed((line * rows).encode()))
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / name).write_bytes(packed(line.encode()))
    opened(tmp_path / "few", cache)  # This imports libraries.
    tracemalloc.start()
    try:
        store = opened(tmp_path / name, cache)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(store) == rows and store.meta["num_tokens"] == rows * 5
    assert peak < bound < rows * len(line)


class TestDamaged:
    @pytest.fixture
    def file(self, tmp_path) -> Path:
        file = tmp_path / "docs.txt"
        file.write_text("".join(f"a document of {number} words\n" for number in range(50)))
        return file

    @pytest.mark.parametrize("name", ["values.npy", "offsets.npy", "num_tokens.npy", "meta.json"])
    def test_a_damaged_store_is_made_again(self, file, cache, caplog, name):
        store = open_corpus(file, BytesCodec(), cache_dir=cache)
        sound = contents(store.folder)
        damaged = bytearray(sound[name])
        damaged[-20] ^= 1
        (store.folder / name).write_bytes(damaged)
        codec = BytesCodec()
        again = open_corpus(file, codec, cache_dir=cache)
        assert codec.texts == 50 and contents(again.folder) == sound
        assert "is damaged" in caplog.text and "Tokenising the corpus again" in caplog.text

    def test_a_store_that_another_process_marks_as_damaged(self, file, cache, monkeypatch):
        folder = open_corpus(file, BytesCodec(), cache_dir=cache).folder
        exists = TokenStore.exists

        def and_then_it_is_gone(folder) -> bool:
            there = exists(folder)
            if there:
                (folder / "meta.json").unlink()
            return there

        with monkeypatch.context() as patch:
            patch.setattr(TokenStore, "exists", staticmethod(and_then_it_is_gone))
            assert len(open_corpus(file, BytesCodec(), cache_dir=cache)) == 50
        assert exists(folder)

    def test_a_damaged_store_in_a_read_only_cache_is_refused(self, file, cache, monkeypatch):
        folder = open_corpus(file, BytesCodec(), cache_dir=cache).folder
        (folder / "meta.json").write_text("{")
        replace = mock.Mock(side_effect=PermissionError("read-only"))
        monkeypatch.setattr("declutr.corpus.token_store.os.replace", replace)
        with pytest.raises(DamagedStore, match="Remove the folder"):
            open_corpus(file, BytesCodec(), cache_dir=cache)


def stores(cache: Path) -> list[str]:
    """Return the names of the folders in the cache, partial ones included."""
    return [p.name for p in cache.iterdir() if p.is_dir()] if cache.exists() else []


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
