"""Runs of consecutive texts of the same length in a packed row, and views of their tensors."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from declutr.system.processors import instructions

_TOKENS_AT_ONCE = 1024  # tokens of equally long texts that are computed together

# Scores per thread that are computed together, by the bytes of a value. In float32, several such
# tensors fit the cache of a core. In bfloat16, large products help oneDNN more than the cache does.
_SCORES_AT_ONCE = {2: 1 << 22, 4: 1 << 18, 8: 1 << 17}

# Numbers of float32 that torch's kernel computes at once; its softmax computes twice as many in
# bfloat16. Both compute what is left of a row of scores one by one: rows of 31 scores take twice as
# long in that kernel as rows of 32, and four times in that softmax. So keys are read beyond the end
# of a text, and masked. If less than a quarter is left, the mask takes as long as it saves.
_LANES = {"AVX512": 16, "AVX2": 8}.get(torch.backends.cpu.get_cpu_capability(), 1)

# Measured times of torch's kernel, relative to separate products and softmax. In float32, with full
# rows, it takes 0.3 to 1.1 at any length. Its backward pass, and all without such instructions:
# 0.5 to 0.95 for texts of at most _SHORT tokens, and of _LONG tokens or more (_LONG_TOGETHER where
# several texts have the same length); between these lengths up to 1.4. In bfloat16 it takes 0.2 to
# 1 at any length on processors with AMX, and 1.3 to 2.5 on others; its backward pass up to 3.
_SHORT, _LONG, _LONG_TOGETHER = 16, 160, 64

_ALL = slice(None)


def runs(cu_seqlens: Tensor) -> Iterator["Run"]:
    """Yield the runs of a packed row, from the offsets `(N + 1,)` at which texts begin."""
    start = 0
    for length, texts in groupby(cu_seqlens.diff().tolist()):
        run = Run(start, len(list(texts)), length)
        yield run
        start += run.number * length


class Block(NamedTuple):
    """Some heads of consecutive texts of the same length."""

    run: "Run"
    heads: slice

    def of(self, tensor: Tensor, rows: int | None = None) -> Tensor:
        """Return a view `(heads, number, length, D)` of a tensor `(1, H, T, D)`.

        With `rows`, it is `(heads, number, rows, D)`, and may be a copy: see `Run.texts_with`.
        """
        part = tensor if self.heads == _ALL else tensor[:, self.heads]
        return self.run.texts_with(part, rows or self.run.length).transpose(0, 1)


class Run(NamedTuple):
    """A run of consecutive texts of the same length."""

    start: int
    number: int
    length: int

    def suits_torch(self, dtype: torch.dtype) -> bool:
        """Return whether torch's kernel is the quickest for these texts."""
        if dtype.itemsize == 2:
            return "amx" in instructions()
        return _LANES > 1 or self.suits_torch_backward(dtype)

    def suits_torch_backward(self, dtype: torch.dtype) -> bool:
        """Return whether the backward pass of torch's kernel is the quickest, too."""
        long = _LONG if self.number == 1 else _LONG_TOGETHER
        return dtype.itemsize > 2 and not _SHORT < self.length < long

    def full_rows(self) -> int:
        """Return how many keys torch's kernel is to read; those beyond the end are to be masked."""
        return self._full_rows(_LANES)

    def full_rows_of_softmax(self, dtype: torch.dtype) -> int:
        """Return how many keys separate products are to read, where there is no dropout.

        In float32, torch's softmax computes what is left of a row nearly as fast.
        """
        return self._full_rows(2 * _LANES) if dtype.itemsize == 2 and _LANES > 1 else self.length

    def _full_rows(self, lanes: int) -> int:
        left = self.length % lanes
        return self.length if left < max(1, lanes // 4) else self.length + lanes - left

    def parts(self, rows: int, tokens: int) -> Iterator["Run"]:
        """Yield the texts behind which there are tokens for so many rows, and then the others.

        `tokens` is the number of tokens of all texts of the packed row, T.
        """
        full = min(self.number, max(0, tokens - self.start - rows + self.length) // self.length)
        for first, number in ((0, full), (full, self.number - full)):
            if number:
                yield Run(self.start + first * self.length, number, self.length)

    def texts(self, tensor: Tensor, rows: int | None = None) -> Tensor:
        """Return a view `(number, H, length, D)` of a tensor `(1, H, T, D)`.

        With `rows`, it is `(number, H, rows, D)`, and overlaps: after a text follows the next one.
        """
        _, of_head, of_token, of_value = tensor.stride()
        size = (self.number, tensor.size(1), rows or self.length, tensor.size(3))
        stride = (self.length * of_token, of_head, of_token, of_value)
        return tensor.as_strided(size, stride, tensor.storage_offset() + self.start * of_token)

    def texts_with(self, tensor: Tensor, rows: int) -> Tensor:
        """Return `(number, H, rows, D)`: a view, or a copy if there is nothing behind the texts.

        A text is computed in the same way in both cases, so its embedding does not depend on the
        others in a batch.
        """
        if self.start + (self.number - 1) * self.length + rows <= tensor.size(2):
            return self.texts(tensor, rows)
        return pad(self.texts(tensor), (0, 0, 0, rows - self.length))

    def blocks(self, query: Tensor, dropout: Any) -> Iterator[tuple[Block, Tensor]]:
        """Yield blocks that fit the cache, with levels of dropout that threads do not change."""
        heads, at_once = query.size(1), max(1, _TOKENS_AT_ONCE // self.length)
        most = _SCORES_AT_ONCE[query.element_size()] * torch.get_num_threads()
        nothing = query.new_empty(0)
        for first in range(0, self.number, at_once):
            number = min(at_once, self.number - first)
            start = self.start + first * self.length
            if dropout is not None:
                levels = dropout.draw(torch.Size((heads, number, self.length, self.length)))
            step = max(1, most // (number * self.length**2))
            for head in range(0, heads, step):
                some = slice(head, head + step) if step < heads else _ALL
                drawn = nothing if dropout is None else dropout.comparable(levels[some], query)
                yield Block(Run(start, number, self.length), some), drawn
