"""The random numbers of the rows of a corpus, and of texts that are of none."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np

from declutr.sampling.document_selection import shuffled

_WORD = 2**64 - 1


class RowDraws:
    """Random numbers that depend on the seed, the epoch and the row alone.

    Not on workers, processes, or where a run was resumed. A text without a row gets other numbers
    at each call: by the seed, the epoch, the text, and the number of calls with it in that epoch.
    About 100 bytes are kept for each different text of the epoch, whatever its length, until the
    next one begins.

    # Parameters

    seed : of all draws.
    resample : draw anew every epoch, and at every call with a text.
    """

    def __init__(self, seed: int, resample: bool) -> None:
        self.resample = resample
        self._seed = seed
        self._random = DocumentRandom()
        self._epoch = 0
        self._calls: dict[int, int] = {}  # of this epoch, by the digests of texts

    def begin(self, epoch: int) -> None:
        """Count calls with texts from here on as this epoch's; again from 0, unless it goes on."""
        if epoch != self._epoch:
            self._epoch, self._calls = epoch, {}

    def at(self, epoch: int, row: int, call: int = 0) -> np.random.Generator:
        """The random numbers of a row, or of a call with a text (`key_of_text`).

        Valid until the next call; not for several threads.
        """
        epoch, call = (epoch, call) if self.resample else (0, 0)
        return self._random.at(self._seed, epoch, row, call)

    def order(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """`rows` in the order of an epoch; as they are, where nothing is drawn anew."""
        return shuffled(rows, (self._seed, epoch)) if self.resample else rows

    def key_of_text(self, text: str, row: int | None, epoch: int | None) -> tuple[int, ...]:
        """What `at` wants for a text: its digest stands in for a row that it does not have.

        Without a row and an epoch, this counts as a call with the text.
        """
        if row is not None:
            return epoch or 0, row
        digest = text_digest(text)
        if epoch is not None or not self.resample:
            return epoch or 0, digest
        call = self._calls.get(digest, 0)
        self._calls[digest] = call + 1
        return self._epoch, digest, call

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Calls with texts inside the block do not count, in their epoch or in those after it."""
        before = self._epoch, self._calls
        self._epoch, self._calls = 0, {}
        try:
            yield
        finally:
            self._epoch, self._calls = before


def text_digest(text: str) -> int:
    """64 bits of a text's BLAKE2b, the same in every process; others have them by chance only."""
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def document_rng(seed: int, epoch: int, document: int, call: int = 0) -> np.random.Generator:
    """The random numbers of one reading of one document.

    They depend on the four numbers alone: not on the order of reading, the number of workers or
    the numbers drawn for other documents. The four go into key and counter of the counter-based
    Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), so
    different ones give streams that cannot overlap.

    Args:
        seed, epoch, document: any integers, taken modulo 2**64 (negative ones wrap around).
        call: tells readings of a document in one epoch apart; likewise an integer.

    Raises:
        TypeError: if one of them is not an integer.
    """
    return DocumentRandom().at(seed, epoch, document, call)


class DocumentRandom:
    """`document_rng` for one document after another, at a tenth of its cost.

    One generator is set to the state in which each of them begins. What `at` returned is valid
    until the next call; not for several threads.
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._fresh = self._bits.state  # nothing drawn: buffers empty

    def at(self, seed: int, epoch: int, document: int, call: int = 0) -> np.random.Generator:
        """The generator that `document_rng` gives for the same arguments; raises what it does."""
        key = (operator.index(seed) & _WORD, operator.index(document) & _WORD)
        # Draws count up the first two words, and never reach the others.
        counter = (0, 0, operator.index(call) & _WORD, operator.index(epoch) & _WORD)
        self._fresh["state"] = {"key": key, "counter": counter}  # type: ignore[typeddict-item]
        self._bits.state = self._fresh
        return self._generator
