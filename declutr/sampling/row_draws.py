"""Reproducible random numbers for the rows of a corpus, and for texts outside of any corpus."""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np

from declutr.sampling.document_selection import shuffled

_WORD = 2**64 - 1


class RowDraws:
    """A source of random numbers that depend only on the seed, the epoch and the row.

    They do not depend on workers, processes, or where a run was resumed. A text without a row gets
    different numbers at each call: they depend on the seed, the epoch, the text, and the number of
    earlier calls with that text in the epoch. To count these calls, about 100 bytes are kept for
    each different text, whatever its length, until the next epoch begins.

    # Parameters

    seed : the seed of all draws.
    resample : whether to draw new numbers in every epoch, and at every call with a text. If not,
        the numbers of epoch 0 and of the first call are drawn again and again.
    """

    def __init__(self, seed: int, resample: bool) -> None:
        self.resample = resample
        self._seed = seed
        self._random = DocumentRandom()
        self._epoch = 0
        self._calls: dict[int, int] = {}  # calls in this epoch, by the digest of the text

    def begin(self, epoch: int) -> None:
        """Count further calls with texts in `epoch`, from 0 unless it is the current epoch."""
        if epoch != self._epoch:
            self._epoch, self._calls = epoch, {}

    def at(self, epoch: int, row: int, call: int = 0) -> np.random.Generator:
        """Return the random generator of a row, or of a call with a text.

        The generator is valid until the next call of this method. Several threads cannot share it.

        # Parameters

        epoch, row, call : the epoch, the row, and the number of the call, or what `key_of_text`
            returns for a text.
        """
        epoch, call = (epoch, call) if self.resample else (0, 0)
        return self._random.at(self._seed, epoch, row, call)

    def order(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        """Return `rows` in the order of `epoch`, which is their own order without `resample`."""
        return shuffled(rows, (self._seed, epoch)) if self.resample else rows

    def key_of_text(self, text: str, row: int | None, epoch: int | None) -> tuple[int, ...]:
        """Return the arguments of `at` for a text, in which a digest replaces a missing row.

        # Parameters

        text : the text.
        row : its row, or `None` for a text that is not in a corpus.
        epoch : the epoch. If both row and epoch are `None`, the current epoch is taken, and this
            counts as a call with the text.
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
        """Open a context in which calls with texts are not counted, in this or any later epoch."""
        before = self._epoch, self._calls
        self._epoch, self._calls = 0, {}
        try:
            yield
        finally:
            self._epoch, self._calls = before


def text_digest(text: str) -> int:
    """Return a 64-bit BLAKE2b digest of a text, which is the same in every process."""
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def document_rng(seed: int, epoch: int, document: int, call: int = 0) -> np.random.Generator:
    """Return a random generator for one reading of one document.

    Its numbers depend only on the four arguments: not on the order of reading, the number of
    workers or the numbers drawn for other documents. The arguments become the key and the counter
    of the counter-based Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2,
    3", SC 2011), so that different arguments give streams that cannot overlap.

    Args:
        seed, epoch, document: any integers, taken modulo 2**64 (negative ones wrap around).
        call: the number of the reading of the document in the epoch, also any integer.

    Raises:
        TypeError: if an argument is not an integer.
    """
    return DocumentRandom().at(seed, epoch, document, call)


class DocumentRandom:
    """A source of the generators of `document_rng`, at a tenth of the cost of that function.

    A single generator is set to the state in which the generator of a document begins. It is valid
    until the next call of `at`, and several threads cannot share it.
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._fresh = self._bits.state  # Nothing has been drawn yet, so its buffers are empty.

    def at(self, seed: int, epoch: int, document: int, call: int = 0) -> np.random.Generator:
        """Return the generator that `document_rng` returns for the same arguments.

        # Raises

        `TypeError` : if an argument is not an integer.
        """
        key = (operator.index(seed) & _WORD, operator.index(document) & _WORD)
        # Draws count up the first two words of the counter and never reach the other two.
        counter = (0, 0, operator.index(call) & _WORD, operator.index(epoch) & _WORD)
        self._fresh["state"] = {"key": key, "counter": counter}  # type: ignore[typeddict-item]
        self._bits.state = self._fresh
        return self._generator
