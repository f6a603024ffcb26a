"""Progress bars over the passes that the making of a first table takes over its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tqdm.auto import tqdm

_PASSES = ("counting characters", "learning word pieces", "counting co-occurrences")


class TextPasses:
    """A function that gives the texts of a corpus anew at each call, with a progress bar.

    # Parameters

    texts : the function that gives the texts.
    has_tokenizer : whether a tokenizer is given, so that the only pass is the one that counts.
    """

    def __init__(self, texts: Callable[[], Iterable[str]], has_tokenizer: bool = False) -> None:
        self._texts = texts
        self._passes = iter(_PASSES[2:] if has_tokenizer else _PASSES)
        self._count: int | None = None

    def __call__(self) -> Iterator[str]:
        count, about = 0, next(self._passes, _PASSES[-1])
        # On a terminal alone, and not for passes of less than a second.
        shown = {"total": self._count, "leave": False, "disable": None, "delay": 1}
        for text in tqdm(self._texts(), about, unit=" texts", **shown):
            yield text
            count += 1
        self._count = count
