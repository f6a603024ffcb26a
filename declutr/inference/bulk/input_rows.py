"""Reading of rows in blocks, with a digest of them and counts of unusual rows."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from declutr.corpus import without_surrogates
from declutr.corpus.text_inputs import no_text
from declutr.inference.bulk.manifest import Counts

_REPLACEMENT = "\ufffd"


class InputRows:
    """A reader of rows that keeps a digest and counts of what was read.

    # Parameters

    rows : texts; `None` stands for a row that could not be read, and is read as a blank text.
    """

    def __init__(self, rows: Iterable[str | None]) -> None:
        self._rows: Iterator[str | None] = iter(rows)
        self.read = 0
        """The number of rows read so far."""
        self.bytes = 0
        """The size of their texts in UTF-8, each with a newline."""
        self.begin_shard()

    def begin_shard(self) -> None:
        """Start the digest and the counts anew."""
        self._digest = hashlib.sha256()
        self.counts = Counts()

    @property
    def digest(self) -> str:
        """The digest of the rows that were read since `begin_shard`."""
        return self._digest.hexdigest()

    def read_ahead(self, most: int, characters: int) -> None:
        """Read the rows of the next `take` in advance, so that unreadable input raises now."""
        self._rows = chain(self._next(most, characters), self._rows)

    def take(self, most: int, characters: int) -> list[str]:
        """Return the texts of the next rows; an empty list at the end.

        Lone surrogates, which JSON can contain and no tokenizer accepts, become U+FFFD.

        # Parameters

        most : the largest number of rows.
        characters : the number of characters at which no further row is added.

        # Raises

        `TypeError` : a row is not a text.
        """
        return [self._looked_at(row) for row in self._next(most, characters)]

    def skip(self, rows: int) -> int:
        """Read this many rows for their digest and counts only; return how many there were."""
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
            text = without_surrogates(text)
            data = text.encode("utf-8")
        # With the lengths, the rows "ab", "c" have another digest than "a", "bc".
        self._digest.update(b"%d " % (-1 if row is None else len(data)))
        self._digest.update(data)
        self.read += 1
        self.bytes += len(data) + 1
        self.counts.unreadable_rows += row is None
        self.counts.blank_rows += not text or text.isspace()
        self.counts.replaced_rows += _REPLACEMENT in text
        return text
