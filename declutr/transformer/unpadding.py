"""Passes of a transformer over padded texts that do not compute on the padding."""

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from declutr.system import free_after_fork
from declutr.system.distributed import is_sharded
from declutr.system.host_memory import known_on_host, on_host, remember, to_device
from declutr.transformer.architectures import attends_nearby, turning_length
from declutr.transformer.packed_attention import PackedAttention
from declutr.transformer.packing import (
    CannotPack,
    KnownWhole,
    Packing,
    begin_at_once,
    evaluating,
    length_groups,
    padding_not_looked_for,
    text_ends,
    text_lengths,
    texts_to_try,
    within_texts,
)
from declutr.transformer.training_products import quick_products

logger = logging.getLogger(__name__)

# Held while a transformer is tried: meanwhile `torch.compile` is off for all threads, and the last
# of two threads to end would leave it off for good.
_TRYING = free_after_fork(threading.RLock())

UNPADDING = ("auto", "packed", "grouped", "none")

# Padded tokens per group of texts of similar length: few enough to fit the caches of a CPU, and
# enough to keep a GPU busy.
_GROUP_TOKENS = {"cpu": 2048, "cuda": 16384}

Run = Callable[..., Tensor]
"""A function that takes the inputs of a transformer by name, and returns token embeddings.

They are `(1, T, d)` for a packed row and `(N, L, d)` for padded texts.
"""


class Texts(NamedTuple):
    """Padded texts `(N, L)` and further features of each text `(N, k)`.

    `UnpaddedPass.__call__` describes the fields.
    """

    token_ids: Tensor
    mask: Tensor
    type_ids: Tensor | None = None
    of_texts: Tensor | None = None


