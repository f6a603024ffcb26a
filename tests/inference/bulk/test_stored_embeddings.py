"""Tests of stored embeddings; the oracle is one array of all rows in memory, indexed by numpy."""

import copy
import gc
import os
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.inference.bulk import (
    FORMATS,
    EmbeddingFolderError,
    StoredEmbeddings,
    embed_rows,
    stored_embeddings,
)
from declutr.system import files
from tests.inference.bulk.fakes import DIMENSION, Encoder, embedding, without_checksums

TEXTS = [f"text {n}" for n in range(23)]
ALL = np.array([embedding(text) for text in TEXTS])


def embedded(folder, encoder=None, texts=TEXTS, **options):
    settings = {"shard_rows": 5, "dimension": DIMENSION, "describe": {}, **options}
    embed_rows(encoder or Encoder(), texts, folder, **settings)
    return folder


@pytest.fixture(scope="module", params=[*FORMATS, "npy of float16"])
def stored(request, tmp_path_factory) -> StoredEmbeddings:
    """Return the stored embeddings of 23 rows in shards of 5."""
    dtype = "float16" if "float16" in request.param else "float32"
    folder = tmp_path_factory.mktemp("stored")
    return StoredEmbeddings(embedded(folder, format=request.param.split()[0], dtype=dtype))


@pytest.fixture
def rows(stored) -> np.ndarray:
    """Return the rows that `stored` is expected to hold."""
    return ALL.astype(stored.manifest.settings["dtype"]).astype(np.float32)


def test_shape(stored):
    assert len(stored) == 23 and stored.dimension == DIMENSION and stored.shape == (23, 4)


@pytest.mark.parametrize("number", [0, 4, 5, 22, -1, -23, np.int64(7)])
def test_one_row(stored, rows, number):
    assert np.array_equal(stored[number], rows[number]) and stored[number].shape == (4,)


INDICES = st.one_of(
    st.slices(23),
    st.lists(st.integers(-23, 22), max_size=40),
    st.lists(st.booleans(), min_size=23, max_size=23).map(np.array),
)


@given(index=INDICES)
@settings(max_examples=80, deadline=None)
def test_indexing_equals_numpy(stored, index):
    rows = ALL.astype(stored.manifest.settings["dtype"]).astype(np.float32)
    numpys = np.array(index, dtype=int) if isinstance(index, list) else index
    found = stored[index]
    assert found.dtype == np.float32 and np.array_equal(found, rows[numpys])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "uint64"])
def test_row_numbers_of_any_dtype_among_more_rows_than_it_holds(tmp_path, dtype):
    texts = [f"text {n}" for n in range(300)]
    stored = StoredEmbeddings(embedded(tmp_path, texts=texts, shard_rows=200))
    given = [1, 120] if dtype.startswith("u") else [1, -120]
    expected = np.array([embedding(texts[row]) for row in given], np.float32)
    assert np.array_equal(stored[np.array(given, dtype)], expected)
    if dtype == "uint64":
        with pytest.raises(IndexError, match="There is no row 18446744073709551615 among 300"):
            stored[np.array([2**64 - 1], dtype)]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_blocks(stored, rows, size):
    seen = 0
    for start, block in stored.blocks(size):
        assert start == seen and 0 < len(block) <= size and block.dtype == np.float32
        assert np.array_equal(block, rows[start : start + len(block)])
        seen += len(block)
    assert seen == 23 and len(list(stored.blocks())) == len(list(stored.blocks())) == 5


@pytest.mark.parametrize("number", [23, -24, [0, 23], [-24]])
def test_row_numbers_out_of_range_are_refused(stored, number):
    with pytest.raises(IndexError, match=r"There is no row -?2\d among 23"):
        stored[number]


@pytest.mark.parametrize("index", [[0.5], [[1, 2]], ["a"], 1.5, np.zeros(5, bool)])
def test_other_indices_are_refused(stored, index):
    kind, message = (TypeError, "integer") if isinstance(index, float) else (IndexError, "Expected")
    with pytest.raises(kind, match=message):
        stored[index]


def test_blocks_of_zero_rows_are_refused(stored):
    with pytest.raises(ValueError, match="at least 1 row, got 0"):
        next(stored.blocks(0))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_and_pickles(stored, rows, copied):
    """A data set that spawned workers read from has it as an attribute."""
    assert np.array_equal(stored[3], rows[3])
    assert np.array_equal(copied(stored)[:], rows)


def test_an_empty_folder_of_embeddings(tmp_path):
    stored = StoredEmbeddings(embedded(tmp_path, texts=[]))
    assert stored.shape == (0, 4) and stored[:].shape == (0, 4) and list(stored.blocks()) == []
    with pytest.raises(IndexError, match="There is no row 0 among 0"):
        stored[0]


