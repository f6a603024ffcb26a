"""Tests of token stores and their writer.

The oracles are the lists that were written, `numpy.load`, and the contents of the folder.
"""

import gc
import itertools
import json
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.corpus import token_store
from declutr.corpus.token_store import DamagedStore, TokenStore
from declutr.corpus.token_store_writer import TokenStoreWriter

DOCUMENTS = [[1, 2, 3], [], [65535], [4, 5], []]
LENGTHS = [3, 0, 9, 2, 1]  # In tokens, which may differ from the length of the array.


def append(writer, arrays, num_tokens):
    values = np.concatenate([*arrays, np.empty(0, writer._dtype)], dtype=writer._dtype)
    writer.append(values, np.array([len(array) for array in arrays]), np.array(num_tokens))


def write(folder, documents=DOCUMENTS, lengths=None, dtype=np.uint16, at_once=2):
    lengths = lengths or [len(document) for document in documents]
    with TokenStoreWriter(folder, dtype) as writer:
        for begin in range(0, len(documents), at_once):
            part = slice(begin, begin + at_once)
            append(writer, [np.array(d, dtype=dtype) for d in documents[part]], lengths[part])
        writer.meta = {"num_tokens": sum(lengths)}
    return TokenStore(folder)


class TestRoundTrip:
    @pytest.mark.parametrize("at_once", [1, 2, 5, 100])
    def test_documents(self, tmp_path, at_once):
        store = write(tmp_path / "s", lengths=LENGTHS, at_once=at_once)
        assert len(store) == 5
        assert [document.tolist() for document in store] == DOCUMENTS
        assert store.num_tokens.tolist() == LENGTHS
        assert store.meta == {"num_tokens": 15}

    @given(st.lists(st.lists(st.integers(0, 255), max_size=20), max_size=30), st.integers(1, 7))
    @settings(max_examples=30, deadline=None)
    def test_any_documents(self, tmp_path_factory, documents, at_once):
        store = write(tmp_path_factory.mktemp("s") / "s", documents, None, np.uint8, at_once)
        assert [document.tolist() for document in store] == documents

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
    def test_dtype_is_kept(self, tmp_path, dtype):
        top = np.iinfo(dtype).max
        store = write(tmp_path / "s", [[0, int(top)]], dtype=dtype)
        assert store[0].dtype == dtype and store[0].tolist() == [0, top]

    def test_indices(self, tmp_path):
        store = write(tmp_path / "s")
        assert store[-2].tolist() == [4, 5]
        assert store[np.int64(3)].tolist() == [4, 5]
        for index in (5, -6):
            with pytest.raises(IndexError):
                store[index]

    @pytest.mark.parametrize("documents", [[], [[]], [[], [], []]])
    def test_an_empty_store(self, tmp_path, documents):
        store = write(tmp_path / "s", documents)
        assert [document.tolist() for document in store] == documents
        assert len(store) == len(documents)

    def test_documents_are_read_and_not_mapped(self, tmp_path):
        document = write(tmp_path / "s")[0]
        assert not document.flags.writeable
        while document.base is not None:
            document = document.base
            assert not isinstance(document, np.memmap)
            if isinstance(document, bytes):
                break


class TestParts:
    @given(
        st.lists(st.integers(0, 65535), max_size=50),
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=5),
        st.sampled_from([0, 20, 1000]),
    )
    @settings(max_examples=60, deadline=None)
    def test_are_slices(self, tmp_path_factory, document, intervals, whole):
        """Parts are slices, whether the document counts as long or not."""
        store = write(tmp_path_factory.mktemp("s") / "s", [[7, 7], document, [8]])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("declutr.corpus.token_store._WHOLE", whole)
            parts = store.parts(1, intervals)
        assert [part.tolist() for part in parts] == [document[a:b] for a, b in intervals]
        assert all(part.dtype == np.uint16 for part in parts)

    def test_an_index_outside_the_store_is_refused(self, tmp_path):
        with pytest.raises(IndexError):
            write(tmp_path / "s").parts(5, [(0, 1)])