class UnpaddedPass:
    """A pass of a transformer over padded texts that skips most or all of the padding.

    It returns the same padded token embeddings as a plain pass, up to rounding, in one of these
    ways. Some transformers let padding reach tokens whatever the mask says, by convolutions (as
    ConvBERT), by Fourier transforms (FNet) or by neighbouring words (MobileBERT), so that the
    embedding of a text would follow from the length of others. All ways give what such a
    transformer gives for each text alone: only texts of equal length go through it together.
    Whether padding reaches tokens is tried once on two short texts. (A transformer that is sharded
    over processes keeps its padding, with a warning.)

    - `"packed"`: all texts end to end in one row, with attention within each text. It wastes
      nothing.
    - `"grouped"`: one pass per group of texts of similar length. It wastes little, and works with
      any architecture.
    - `"none"`: one plain pass with all of the padding.
    - `"auto"`: packed if the transformer can be packed, which is tried once on a few short texts,
      and otherwise grouped, which is logged.

    The mask may also be False at tokens inside a text. Nothing attends to these tokens, and all
    others keep their positions. On a GPU such texts are packed without these tokens; on a CPU they
    are grouped.

    The lengths of texts are read on the host. The host does not wait for a GPU if the values of the
    mask are known there (`declutr.system.host_memory`).

    # Parameters

    unpadding : `"auto"`, `"packed"`, `"grouped"` or `"none"`.
    padding_id : the token id at padding.
    first_position : the position id of a text's first token: 0, or the padding id plus one
        (RoBERTa).

    # Raises

    `ValueError` : an unknown `unpadding`.
    """

    def __init__(
        self, unpadding: str = "auto", *, padding_id: int = 0, first_position: int = 0
    ) -> None:
        if unpadding not in UNPADDING:
            raise ValueError(
                f"Unknown unpadding '{unpadding}': expected one of {', '.join(UNPADDING)}."
            )
        self.unpadding = unpadding
        self._padding_id = padding_id
        self._first_position = first_position
        self._asks_masks = False  # whether the model is from transformers, which inspects masks
        # Whether the model can be packed; `None` until that is tried.
        self._packs: bool | None = None if unpadding in ("auto", "packed") else False
        # Whether padding changes the embeddings of tokens; `None` until that is tried.
        self._padding_shows: bool | None = None

    def __call__(
        self,
        transformer: torch.nn.Module,
        run: Run,
        token_ids: Tensor,
        mask: Tensor,
        type_ids: Tensor | None = None,
        of_texts: Tensor | None = None,
    ) -> Tensor:
        """Return the token embeddings of padded texts, `(N, L, d)`; at padding they are undefined.

        # Parameters

        transformer : the transformer that `run` calls.
        run : calls `transformer` with inputs by name.
        token_ids : `(N, L)`.
        mask : `(N, L)`, bool, False at padding.
        type_ids : `(N, L)`, the segment of each token, if the transformer takes them.
        of_texts : `(N, k)`, further features of each text. `run` gets them under the same name for
            the texts that it is given: `(n, 1, k)` for n padded texts, or `(1, T, k)`, once per
            token, for a packed row.

        # Raises

        `CannotPack` : `unpadding` is `"packed"`, and the transformer cannot be packed.
        """
        with quick_products(transformer, mask.device):
            return self._computed(transformer, run, Texts(token_ids, mask, type_ids, of_texts))

    def _computed(self, transformer: torch.nn.Module, run: Run, texts: Texts) -> Tensor:
        self._asks_masks = type(transformer).__module__.startswith("transformers.")
        mask = texts.mask
        known = on_host(mask)
        lengths, ends = text_lengths(known), text_ends(known)
        if not any(ends):
            return self._padded(run, texts)
        holes = lengths != ends
        # On a CPU texts with masked tokens inside are grouped, as in earlier releases: packing them
        # would draw other dropout, so that results could not be reproduced.
        packable = not holes or (mask.device.type != "cpu" and begin_at_once(known))
        sharded = is_sharded(transformer)
        # All processes of a sharded model must try packing, and padding, together.
        if self._packs is None and (packable or sharded):
            with _TRYING:
                if self._packs is None:
                    self._packs = self._try_packing(transformer, run, mask.device)
        if packable and self._packs:
            packing = Packing(lengths, mask.size(1), mask.device, known if holes else None)
            try:
                return self._packed(transformer, run, packing, texts)
            except CannotPack as error:  # the transformer was changed after it was tried
                raise _cannot_pack(transformer, error) from error
        # The processes of a sharded model must run the same number of passes, but could have
        # different numbers of groups.
        if sharded:
            if not self._packs:  # or else other processes may pack their batches meanwhile
                self._padding_reaches_tokens(transformer, run, mask.device)
            return self._padded(run, texts)
        shortest, longest = min(ends), mask.size(1)
        turn = turning_length(getattr(transformer, "config", None))
        if self.unpadding == "none" and (
            shortest == longest
            or not (
                shortest <= turn < longest
                or self._padding_reaches_tokens(transformer, run, mask.device)
            )
        ):
            return self._padded(run, texts)
        return self._grouped(transformer, run, ends, texts)

    def _padded(self, run: Run, texts: Texts) -> Tensor:
        token_ids, mask, type_ids, of_texts = texts
        # RoBERTa counts positions by the ids that are not the padding id. So padding must have that
        # id, and masked tokens inside a text must not.
        token_ids = token_ids.masked_fill(~within_texts(mask), self._padding_id)
        about = None if of_texts is None else of_texts[:, None]
        inputs = {**_named(token_ids, type_ids, about), "attention_mask": mask.long()}
        if mask.device.type == "cpu" or not self._asks_masks:
            return run(**inputs)
        with KnownWhole(mask.shape, bool(on_host(mask).all())):
            return run(**inputs)

    def _packed(
        self, transformer: torch.nn.Module, run: Run, packing: Packing, texts: Texts
    ) -> Tensor:
        token_ids, mask, type_ids, of_texts = texts
        if type_ids is None and "token_type_ids" in inputs_of(transformer):
            # Without them, transformers 4 uses default segments that are only as long as a single
            # text may be, and the row may be longer.
            type_ids = torch.zeros_like(token_ids)
        types = None if type_ids is None else packing.pack(type_ids)[None]
        about = None
        if of_texts is not None:
            numbers = torch.arange(len(token_ids), device=token_ids.device)[:, None]
            about = of_texts[packing.pack(numbers.expand_as(token_ids))][None]
        inputs = _named(packing.pack(token_ids)[None], types, about)
        positions = packing.positions
        if self._first_position and self._may_have_padding_ids(token_ids, mask):
            # RoBERTa does not count padding ids, which may be in a text too, where it says "<pad>".
            padding = mask & (token_ids == self._padding_id)
            positions = positions - packing.pack(padding.cumsum(dim=1))
            positions = positions.masked_fill(packing.pack(padding), -1)
        inputs["position_ids"] = positions[None] + self._first_position
        asked = token_ids.device.type != "cpu" and self._asks_masks
        quiet = padding_not_looked_for(transformer) if asked else contextlib.nullcontext()
        with PackedAttention(packing, asked) as attention, quiet:
            hidden = run(**inputs)
        if not attention.calls:
            raise CannotPack("its attention is not torch's scaled_dot_product_attention")
        return packing.pad(hidden[0])

    def _may_have_padding_ids(self, token_ids: Tensor, mask: Tensor) -> bool:
        """Return whether the padding id may be within texts; the host does not wait for the ids."""
        known = known_on_host(token_ids)
        return known is None or bool((on_host(mask) & (known == self._padding_id)).any())

    def _grouped(
        self, transformer: torch.nn.Module, run: Run, ends: list[int], texts: Texts
    ) -> Tensor:
        token_ids, mask, type_ids, of_texts = texts
        padded: Tensor | None = None
        known, device = on_host(mask), mask.device
        most = _GROUP_TOKENS.get(device.type, 16384)
        turn = turning_length(getattr(transformer, "config", None))
        parts = [[n * (n > turn) for n in ends], [n * (n <= turn) for n in ends]]
        groups = [*chain(*(length_groups(part, most) for part in parts))]
        unequal = any(ends[group[0]] != ends[group[-1]] for group in groups)
        if unequal and self._padding_reaches_tokens(transformer, run, device):
            groups = [*chain(*(length_groups(part, most, equal=True) for part in parts))]
        numbers = torch.tensor(list(chain(*groups)), device="cpu")
        sent = to_device(numbers, device)  # one copy for all
        for group, rows in zip(groups, sent.split([len(each) for each in groups]), strict=True):
            width = ends[group[0]]
            types = None if type_ids is None else type_ids[rows, :width]
            about = None if of_texts is None else of_texts[rows]
            some = remember(mask[rows, :width], known[group, :width])
            hidden = self._padded(run, Texts(token_ids[rows, :width], some, types, about))
            if padded is None:
                padded = hidden.new_zeros(*token_ids.shape, hidden.size(-1))
            padded[rows, :width] = hidden
        assert padded is not None
        return padded

    @torch.no_grad()
    def _try_packing(self, transformer: torch.nn.Module, run: Run, device: torch.device) -> bool:
        """Return whether a packed pass gives the same as a padded one for a few short texts."""
        try:
            if "position_ids" not in inputs_of(transformer):
                raise CannotPack("it takes no position_ids")
            if attends_nearby(getattr(transformer, "config", None)):
                raise CannotPack("some of its layers attend to neighbours only")
            token_ids, mask = texts_to_try(transformer, self._padding_id, device)
            # It must run eagerly, because attention masks are ignored in compiled code.
            eagerly = torch.compiler.set_stance("force_eager")
            with eagerly, evaluating(transformer), torch.autocast(device.type, enabled=False):
                packing = Packing(mask.sum(dim=1).tolist(), mask.size(1), device)
                packed = self._packed(transformer, run, packing, Texts(token_ids, mask))
                # Three texts are enough to compare. The last one is further along the row than a
                # single text reaches.
                step = max(1, (len(mask) - 1) // 2)
                few = slice((len(mask) - 1) % step, None, step)
                packed, mask = packed[few], mask[few]
                padded = self._padded(run, Texts(token_ids[few], mask))
            apart = _apart(packed[mask], padded[mask])
            if not apart < max(1e-3, _rounding(padded)):
                raise CannotPack(f"packed and padded texts differ by {apart:.1g}")
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a transformer may raise anything for unexpected inputs
            if self.unpadding == "packed":
                raise _cannot_pack(transformer, error) from error
            logger.info(
                f"{type(transformer).__name__} is not packed ({error}): texts of similar length go "
                "through it together instead."
            )
            return False
        return True

    def _padding_reaches_tokens(
        self, transformer: torch.nn.Module, run: Run, device: torch.device
    ) -> bool:
        if self._padding_shows is None:
            with _TRYING:
                if self._padding_shows is None:
                    self._padding_shows = self._try_padding(transformer, run, device)
        return self._padding_shows

    @torch.no_grad()
    def _try_padding(self, transformer: torch.nn.Module, run: Run, device: torch.device) -> bool:
        """Return whether a text gives, or may give, something else with padding than alone."""
        try:
            # Models that hash at random draw numbers even here; those of training stay the same.
            drawing = torch.random.fork_rng([device] if device.type == "cuda" else [])
            plainly = torch.autocast(device.type, enabled=False)
            tried = texts_to_try(transformer, self._padding_id, device)
            token_ids, mask = (each[1:2] for each in tried)
            alone = mask[0]
            # A stance is taken as soon as it is made, and given back at the end of `with`.
            eagerly = torch.compiler.set_stance("force_eager")
            with eagerly, drawing, plainly, evaluating(transformer):
                padded = self._padded(run, Texts(token_ids, mask))[:, alone]
                whole = self._padded(run, Texts(token_ids[:, alone], mask[:, alone]))
            apart = _apart(padded, whole)
            shows = not apart < max(1e-4, _rounding(whole))
            seen = f"changes what {type(transformer).__name__} gives for a text, by {apart:.1g}"
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the texts at hand may be right for it, unlike these
            shows = True
            seen = f"may change what {type(transformer).__name__} gives for a text ({error!r})"
        if shows:
            sharded = is_sharded(transformer)
            logger.log(
                logging.WARNING if sharded else logging.INFO,
                f"Padding {seen}: "
                + (
                    "sharded over processes, it embeds each text by the length of those beside it. "
                    "Train it without fsdp, or use another transformer."
                    if sharded
                    else "only texts of equal length go through it together."
                ),
            )
        return shows


def _apart(some: Tensor, expected: Tensor) -> float:
    """Return the largest difference of two tensors, as a share of the largest value expected."""
    return float((some - expected).abs().max() / expected.abs().max())


def _rounding(expected: Tensor) -> float:
    """Return the share below which a difference may be rounding of its dtype."""
    return 8 * torch.finfo(expected.dtype).eps


def _cannot_pack(transformer: torch.nn.Module, reason: Exception) -> CannotPack:
    return CannotPack(
        f"{type(transformer).__name__} cannot be packed: {reason}. Set unpadding to 'grouped'."
    )


def inputs_of(transformer: torch.nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a transformer's forward pass, by name."""
    return inspect.signature(transformer.forward).parameters


def _named(
    token_ids: Tensor, type_ids: Tensor | None, of_texts: Tensor | None
) -> dict[str, Tensor]:
    inputs = {"input_ids": token_ids, "token_type_ids": type_ids, "of_texts": of_texts}
    return {name: tensor for name, tensor in inputs.items() if tensor is not None}
