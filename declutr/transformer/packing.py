"""Index arithmetic for packing texts without padding, and for grouping texts of similar length.

Padding is wasted work: 37 % of a batch of spans of the lengths in the DeCLUTR paper. This module
has the places of tokens with and without padding, text lengths from masks on the host, and the
example texts with which a transformer is tried.
"""

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
    """Error for a transformer whose attention is not plain attention over whole texts."""


class Packing:
    """The places of the tokens of N texts in one packed row, longest text first.

    # Parameters

    lengths : the number of tokens of each text; 0 is allowed.
    width : L, the padded length.
    device : the device of the tensors to pack.
    mask : `(N, L)`, bool, on the host; true at the tokens of each text. Not needed if the tokens of
        each text come first.
    """

    def __init__(
        self, lengths: Sequence[int], width: int, device: torch.device, mask: Tensor | None = None
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
        # Stacked, so that there is only one copy to the device.
        sent = to_device(torch.from_numpy(np.stack([places, positions])), device)
        self._places, self.positions = sent
        self._of_longest = self.positions[: max(self.lengths, default=0)]
        # The offset at which each text begins, and T; attention kernels take int32.
        starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)
        self.cu_seqlens = to_device(torch.from_numpy(starts), device)

    # Both properties are sizes of tensors, because `torch.compile` would treat other numbers as
    # constants here, and compile again for each value.

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all texts together, T."""
        return self.positions.size(0)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest text."""
        return self._of_longest.size(0)

    def pack(self, padded: Tensor) -> Tensor:
        """Return the values of a padded tensor `(N, L)` at the tokens, packed: `(T,)`."""
        return padded.flatten()[self._places]

    def pad(self, packed: Tensor) -> Tensor:
        """Return a packed tensor `(T, d)` in padded form, `(N, L, d)`, zero where no token is."""
        texts, width = self.shape
        padded = packed.new_zeros(texts * width, packed.size(-1))
        return padded.index_copy(0, self._places, packed).view(texts, width, -1)


def text_lengths(mask: Tensor) -> list[int]:
    """Return the number of tokens of each text, for a bool mask `(N, L)` on the host."""
    return mask.numpy().sum(axis=1).tolist()


def text_ends(mask: Tensor) -> list[int]:
    """Return the end of each text, one past its last token, for a bool mask `(N, L)` on the host.

    It is 0 for a text without tokens, and larger than the number of tokens if padding lies before
    or between them.
    """
    tokens = mask.numpy()
    after = tokens[:, ::-1].argmax(axis=1)
    return np.where(tokens.any(axis=1), tokens.shape[1] - after, 0).tolist()


def begin_at_once(mask: Tensor) -> bool:
    """Return whether no text has padding before its first token, for a bool mask `(N, L)`."""
    return bool((mask[:, 0] | ~mask.any(dim=1)).all())


def within_texts(mask: Tensor) -> Tensor:
    """Return a mask that is true from the first to the last token of each text.

    The argument and the result are bool, `(N, L)`.
    """
    begun = mask.cumsum(dim=1) > 0
    to_come = mask.flip(1).cumsum(dim=1).flip(1) > 0
    return begun & to_come


def length_groups(lengths: Sequence[int], most_tokens: int, equal: bool = False) -> list[list[int]]:
    """Group texts of similar length.

    # Parameters

    lengths : the number of tokens of each text.
    most_tokens : the largest number of tokens in a padded group, which is its number of texts times
        the length of its longest. A single text may have more.
    equal : whether the texts of a group must have the same length, so that there is no padding.

    # Returns

    Lists of text numbers, from the longest text to the shortest. Texts without tokens are left out.

    >>> length_groups([3, 9, 0, 4], most_tokens=10)
    [[1], [3, 0]]
    """
    groups: list[list[int]] = []
    for text in sorted(range(len(lengths)), key=lambda text: -lengths[text]):
        if not lengths[text]:
            break
        longest = lengths[groups[-1][0]] if groups else 0
        fits = groups and (len(groups[-1]) + 1) * longest <= most_tokens
        if fits and (not equal or lengths[text] == longest):
            groups[-1].append(text)
        else:
            groups.append([text])
    return groups


class KnownWhole(TorchFunctionMode):
    """A context in which it is known on the host whether a mask `(N, L)` is true throughout.

    transformers checks this in order to drop masks that hide nothing. For a mask on a GPU the host
    would wait for the answer in every pass. Use it for models of that library only: in other code
    the same call on such a tensor may ask about something else.

    # Parameters

    shape : `(N, L)`; for tensors of other shapes the answer is computed.
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
"""The functions by which transformers checks whether a mask is true throughout."""


def is_mask(shape: tuple[int, ...], tensor: Tensor, *others: Any, **named: Any) -> bool:
    """Return whether a call of one of `ALL` with these arguments is about a mask of that shape."""
    return not others and not named and tensor.dtype == torch.bool and tensor.shape == shape


@contextmanager
def padding_not_looked_for(transformer: torch.nn.Module) -> Iterator[None]:
    """Disable transformers' warning about padding without a mask within this context.

    If they get no mask, releases before 5 check the token ids for padding in order to warn about
    it, and the host waits for the device.
    """
    name = "warn_if_padding_and_no_attention_mask"
    if hasattr(transformer, name):
        transformer.__dict__[name] = lambda *args, **kwargs: None  # hides the method of the class
    try:
        yield
    finally:
        transformer.__dict__.pop(name, None)


def texts_to_try(
    transformer: torch.nn.Module, padding_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return a few short example texts that are together longer than a single text may be.

    # Parameters

    transformer : defines the vocabulary and the maximal length.
    padding_id : a token id that is not used.
    device : the device of the result.

    # Returns

    Token ids and the mask, both `(N, L)`.
    """
    longest = max_positions(transformer)
    width = max(1, min(64, longest or 64))
    lengths = [width, width - width // 2]
    while sum(lengths) <= min(longest or 0, 1024):  # more would take long on a CPU
        lengths.append(width - len(lengths) % (width // 2 + 1))
    texts = len(lengths)
    embeddings: Any = transformer.get_input_embeddings()  # type: ignore[operator]
    vocabulary = len(embeddings.weight)
    token_ids = torch.arange(texts * width, device=device).view(texts, width) % vocabulary
    token_ids[token_ids == padding_id] = (padding_id + 1) % vocabulary
    ends = torch.tensor(lengths, device=device)
    return token_ids, torch.arange(width, device=device) < ends[:, None]


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put a module and its parts in evaluation mode within this context.

    Afterwards each part is in its own mode again, which `Module.train` would not restore.
    """
    modes = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, training in modes:
            part.training = training