class TestMemory:
    def stored(self, tmp_path, format, shards):
        texts = map(str, range(shards))
        return StoredEmbeddings(embedded(tmp_path, texts=texts, format=format, shard_rows=1))

    @pytest.mark.slow
    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files")
    def test_few_files_are_open_at_a_time(self, tmp_path):
        stored = self.stored(tmp_path, "npy", 80)
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        assert len(stored[:]) == 80
        assert len(os.listdir("/proc/self/fd")) <= before + 64

    @pytest.mark.parametrize("format", ["parquet", "jsonl"])
    def test_two_shards_are_held_of_formats_that_cannot_be_mapped(self, tmp_path, format):
        stored = self.stored(tmp_path, format, 8)
        assert len(stored[:]) == 8
        assert stored._shard.cache_info().currsize == 2


@pytest.mark.parametrize("format", FORMATS)
def test_embeddings_that_are_written_anew_are_told(tmp_path, format, monkeypatch):
    """Shards that are opened later, or copied over these, would be those of another model."""
    monkeypatch.setattr(stored_embeddings, "_MAPPED_OPEN", 2)
    stored = StoredEmbeddings(embedded(tmp_path, format=format))
    assert (stored[:] == ALL).all()
    embedded(tmp_path, format=format)  # which changes nothing
    assert (stored[:] == ALL).all()
    other = embedded(tmp_path / "other", lambda texts: -Encoder()(texts), format=format)
    for file in other.iterdir():  # into the same files, which are mapped
        shutil.copy(file, tmp_path / file.name)
    with pytest.raises(EmbeddingFolderError, match=r"was written anew.* Open it again"):
        stored[0]
    embedded(tmp_path, lambda texts: -Encoder()(texts), format=format, overwrite=True)
    with pytest.raises(EmbeddingFolderError, match=r"was written anew.* Open it again"):
        stored[:]
    embedded(tmp_path, format=format, overwrite=True)
    assert (stored[:] == ALL).all()


class TestRefused:
    @pytest.fixture
    def folder(self, tmp_path):
        return embedded(tmp_path)

    def test_no_embeddings(self, tmp_path):
        for place in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(EmbeddingFolderError, match=r"no manifest.json .*`declutr embed`"):
                StoredEmbeddings(place)

    def test_not_finished(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            embedded(tmp_path, Encoder(fail_at=10))
        with pytest.raises(EmbeddingFolderError, match=r"has 10 rows so far .*repeat the command"):
            StoredEmbeddings(tmp_path)

    def test_a_missing_shard(self, folder):
        (folder / "embeddings-00001.npy").unlink()
        message = r"00001.npy' is gone or was changed: repeat"
        with pytest.raises(EmbeddingFolderError, match=message):
            StoredEmbeddings(folder)

    def test_a_shard_of_another_shape(self, folder):
        without_checksums(folder)
        np.save(folder / "embeddings-00001.npy", np.zeros((4, 5), np.float32))
        message = r"holds an array \(4, 5\) .*expected \(5, 4"
        with pytest.raises(EmbeddingFolderError, match=message):
            StoredEmbeddings(folder)[7]

    def test_pickles_are_not_loaded(self, folder):
        without_checksums(folder)
        path = folder / "embeddings-00001.npy"
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        size = (folder / "embeddings-00000.npy").stat().st_size
        path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])
        with pytest.raises(ValueError, match=r"Python objects|allow_pickle"):
            StoredEmbeddings(folder)[7]


class TestDamaged:
    @pytest.fixture(params=FORMATS)
    def folder(self, request, tmp_path):
        return embedded(tmp_path, format=request.param)

    def test_every_flipped_bit_is_noticed(self, folder):
        """Flip bits of one shard: its rows cannot be read, those of other shards can."""
        (path,) = folder.glob("embeddings-00001.*")
        sound = path.read_bytes()
        for number in range(0, 8 * len(sound), 67):
            damaged = bytearray(sound)
            damaged[number // 8] ^= 1 << number % 8
            path.write_bytes(damaged)
            stored = StoredEmbeddings(folder)
            assert np.array_equal(stored[:5], ALL[:5])
            for read in (lambda s: s[[2, 7]], lambda s: s[9], lambda s: list(s.blocks())):
                with pytest.raises(EmbeddingFolderError, match=r"00001\..* is damaged: .*Repeat"):
                    read(stored)

    @pytest.mark.parametrize("rows", [[0], [1, 2], [600, 3, 3]])
    def test_only_the_blocks_of_npy_that_are_read_are_checked(self, tmp_path, monkeypatch, rows):
        monkeypatch.setattr(files, "BLOCK", 256)  # 16 rows
        texts = [f"text {n}" for n in range(1000)]
        embedded(tmp_path, texts=texts, shard_rows=None)
        path = tmp_path / "embeddings-00000.npy"
        damaged = bytearray(path.read_bytes())
        damaged[128 + 16 * 500] ^= 1
        path.write_bytes(damaged)
        stored = StoredEmbeddings(tmp_path)
        assert np.array_equal(stored[rows], [embedding(texts[row]) for row in rows])
        with pytest.raises(EmbeddingFolderError, match="is damaged"):
            stored[[*rows, 499]]

    def test_a_folder_of_release_1_5_is_read(self, folder):
        without_checksums(folder)
        assert np.array_equal(StoredEmbeddings(folder)[:], ALL)
