"""Oracle: the lists that were written; `numpy.load`; the folder's contents after a failure."""

import itertools
import os
import pickle
import signal
import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.token_store import TokenStore, TokenStoreWriter, remove_partial_stores

DOCUMENTS = [[1, 2, 3], [], [65535], [4, 5], []]
LENGTHS = [3, 0, 9, 2, 1]  # in tokens: not always the length of the array


def write(folder, documents=DOCUMENTS, lengths=None, dtype=np.uint16, at_once=2):
    lengths = lengths or [len(document) for document in documents]
    with TokenStoreWriter(folder, dtype) as writer:
        for begin in range(0, len(documents), at_once):
            part = slice(begin, begin + at_once)
            writer.append([np.array(d, dtype=dtype) for d in documents[part]], lengths[part])
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
    def test_nothing_in_it(self, tmp_path, documents):
        store = write(tmp_path / "s", documents)
        assert [document.tolist() for document in store] == documents
        assert len(store) == len(documents)

    def test_documents_are_views_of_the_file(self, tmp_path):
        document = write(tmp_path / "s")[0]
        assert not document.flags.owndata and not document.flags.writeable
        assert isinstance(document, np.memmap)


def test_numpy_alone_reads_it(tmp_path):
    write(tmp_path / "s", lengths=LENGTHS)
    values, offsets, num_tokens = (
        np.load(tmp_path / "s" / f"{name}.npy", allow_pickle=False)
        for name in ("values", "offsets", "num_tokens")
    )
    assert values.dtype == np.uint16 and offsets.dtype == num_tokens.dtype == np.int64
    pairs = itertools.pairwise(offsets)
    assert [values[a:b].tolist() for a, b in pairs] == DOCUMENTS
    assert num_tokens.tolist() == LENGTHS
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == [
        "meta.json",
        "num_tokens.npy",
        "offsets.npy",
        "values.npy",
    ]


def test_pickle_carries_only_the_path(tmp_path):
    store = write(tmp_path / "s", [list(range(250)) * 400])
    pickled = pickle.dumps(store)
    assert len(pickled) < 300 + len(str(tmp_path))
    assert pickle.loads(pickled)[0].tolist() == store[0].tolist()


class TestWholeOrNothing:
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_an_exception_leaves_nothing(self, tmp_path, error):
        with pytest.raises(error), TokenStoreWriter(tmp_path / "s", np.uint8) as writer:
            writer.append([np.zeros(9, np.uint8)], [9])
            assert not TokenStore.exists(tmp_path / "s")
            raise error
        assert list(tmp_path.iterdir()) == []

    def test_lies_beside_its_place_until_whole(self, tmp_path):
        with TokenStoreWriter(tmp_path / "s", np.uint8) as writer:
            writer.append([np.zeros(9, np.uint8)], [9])
            assert not (tmp_path / "s").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["s"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_killed_writer_leaves_no_store(self, tmp_path):
        child = os.fork()
        if not child:
            with TokenStoreWriter(tmp_path / "s", np.uint8) as writer:
                writer.append([np.zeros(9, np.uint8)], [9])
                os.kill(os.getpid(), signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert [path.name for path in tmp_path.iterdir()] == [
            f"s.partial-{socket.gethostname()}-{child}"
        ]
        assert not TokenStore.exists(tmp_path / "s")
        write(tmp_path / "other")
        remove_partial_stores(tmp_path / "s")
        assert [path.name for path in tmp_path.iterdir()] == ["other"]

    def test_a_folder_without_meta_is_replaced(self, tmp_path):
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "values.npy").write_text("half")
        assert not TokenStore.exists(tmp_path / "s")
        assert write(tmp_path / "s")[0].tolist() == [1, 2, 3]
        assert TokenStore.exists(tmp_path / "s")

    def test_missing(self, tmp_path):
        assert not TokenStore.exists(tmp_path / "s")
        with pytest.raises(FileNotFoundError):
            TokenStore(tmp_path / "s")
