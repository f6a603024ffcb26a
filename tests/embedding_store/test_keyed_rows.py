"""Stored embeddings: what is found again, after kills, damage and several writers at once."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from declutr.embedding_store import KeyedRows, StoreError, text_keys
from declutr.embedding_store.row_index import INDEX

TEXTS = ["one", "two", "", "lone \ud800 surrogate", "three"]
KEYS = text_keys(TEXTS)


def vectors(rows: int, width: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


@pytest.fixture
def rows(tmp_path: Path) -> KeyedRows:
    return KeyedRows(tmp_path / "rows")


def again(rows: KeyedRows) -> KeyedRows:
    """The same folder, as another process opens it."""
    return KeyedRows(rows.folder)


def files(rows: KeyedRows) -> list[Path]:
    return sorted(rows.folder.glob("*.npy"))


def test_rows_are_found_again_to_the_bit(rows: KeyedRows) -> None:
    given = vectors(4)
    assert rows.missing(KEYS) == KEYS and rows.dimension == 0 and len(rows) == 0
    assert rows.append(KEYS[:3], given[:3]) == 3 and rows.append(KEYS[:4], given[::-1]) == 1
    other = again(rows)
    assert other.missing([*KEYS, KEYS[4]]) == [KEYS[4]] and len(other) == 4
    wanted = [2, 4, 0, 2, 3]
    found, there = other.get([KEYS[at] for at in wanted])
    assert there.tolist() == [True, False, True, True, True] and other.dimension == 3
    assert found.dtype == np.float32 and np.isnan(found[1]).all()
    assert np.array_equal(found[there], given[[2, 0, 2, 0]]), "the first embedding of a key stays"
    assert other.size == sum(file.stat().st_size for file in rows.folder.iterdir())
    assert other.get([])[0].shape == (0, 3)


def test_many_keys(rows: KeyedRows) -> None:
    keys, given = text_keys(map(str, range(3000))), vectors(3000)
    for start in range(0, 3000, 1000):
        rows.append(keys[start : start + 1000], given[start : start + 1000])
    order = np.random.default_rng(1).permutation(3000)
    found, there = again(rows).get([keys[at] for at in order])
    assert there.all() and np.array_equal(found, given[order])


def test_half_precision_takes_half_the_room_and_loses_nothing(rows: KeyedRows) -> None:
    half = vectors(5, 512).astype(np.float16)
    rows.append(KEYS[:2], half[:2])
    rows.append(KEYS[2:], half[2:].astype(np.float32))
    assert np.array_equal(again(rows).get(KEYS)[0], half.astype(np.float32))
    assert sum(file.stat().st_size for file in files(rows)) < 5 * 512 * 2 + 700


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_not_stored(rows: KeyedRows, bad: float) -> None:
    given = vectors(3)
    given[1, 2] = bad
    assert rows.append(KEYS[:3], given) == 2 and rows.missing(KEYS[:3]) == [KEYS[1]]
    assert rows.append(KEYS[1:2], given[1:2]) == 0


@pytest.mark.parametrize(
    ("keys", "given", "message"),
    [
        (KEYS, vectors(4), r"of shape \(5, 2\), got \(4, 3\)"),
        (KEYS, vectors(5), r"of shape \(5, 2\), got \(5, 3\)"),
        (KEYS[:1], np.ones((1, 2)), "in float32 or float16, got float64"),
        ([b"short"], vectors(1, 2), "keys of 16 bytes, got 5"),
    ],
)
def test_other_shapes_are_refused(rows: KeyedRows, keys: list, given, message: str) -> None:
    rows.append(KEYS[:1], vectors(1, 2))
    with pytest.raises(ValueError, match=message):
        rows.append(keys, given)


@pytest.mark.parametrize("damage", ["gone", "empty", "not a database", "a block lacks"])
def test_the_index_is_made_again_from_the_blocks(rows: KeyedRows, damage: str) -> None:
    given = vectors(5)
    rows.append(KEYS[:2], given[:2])
    rows.append(KEYS[2:], given[2:])
    rows.close()
    index = rows.folder / INDEX
    if damage == "gone":
        index.unlink()
    elif damage == "a block lacks":  # as if the process was killed before the block was indexed
        with sqlite3.connect(index) as database:
            database.execute("DELETE FROM rows WHERE block = 2")
            database.execute("DELETE FROM blocks WHERE id = 2")
        database.close()
    else:
        index.write_bytes(b"" if damage == "empty" else b"nothing like it " * 99)
    found, there = again(rows).get(KEYS)
    assert there.all() and np.array_equal(found, given)


def test_damaged_rows_count_as_missing_and_are_stored_anew(rows: KeyedRows, caplog) -> None:
    given = vectors(5)
    rows.append(KEYS, given)
    (block,) = files(rows)
    content = bytearray(block.read_bytes())
    content[-30] ^= 1  # in the last row
    block.write_bytes(content)
    for opened in (again(rows), rows):
        found, there = opened.get(KEYS)
        assert there.tolist() == [True] * 4 + [False] and np.isnan(found[4]).all()
    assert "1 of 5 embeddings are not those that were written, and count as missing" in caplog.text
    assert rows.append(KEYS, given) == 1
    (rows.folder / INDEX).unlink()
    found, there = again(rows).get(KEYS)
    assert there.all() and np.array_equal(found, given)


def test_an_index_that_points_elsewhere_is_noticed(rows: KeyedRows) -> None:
    rows.append(KEYS[:2], vectors(2))
    with sqlite3.connect(rows.folder / INDEX) as database:
        database.execute("UPDATE rows SET row = 1 - row")
    database.close()
    assert not rows.get(KEYS[:2])[1].any() and rows.missing(KEYS[:2]) == KEYS[:2]


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY cut off"])
def test_blocks_that_are_gone_or_cut_off(rows: KeyedRows, content: bytes | None, caplog) -> None:
    given = vectors(4)
    rows.append(KEYS[:2], given[:2])
    rows.append(KEYS[2:4], given[2:])
    first = files(rows)[0]
    first.unlink()
    if content is not None:
        first.write_bytes(content)
    opened = again(rows)
    assert opened.dimension == 3
    found, there = opened.get(KEYS[:4])
    assert there.tolist() == [False, False, True, True] and np.array_equal(found[2:], given[2:])
    assert opened.append(KEYS[:4], given) == 2


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / INDEX).mkdir()
    with pytest.raises(StoreError, match=rf"{INDEX}' cannot be read or written: unable to open"):
        KeyedRows(tmp_path)


def test_files_of_killed_processes_are_removed_after_an_hour(rows: KeyedRows) -> None:
    old, new = rows.folder / "old.npy.tmp", rows.folder / "new.npy.tmp"
    for file in (old, new):
        file.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    again(rows)
    assert new.exists() and not old.exists()


WRITER = """
import sys
import numpy as np
from declutr.embedding_store import KeyedRows, text_keys
rows, start = KeyedRows(sys.argv[1]), int(sys.argv[2])
for number in range(start, start + int(sys.argv[3])):
    keys = text_keys(f"{number} {row}" for row in range(200))
    rows.append(keys, np.full((200, 64), number + 0.1, np.float32))
    print(number, flush=True)
"""


def writer(folder: Path, start: int, blocks: int) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(folder), str(start), str(blocks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def require_blocks(rows: KeyedRows, numbers: list[int]) -> None:
    for number in numbers:
        found, there = rows.get(text_keys(f"{number} {row}" for row in range(200)))
        assert there.all() and (found == np.float32(number + 0.1)).all()


@pytest.mark.slow
def test_two_processes_write_at_once_and_one_is_killed(tmp_path: Path) -> None:
    """Half of what the second one writes is of the first one as well."""
    killed, other = writer(tmp_path, 0, 10_000), writer(tmp_path, 4, 8)
    assert killed.stdout is not None
    told = [int(killed.stdout.readline()) for _ in range(8)]
    killed.send_signal(signal.SIGKILL)
    told += [int(line) for line in killed.stdout if line.endswith("\n")]
    killed.wait()
    other.communicate()
    assert other.returncode == 0
    rows = KeyedRows(tmp_path)
    require_blocks(rows, [*told, *range(4, 12)])
    assert rows.append(KEYS, vectors(5, 64)) == 5
