"""Which random numbers a text gets that comes without the row of a corpus."""

from __future__ import annotations

from hashlib import blake2b


class TextCalls:
    """Gives each call with a text a key of its own: an epoch, the text's digest, a number.

    The digest does not depend on the process, so that equal calls give equal keys anywhere. The
    number counts the calls with this text in an epoch, from 0. About 100 bytes are kept for each
    different text of the epoch, whatever its length, until the next one begins.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._calls: dict[int, int] = {}

    def begin(self, epoch: int) -> None:
        """Count the calls from here on as this epoch's; again from 0, unless it goes on."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._calls.clear()

    def key(self, text: str) -> tuple[int, int, int]:
        """The epoch, the digest of the text, and how many calls with it came before; counts one."""
        digest = text_digest(text)
        call = self._calls.get(digest, 0)
        self._calls[digest] = call + 1
        return self._epoch, digest, call


def text_digest(text: str) -> int:
    """64 bits of a text's BLAKE2b; different texts have the same by chance only."""
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")
