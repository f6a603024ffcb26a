"""An index from keys to rows of blocks, in a database of SQLite that can be made again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from declutr.embedding_store.blocks import StoreError

INDEX = "index.sqlite3"
"""The name of the file in the folder of the blocks."""
_TABLES = """
CREATE TABLE IF NOT EXISTS blocks (id INTEGER PRIMARY KEY, file TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS rows (
    key BLOB PRIMARY KEY, block INTEGER NOT NULL, row INTEGER NOT NULL
) WITHOUT ROWID;
"""
_WAIT = 60.0  # seconds to wait for another process that writes
_AT_ONCE = 900  # variables of a statement; releases of SQLite before 3.32 take 999


class Place(NamedTuple):
    """Where the embedding of a key is: the name of a block, and the number of the row in it."""

    block: str
    row: int


class RowIndex:
    """An index of keys; every change is made whole or not at all, also if a process is killed.

    # Raises

    `StoreError` : the database cannot be opened, or written to; so do all methods.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / INDEX
        with self._told():
            self._open()

    def _open(self) -> None:
        self._database = sqlite3.connect(self._file, timeout=_WAIT, isolation_level=None)
        try:
            self._database.executescript(_TABLES)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged: it is made again from the blocks
            self.remove()
            self._database = sqlite3.connect(self._file, timeout=_WAIT, isolation_level=None)
            self._database.executescript(_TABLES)

    def blocks(self) -> set[str]:
        """Return the names of all blocks that were indexed."""
        with self._told():
            return {file for (file,) in self._database.execute("SELECT file FROM blocks")}

    def places(self, keys: Iterable[bytes]) -> dict[bytes, Place]:
        """Return the places of those keys that have one."""
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, Place] = {}
        with self._told():
            for start in range(0, len(wanted), _AT_ONCE):
                part = wanted[start : start + _AT_ONCE]
                rows = self._database.execute(
                    "SELECT key, file, row FROM rows JOIN blocks ON id = block "
                    f"WHERE key IN ({', '.join('?' * len(part))})",
                    part,
                )
                found |= {key: Place(file, row) for key, file, row in rows}
        return found

    def add(self, block: str, keys: Callable[[], Sequence[tuple[bytes, int]]]) -> int:
        """Index a block unless that was done before, and return the number of new keys.

        # Parameters

        block : the name of the block.
        keys : returns its keys with the number of their rows. Those that have a place keep it.
        """
        with self._told(), self._transaction() as database:
            cursor = database.execute("INSERT OR IGNORE INTO blocks (file) VALUES (?)", (block,))
            if not cursor.rowcount:
                return 0
            rows = ((key, cursor.lastrowid, row) for key, row in keys())
            added = database.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?)", rows)
            return max(0, added.rowcount)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove keys, whose rows are damaged."""
        with self._told(), self._transaction() as database:
            database.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in keys))

    def forget_block(self, block: str) -> None:
        """Remove a block that is gone, with its keys."""
        with self._told(), self._transaction() as database:
            chosen = "(SELECT id FROM blocks WHERE file = ?)"
            database.execute(f"DELETE FROM rows WHERE block = {chosen}", (block,))
            database.execute("DELETE FROM blocks WHERE file = ?", (block,))

    def __len__(self) -> int:
        with self._told():
            return self._database.execute("SELECT count(*) FROM rows").fetchone()[0]

    def close(self) -> None:
        """Close the database of keys, after which no other method may be called."""
        self._database.close()

    def remove(self) -> None:
        """Close the database and remove its files; the next index is made from the blocks."""
        self.close()
        for name in (self._file.name, f"{self._file.name}-journal"):
            self._file.with_name(name).unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn errors of SQLite into `StoreError`; a damaged database is removed."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            raise StoreError(f"'{self._file}' cannot be read or written: {error}.") from error
        except sqlite3.DatabaseError as error:
            self.remove()
            raise StoreError(f"'{self._file}' was damaged and is made again: {error}.") from error
