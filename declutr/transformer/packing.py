"""Texts of different lengths end to end, and texts of similar length together.

Padding is work for nothing: 37 % of a batch of paper-sized spans. Here is where tokens lie with and
without it, what masks say of that on the host, and what a transformer is tried with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from declutr.system.host_memory import to_device
from declutr.transformer.architectures import max_positions


class CannotPack(ValueError):
    """This transformer's attention is not plain attention over whole texts."""


class Packing:
    """Where the tokens of N texts lie when they stand end to end, longest text first.

    # Parameters

    lengths : tokens of each text; 0 is allowed.
    width : L, the padded length.
    device : of the tensors to pack.
    mask : `(N, L)` bool on the host, true at the tokens of each text; not needed where they are
        the first ones.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        width: int,
        device: torch.device,
        mask: Tensor | None = None,
    ) -> None:
        counts = np.asarray(lengths, dtype=np.int64)
        order = np.argsort(-counts, kind="stable")
        counts = counts[order]
        ends = np.cumsum(counts)
        if mask is None:
            positions = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        else:
            positions = mask.numpy()[order].nonzero()[1]
        self.shape = (len(counts), width)
        self.lengths: list[int] = counts[counts > 0].tolist()
        places = np.repeat(order, counts) * width + positions
        # One array, one copy to the device.
        sent = to_device(torch.from_numpy(np.stack([places, positions])), device)
        self._places, self.positions = sent
        self._of_longest = self.positions[: max(self.lengths, default=0)]
        # Where each text begins, and the end: int32, as attention kernels take it.
        starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)
        self.cu_seqlens = to_device(torch.from_numpy(starts), device)

    # Both are sizes of tensors, as `torch.compile` takes other numbers for constants here and would
    # compile anew for each.

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts together, T."""
        return self.positions.size(0)

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return self._of_longest.size(0)

    def pack(self, padded: Tensor) -> Tensor:
        """`(N, L)` -> `(T,)`, T being the number of tokens."""
        return padded.flatten()[self._places]

    def pad(self, packed: Tensor) -> Tensor:
        """`(T, d)` -> `(N, L, d)`, zero where there is no token."""
        texts, width = self.shape
        padded = packed.new_zeros(texts * width, packed.size(-1))
        return padded.index_copy(0, self._places, packed).view(texts, width, -1)


def text_lengths(mask: Tensor) -> list[int]:
    """Tokens of each text of a mask `(N, L)` that lies on the host."""
    return mask.numpy().sum(axis=1).tolist()


def text_ends(mask: Tensor) -> list[int]:
    """Where each text of a mask `(N, L)` on the host ends: one past its last token, 0 without any.

    It is more than the number of its tokens where padding lies before or between them.
    """
    tokens = mask.numpy()
    after = tokens[:, ::-1].argmax(axis=1)
    return np.where(tokens.any(axis=1), tokens.shape[1] - after, 0).tolist()


def begin_at_once(mask: Tensor) -> bool:
    """Return whether no text of a mask `(N, L)` has padding before its first token."""
    return bool((mask[:, 0] | ~mask.any(dim=1)).all())


def within_texts(mask: Tensor) -> Tensor:
    """Return `(N, L)`: the first to the last token of each text, with all that lies between."""
    begun = mask.cumsum(dim=1) > 0
    to_come = mask.flip(1).cumsum(dim=1).flip(1) > 0
    return begun & to_come


def length_groups(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Texts of similar length together: lists of their numbers, the longest text first throughout.

    A list times its longest text makes at most `most_tokens` tokens, unless it is a single text.
    Texts without tokens are left out.
    """
    groups: list[list[int]] = []
    for text in sorted(range(len(lengths)), key=lambda text: -lengths[text]):
        if not lengths[text]:
            break
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= most_tokens:
            groups[-1].append(text)
        else:
            groups.append([text])
    return groups


class KnownWhole(TorchFunctionMode):
    """Within this context it is known on the host whether a mask `(N, L)` is true throughout.

    transformers asks this to drop masks that hide nothing. Of a mask on a GPU the answer would lie
    there, and the host would wait for it in every pass. It is for models of that library alone:
    code of others may ask something else of such a tensor.

    # Parameters

    shape : `(N, L)`; what is asked of a tensor of another shape is computed.
    whole : the answer.
    """

    def __init__(self, shape: torch.Size, whole: bool) -> None:
        super().__init__()
        self._shape, self._answer = shape, torch.tensor(whole)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in ALL and is_mask(self._shape, *args, **(kwargs or {})):
            return self._answer
        return func(*args, **(kwargs or {}))


ALL = (torch.all, torch.Tensor.all)
"""The functions by which transformers ask that."""


def is_mask(shape: tuple[int, ...], tensor: Tensor, *others: Any, **named: Any) -> bool:
    """Whether arguments of one of `ALL` ask for all of a mask of that shape."""
    return not others and not named and tensor.dtype == torch.bool and tensor.shape == shape


@contextmanager
def padding_not_looked_for(transformer: torch.nn.Module) -> Iterator[None]:
    """Within this context a model of transformers does not look for padding among token ids.

    Given no mask, releases until 4 look at the ids of each text to warn of padding, and the host
    waits for them.
    """
    name = "warn_if_padding_and_no_attention_mask"
    if hasattr(transformer, name):
        transformer.__dict__[name] = lambda *args, **kwargs: None  # found before the method
    try:
        yield
    finally:
        transformer.__dict__.pop(name, None)


def texts_to_try(
    transformer: torch.nn.Module, padding_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return token ids and mask of a few short texts, together longer than one text may be."""
    longest = max_positions(transformer)
    width = max(1, min(64, longest or 64))
    lengths = [width, width - width // 2]
    while sum(lengths) <= min(longest or 0, 1024):  # more would take long on a CPU
        lengths.append(width - len(lengths) % (width // 2 + 1))
    texts = len(lengths)
    embeddings: Any = transformer.get_input_embeddings()  # type: ignore[operator]
    vocabulary = embeddings.num_embeddings
    token_ids = torch.arange(texts * width, device=device).view(texts, width) % vocabulary
    token_ids[token_ids == padding_id] = (padding_id + 1) % vocabulary
    ends = torch.tensor(lengths, device=device)
    return token_ids, torch.arange(width, device=device) < ends[:, None]


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Within this context all is in evaluation mode, and in the mode it was in afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, training in modes:
            part.training = training
