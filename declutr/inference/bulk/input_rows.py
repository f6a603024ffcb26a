"""Rows as they come, in blocks: each looked at once, for a digest and for what is odd about it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from declutr.corpus.text_inputs import no_text
from declutr.inference.bulk.manifest import Counts

_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class InputRows:
    """An iterator of rows, with what was read so far.

    # Parameters

    rows : texts; `None` stands for a row that could not be read, and is a blank text.
    """

    def __init__(self, rows: Iterable[str | None]) -> None:
        self._rows: Iterator[str | None] = iter(rows)
        self.read = 0
        """Rows so far."""
        self.bytes = 0
        """What their texts take in UTF-8, with an end of line each."""
        self.begin_shard()

    def begin_shard(self) -> None:
        """Let digest and counts begin anew."""
        self._digest = hashlib.sha256()
        self.counts = Counts()

    @property
    def digest(self) -> str:
        """Of the rows since `begin_shard`."""
        return self._digest.hexdigest()

    def read_ahead(self, most: int, characters: int) -> None:
        """Have the next rows in memory, as many as `take` takes: what is unreadable is told now."""
        self._rows = chain(self._next(most, characters), self._rows)

    def take(self, most: int, characters: int) -> list[str]:
        """The next rows, at most so many, of about so many characters together; `[]` at the end.

        Halves of surrogate pairs, which JSON can hold and no tokenizer takes, become U+FFFD.
        """
        return [self._looked_at(row) for row in self._next(most, characters)]

    def skip(self, rows: int) -> int:
        """Read so many rows for their digest alone; how many there were."""
        before = self.read
        while rows > 0 and (found := len(self.take(min(rows, 1024), 1 << 20))):
            rows -= found
        return self.read - before

    def _next(self, most: int, characters: int) -> list[str | None]:
        rows: list[str | None] = []
        for row in islice(self._rows, most):
            rows.append(row)
            characters -= len(row) if isinstance(row, str) else 0
            if characters <= 0:
                break
        return rows

    def _looked_at(self, row: str | None) -> str:
        text = "" if row is None else row
        if not isinstance(text, str):
            raise no_text(text, self.read)
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:
            text = _SURROGATE.sub(_REPLACEMENT, text)
            data = text.encode("utf-8")
        # Lengths, so that "ab", "c" and "a", "bc" differ.
        self._digest.update(b"%d " % (-1 if row is None else len(data)))
        self._digest.update(data)
        self.read += 1
        self.bytes += len(data) + 1
        self.counts.unreadable_rows += row is None
        self.counts.blank_rows += not text or text.isspace()
        self.counts.replaced_rows += _REPLACEMENT in text
        return text
