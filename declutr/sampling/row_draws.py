"""The random numbers of the rows of a corpus, and of texts that are of none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from declutr.sampling.document_selection import shuffled
from declutr.sampling.spans import DocumentRandom
from declutr.sampling.text_calls import TextCalls, text_digest


class RowDraws:
    """What is drawn for a row depends on the seed, the epoch and the row alone.

    Not on workers, processes, or where a run was resumed. A text without a row gets other numbers
    at each call: by the seed, the epoch, the text, and the number of calls with it in that epoch.

    # Parameters

    seed : of all draws.
    resample : draw anew every epoch, and at every call with a text.
    """

    def __init__(self, seed: int, resample: bool) -> None:
        self.resample = resample
        self._seed = seed
        self._random = DocumentRandom()
        self._calls = TextCalls()

    def begin(self, epoch: int) -> None:
        """Count calls with texts from here on as this epoch's."""
        self._calls.begin(epoch)

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
        """What `at` wants for a text: its digest stands in for a row that it does not have."""
        if row is not None:
            return epoch or 0, row
        if epoch is not None or not self.resample:
            return epoch or 0, text_digest(text)
        return self._calls.key(text)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Calls with texts inside the block do not count, in their epoch or in those after it."""
        calls, self._calls = self._calls, TextCalls()
        try:
            yield
        finally:
            self._calls = calls
