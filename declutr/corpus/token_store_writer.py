"""A writer of token stores (`declutr.corpus.token_store.TokenStore`) that can be continued.

A store is written beside its place and renamed when it is complete, so a store that exists is
complete. A journal beside it records what is safely on disk, so that the next writer continues
where an interrupted or killed one stopped.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from declutr.corpus.array_files import ArrayFile
from declutr.corpus.token_store import CHECKSUMS, META, NUM_TOKENS, OFFSETS, VALUES
from declutr.system.files import json_checksum, write_whole

logger = logging.getLogger(__name__)

_JOURNAL = "journal.json"
_JOURNAL_EVERY = 10.0  # Seconds. Writing a journal waits for the disk.


class _State(NamedTuple):
    """The numbers of documents, values and tokens written so far."""

    length: int = 0
    num_values: int = 0
    num_tokens: int = 0


class TokenStoreWriter:
    """A context manager that writes a token store, in one process at a time.

    On entry, it continues what an earlier writer of the same store left, as far as the journal
    says: `length` documents are then already there, and the caller appends the ones after them.

    After an exception, what was written is kept for the next writer; after a kill, only what the
    last journal records. After an exception of `drop_after`, nothing is kept.

    # Parameters

    folder : the place of the store.
    dtype : the dtype of the values.
    drop_after : exceptions that mean that what was written before them is wrong.
    journal_every : seconds between journals, each of which waits until the data are on disk; `None`
        for 10 seconds.
    before_journal : called before each journal and before the store is completed. If it raises,
        neither happens; it may check that the source has not changed.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        dtype: np.dtype | type,
        *,
        drop_after: tuple[type[BaseException], ...] = (),
        journal_every: float | None = None,
        before_journal: Callable[[], object] = lambda: None,
    ) -> None:
        self._final = Path(folder)
        self._partial = self._final.with_name(f"{self._final.name}.partial")
        self._dtype = np.dtype(dtype)
        self._drop_after = drop_after
        self._every = _JOURNAL_EVERY if journal_every is None else journal_every
        self._before_journal = before_journal
        self._state = _State()
        self.notes: dict[str, Any] = {}  # For the caller; kept in the journal.
        self.meta: dict[str, Any] = {}

    @property
    def length(self) -> int:
        """The number of documents so far."""
        return self._state.length

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all documents so far."""
        return self._state.num_tokens

    def __enter__(self) -> TokenStoreWriter:
        self._final.parent.mkdir(parents=True, exist_ok=True)
        for abandoned in self._final.parent.glob(f"{self._partial.name}-*"):
            shutil.rmtree(abandoned, ignore_errors=True)  # Version 1.0 could not continue these.
        if not self._take_up():
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir()
            self._open("wb")
            self._offsets.append(np.zeros(1, dtype=np.int64))
        self._journal_due = time.monotonic() + self._every
        return self

    def append(self, values: np.ndarray, lengths: np.ndarray, num_tokens: np.ndarray) -> None:
        """Add documents to the end of the store.

        # Parameters

        values : the values of all documents, concatenated, 1-D.
        lengths : the number of values of each document, `(n,)`.
        num_tokens : the number of tokens of each document, `(n,)`.
        """
        state = self._state
        self._values.append(values)
        self._offsets.append(state.num_values + np.cumsum(lengths))
        self._num_tokens.append(num_tokens)
        # One assignment, so that an interrupt finds the batch counted whole or not at all.
        self._state = _State(
            state.length + len(lengths),
            state.num_values + len(values),
            state.num_tokens + int(num_tokens.sum()),
        )

    def journal_if_due(self) -> None:
        """Write a journal if the last one is old enough, so that a kill loses little."""
        if time.monotonic() >= self._journal_due:
            self._write_journal()

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        if exception_type is None:
            try:
                self._complete()
            except BaseException as error:
                self._give_up(type(error))
                raise
        else:
            self._give_up(exception_type)

    def _complete(self) -> None:
        self._write_journal()
        self._close()
        recorded: dict[str, Any] = {file.name: file.recorded() for file in self._files()}
        recorded[META] = json_checksum(self.meta)
        write_whole(self._partial / CHECKSUMS, json.dumps(recorded) + "\n")
        write_whole(self._partial / META, json.dumps(self.meta, indent=2) + "\n")
        shutil.rmtree(self._final, ignore_errors=True)  # It has no meta.json, so it is no store.
        os.replace(self._partial, self._final)
        # The journal goes last: without it, a writer killed before the rename would have to start
        # from the beginning.
        (self._final / _JOURNAL).unlink(missing_ok=True)

    def _give_up(self, reason: type[BaseException]) -> None:
        keep = bool(self.length) and not issubclass(reason, self._drop_after)
        # If files are closed, only the rename is missing. If an interrupt came within `append`,
        # checksums are ahead of the numbers, so the last journal, of some seconds ago, must stay.
        if keep and not self._values.closed and self._is_whole():
            try:
                self._write_journal()
            except OSError as error:  # If the disk is full, say, the last journal stays valid.
                logger.warning("Could not note how far %s is: %s", self._partial, error)
            except Exception:  # Raised by `before_journal`.
                keep = False
        self._close(ignore_errors=True)
        if not keep:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _is_whole(self) -> bool:
        """Return whether all files end where the last batch that was counted does."""
        state = self._state
        lengths = [file.length for file in (self._values, self._offsets, self._num_tokens)]
        return lengths == [state.num_values, state.length + 1, state.length]

    def _write_journal(self) -> None:
        self._before_journal()
        for file in self._files():
            file.sync()
        journal = {
            "dtype": self._dtype.str,
            "state": self._state,
            "notes": self.notes,
            "checksums": self._checksums(),
        }
        write_whole(self._partial / _JOURNAL, json.dumps(journal) + "\n")
        self._journal_due = time.monotonic() + self._every

    def _take_up(self) -> bool:
        """Continue what an earlier writer left; return false if there is nothing to continue."""
        try:
            journal = json.loads((self._partial / _JOURNAL).read_text())
            if journal["dtype"] != self._dtype.str:
                return False
            state = _State(*journal["state"])
            self._open("r+b")
            self._values.cut_to(state.num_values)
            self._offsets.cut_to(state.length + 1)
            self._num_tokens.cut_to(state.length)
            # Journals of version 1.5 have no checksums.
            if journal.get("checksums", self._checksums()) != self._checksums():
                logger.warning(
                    "%s is damaged: the corpus is tokenised from its begin.", self._partial
                )
                return False
            self._state, self.notes = state, dict(journal["notes"])
        except (OSError, ValueError, TypeError, KeyError):  # No journal, or an invalid one.
            return False
        return True

    def _open(self, mode: str) -> None:
        self._values = ArrayFile(self._partial / VALUES, self._dtype, mode)
        self._offsets = ArrayFile(self._partial / OFFSETS, np.dtype(np.int64), mode)
        self._num_tokens = ArrayFile(self._partial / NUM_TOKENS, np.dtype(np.int64), mode)

    def _checksums(self) -> dict[str, str]:
        return {file.name: file.checksums for file in self._files()}

    def _files(self) -> tuple[ArrayFile, ...]:
        return self._offsets, self._num_tokens, self._values

    def _close(self, ignore_errors: bool = False) -> None:
        for file in self._files():
            try:
                file.close()
            except OSError:
                if not ignore_errors:
                    raise