class TestOpenFile:
    def test_reads_equal_those_of_a_memory_map(self, tmp_path):
        rng = np.random.default_rng(0)
        documents = [rng.integers(0, 65536, n).tolist() for n in rng.integers(0, 3000, 40)]
        store = write(tmp_path / "s", documents)
        values = np.load(tmp_path / "s" / "values.npy", mmap_mode="r")
        offsets = np.load(tmp_path / "s" / "offsets.npy")
        for row in rng.permutation(40).tolist():
            np.testing.assert_array_equal(store[row], values[offsets[row] : offsets[row + 1]])

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_reads_after_a_fork_in_both_processes(self, tmp_path):
        store = write(tmp_path / "s")
        assert store[0].tolist() == [1, 2, 3]
        child = os.fork()
        if not child:
            os._exit(0 if all(store[3].tolist() == [4, 5] for _ in range(200)) else 1)
        assert all(store[0].tolist() == [1, 2, 3] for _ in range(200))
        assert os.waitpid(child, 0)[1] == 0

    def test_reads_in_threads(self, tmp_path):
        store = write(tmp_path / "s", [[n] * 300 for n in range(50)])
        with ThreadPoolExecutor(8) as threads:
            read = list(threads.map(lambda row: set(store[row].tolist()), list(range(50)) * 20))
        assert read == [{n} for n in range(50)] * 20

    def test_reads_in_threads_on_a_system_without_pread(self, tmp_path, monkeypatch):
        for name in ("pread", "O_CLOEXEC"):  # Windows has neither.
            monkeypatch.delattr(os, name)
        documents = [[number] * 100 for number in range(200)]
        store = write(tmp_path / "s", documents)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda n: store[n].tolist(), [*range(200)] * 5))
        assert found == documents * 5

    def test_the_file_is_opened_at_the_first_read_and_closed(self, tmp_path):
        store = write(tmp_path / "s")
        before = len(os.listdir("/proc/self/fd"))
        assert store[0].tolist() == store[0].tolist()
        assert len(os.listdir("/proc/self/fd")) == before + 1
        del store
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before


def test_numpy_alone_reads_a_store(tmp_path):
    write(tmp_path / "s", lengths=LENGTHS)
    values, offsets, num_tokens = (
        np.load(tmp_path / "s" / f"{name}.npy", allow_pickle=False)
        for name in ("values", "offsets", "num_tokens")
    )
    assert values.dtype == np.uint16 and offsets.dtype == num_tokens.dtype == np.int64
    pairs = itertools.pairwise(offsets)
    assert [values[a:b].tolist() for a, b in pairs] == DOCUMENTS
    assert num_tokens.tolist() == LENGTHS
    names = ["checksums.json", "meta.json", "num_tokens.npy", "offsets.npy", "values.npy"]
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == names


def test_pickle_carries_only_the_path(tmp_path):
    store = write(tmp_path / "s", [list(range(250)) * 400])
    pickled = pickle.dumps(store)
    assert len(pickled) < 300 + len(str(tmp_path))
    assert pickle.loads(pickled)[0].tolist() == store[0].tolist()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


class Stop(Exception):
    """Raised to interrupt a writer."""


class TestWholeOrNothing:
    def test_an_exception_to_drop_after_leaves_nothing(self, tmp_path):
        writer = TokenStoreWriter(tmp_path / "s", np.uint8, drop_after=(Stop,))
        with pytest.raises(Stop), writer:
            append(writer, [np.zeros(9, np.uint8)], [9])
            assert not TokenStore.exists(tmp_path / "s")
            raise Stop
        assert list(tmp_path.iterdir()) == []

    def test_nothing_written_leaves_nothing(self, tmp_path):
        with pytest.raises(KeyboardInterrupt), TokenStoreWriter(tmp_path / "s", np.uint8):
            raise KeyboardInterrupt
        assert list(tmp_path.iterdir()) == []

    def test_a_store_appears_when_it_is_complete(self, tmp_path):
        with TokenStoreWriter(tmp_path / "s", np.uint8) as writer:
            append(writer, [np.zeros(9, np.uint8)], [9])
            assert not (tmp_path / "s").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["s"]

    def test_a_folder_without_meta_is_replaced(self, tmp_path):
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "values.npy").write_text("half")
        assert not TokenStore.exists(tmp_path / "s")
        assert write(tmp_path / "s")[0].tolist() == [1, 2, 3]
        assert TokenStore.exists(tmp_path / "s")

    def test_a_missing_store_is_refused(self, tmp_path):
        assert not TokenStore.exists(tmp_path / "s")
        with pytest.raises(FileNotFoundError):
            TokenStore(tmp_path / "s")

    def test_a_file_that_was_cut_off_is_refused(self, tmp_path):
        store = write(tmp_path / "s")
        with open(tmp_path / "s" / "values.npy", "r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - 3)
        assert store[0].tolist() == [1, 2, 3]
        with pytest.raises(OSError, match=r"values.npy' ends at byte .*Remove the folder"):
            store[3]


def flip(path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position // 8] ^= 1 << position % 8
    path.write_bytes(data)


class TestDamaged:
    @pytest.fixture
    def folder(self, tmp_path):
        write(tmp_path / "s", lengths=LENGTHS)
        return tmp_path / "s"

    @pytest.mark.parametrize(
        "name", ["values.npy", "offsets.npy", "num_tokens.npy", "meta.json", "checksums.json"]
    )
    def test_no_flipped_bit_passes(self, folder, name):
        """The store is refused, or the bit makes no difference (white space in JSON)."""
        sound, refused = contents(folder), 0
        for position in range(0, 8 * len(sound[name]), 7):
            flip(folder / name, position)
            try:
                store = TokenStore(folder)
                assert [document.tolist() for document in store] == DOCUMENTS
                assert store.num_tokens.tolist() == LENGTHS and store.meta == {"num_tokens": 15}
            except DamagedStore as error:
                refused += 1
                assert "is damaged" in str(error) and "made again at the next start" in str(error)
                assert not TokenStore.exists(folder)
                (folder / "meta.json.damaged").rename(folder / "meta.json")
            (folder / name).write_bytes(sound[name])
        assert refused > (8 * len(sound[name]) // 7) * 0.8

    def test_large_values_are_checked_where_they_are_read(self, folder, monkeypatch):
        monkeypatch.setattr(token_store, "_CHECKED_AT_ONCE", 0)
        flip(folder / "values.npy", 8 * 128)
        store = TokenStore(folder)
        assert store[1].tolist() == []
        with pytest.raises(DamagedStore, match=r"with --recover"):
            store.parts(0, [(0, 2)])
        assert not TokenStore.exists(folder)

    def test_a_store_that_cannot_be_marked_names_the_remedy(self, folder, monkeypatch):
        replace = mock.Mock(side_effect=PermissionError("read-only"))
        monkeypatch.setattr(token_store.os, "replace", replace)
        flip(folder / "offsets.npy", 8 * 140)
        with pytest.raises(DamagedStore, match=r"Remove the folder \(read-only\)"):
            TokenStore(folder)

    @pytest.fixture
    def partial(self, tmp_path) -> Path:
        with pytest.raises(Stop), TokenStoreWriter(tmp_path / "s", np.uint16) as writer:
            append(writer, [np.array(d, np.uint16) for d in DOCUMENTS], LENGTHS)
            raise Stop
        return tmp_path / "s.partial"

    def test_a_damaged_partial_store_is_started_anew(self, tmp_path, partial, caplog):
        flip(partial / "values.npy", 8 * 130)
        with pytest.raises(Stop), TokenStoreWriter(tmp_path / "s", np.uint16) as writer:
            assert writer.length == 0
            raise Stop
        assert "is damaged" in caplog.text

    def test_a_partial_store_of_version_1_5_is_continued(self, tmp_path, partial):
        journal = partial / "journal.json"
        content = json.loads(journal.read_text())
        del content["checksums"]
        journal.write_text(json.dumps(content))
        with TokenStoreWriter(tmp_path / "s", np.uint16) as writer:
            assert writer.length == 5
        assert [document.tolist() for document in TokenStore(tmp_path / "s")] == DOCUMENTS


class TestDamagedOfVersion15:
    """Without checksums, only the agreement of the arrays can be checked."""

    @pytest.fixture
    def folder(self, tmp_path):
        write(tmp_path / "s")
        (tmp_path / "s" / "checksums.json").unlink()
        return tmp_path / "s"

    def test_an_undamaged_store_opens(self, folder, tmp_path):
        assert [document.tolist() for document in TokenStore(folder)] == DOCUMENTS
        write(tmp_path / "t", [[65, 66], [], [67]], [1, 0, 7], np.uint8)
        (tmp_path / "t" / "checksums.json").unlink()
        assert TokenStore(tmp_path / "t").num_tokens.tolist() == [1, 0, 7]

    @pytest.mark.parametrize("name", ["offsets.npy", "num_tokens.npy"])
    def test_no_flipped_bit_in_its_numbers_passes(self, folder, name):
        sound = contents(folder)[name]
        for position in range(8 * 128, 8 * len(sound), 5):
            flip(folder / name, position)
            with pytest.raises(DamagedStore, match="do not fit each other"):
                TokenStore(folder)
            (folder / "meta.json.damaged").rename(folder / "meta.json")
            (folder / name).write_bytes(sound)

    def test_values_that_were_cut_off_are_refused(self, folder):
        os.truncate(folder / "values.npy", 130)
        with pytest.raises(DamagedStore, match="do not fit each other"):
            TokenStore(folder)


class TestContinued:
    """A store continued by a second writer has the same bytes as one written at once."""

    @pytest.fixture
    def whole(self, tmp_path) -> dict[str, bytes]:
        write(tmp_path / "whole", lengths=LENGTHS)
        return contents(tmp_path / "whole")

    def go_on(self, folder, at: int, every: float = 0.0) -> None:
        """Write the rest of the documents, after asserting that `at` are already there."""
        with TokenStoreWriter(folder, np.uint16, journal_every=every) as writer:
            assert writer.length == at
            for number in range(at, 5):
                append(writer, [np.array(DOCUMENTS[number], np.uint16)], [LENGTHS[number]])
            writer.meta = {"num_tokens": writer.num_tokens}

    def interrupted(self, folder, error=KeyboardInterrupt, drop_after=()) -> None:
        """Write three documents, of which the journal records two, then raise `error`."""
        with (
            pytest.raises(error),
            TokenStoreWriter(folder, np.uint16, drop_after=drop_after) as writer,
        ):
            append(writer, [np.array(d, np.uint16) for d in DOCUMENTS[:2]], LENGTHS[:2])
            writer.notes["n"] = 2
            writer._write_journal()
            append(writer, [np.array(DOCUMENTS[2], np.uint16)], LENGTHS[2:3])
            raise error

    def killed(self, folder) -> None:
        child = os.fork()
        if not child:
            try:
                self.interrupted(folder, Killed)
            finally:
                os._exit(1)  # This is not reached.
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL

    @pytest.mark.parametrize(
        ("stop", "at"),
        [
            (lambda self, folder: self.interrupted(folder), 3),
            (lambda self, folder: self.interrupted(folder, Stop, drop_after=(OSError,)), 3),
            (lambda self, folder: self.killed(folder), 2),  # From the last journal on.
        ],
        ids=["interrupt", "exception", "kill"],
    )
    def test_after_a_stop(self, tmp_path, whole, stop, at):
        stop(self, tmp_path / "s")
        assert not TokenStore.exists(tmp_path / "s")
        self.go_on(tmp_path / "s", at)
        assert contents(tmp_path / "s") == whole

    def test_after_several_interrupts(self, tmp_path, whole):
        for at in range(4):
            writer = TokenStoreWriter(tmp_path / "s", np.uint16)
            with pytest.raises(KeyboardInterrupt), writer:
                assert writer.length == at == writer.notes.get("n", 0)
                append(writer, [np.array(DOCUMENTS[at], np.uint16)], [LENGTHS[at]])
                writer.notes["n"] = at + 1
                raise KeyboardInterrupt
        self.go_on(tmp_path / "s", at=4)
        assert contents(tmp_path / "s") == whole

    @pytest.mark.parametrize("file", ["_values", "_offsets", "_num_tokens"])
    def test_after_an_interrupt_within_append(self, tmp_path, caplog, monkeypatch, file):
        """What the last journal counts stays, although checksums are ahead of it."""
        row = np.arange(10, dtype=np.uint16)
        folder = tmp_path / "s"
        with pytest.raises(KeyboardInterrupt), TokenStoreWriter(folder, np.uint16) as writer:
            append(writer, [row] * 3, [10] * 3)
            writer._write_journal()
            append(writer, [row], [10])
            monkeypatch.setattr(getattr(writer, file), "append", interrupted)
            append(writer, [row], [10])
        with TokenStoreWriter(folder, np.uint16) as writer:
            counted = writer.length
            append(writer, [row], [10])
        assert counted == (4 if file == "_values" else 3) and not caplog.records
        assert [each.tolist() for each in TokenStore(folder)] == [[*range(10)]] * (counted + 1)

    def test_after_an_interrupt_before_the_rename(self, tmp_path, whole, monkeypatch):
        with monkeypatch.context() as patch:
            replace = _fails_for_folders(os.replace)
            patch.setattr("declutr.corpus.token_store_writer.os.replace", replace)
            with pytest.raises(KeyboardInterrupt):
                self.go_on(tmp_path / "s", at=0)
        self.go_on(tmp_path / "s", at=5)
        assert contents(tmp_path / "s") == whole

    @pytest.mark.parametrize(
        "journal",
        [
            b"",
            b"{",
            b"[]",
            b"{}",
            b'{"dtype": "|u1", "state": [2, 3, 3], "notes": {}}',
            b'{"dtype": "<u2", "state": [2, 99, 3], "notes": {}}',
            b'{"dtype": "<u2", "state": [-1, 3, 3], "notes": {}}',
            b'{"dtype": "<u2", "state": [2], "notes": null}',
            b"\xff",
        ],
    )
    def test_an_invalid_journal_starts_anew(self, tmp_path, whole, journal):
        self.interrupted(tmp_path / "s")
        (tmp_path / "s.partial" / "journal.json").write_bytes(journal)
        self.go_on(tmp_path / "s", at=0)
        assert contents(tmp_path / "s") == whole

    def test_files_shorter_than_the_journal_says_start_anew(self, tmp_path, whole):
        self.interrupted(tmp_path / "s")
        os.truncate(tmp_path / "s.partial" / "offsets.npy", 140)
        self.go_on(tmp_path / "s", at=0)
        assert contents(tmp_path / "s") == whole

    def test_another_dtype_starts_anew(self, tmp_path):
        self.interrupted(tmp_path / "s")
        with TokenStoreWriter(tmp_path / "s", np.uint32) as writer:
            assert writer.length == 0

    def test_journals_are_written_when_due(self, tmp_path):
        for every, there in ((0.0, True), (60.0, False)):
            with TokenStoreWriter(tmp_path / "s", np.uint8, journal_every=every) as writer:
                append(writer, [np.zeros(9, np.uint8)], [9])
                writer.journal_if_due()
                assert (tmp_path / "s.partial" / "journal.json").exists() is there

    def test_an_exception_before_a_journal_leaves_nothing(self, tmp_path):
        no = mock.Mock(side_effect=Stop)
        for error in (Stop, KeyboardInterrupt):
            writer = TokenStoreWriter(tmp_path / "s", np.uint8, before_journal=no)
            with pytest.raises(error), writer:
                append(writer, [np.zeros(9, np.uint8)], [9])
                if error is KeyboardInterrupt:
                    raise KeyboardInterrupt
            assert list(tmp_path.iterdir()) == []
        assert no.call_count == 3  # A writer that gives up after its end calls it once more.

    def test_partial_stores_of_version_1_0_are_removed(self, tmp_path):
        (tmp_path / "s.partial-host-1").mkdir()
        (tmp_path / "s.partial-host-1" / "values.npy").touch()
        write(tmp_path / "s")
        assert [path.name for path in tmp_path.iterdir()] == ["s"]


class Killed(BaseException):
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _fails_for_folders(replace):
    def failing(source, target):
        if os.path.isdir(source):
            raise KeyboardInterrupt
        replace(source, target)

    return failing


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
