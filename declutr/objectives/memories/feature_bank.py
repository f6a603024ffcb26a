"""Features of all training instances, as each was last seen, and the nearest of them."""

import logging
import os
import tempfile
from collections.abc import Callable
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives.memories.bank_search import (
    BLOCK,
    DEVICE_BLOCK,
    InvertedLists,
    nearest_rows,
    nearest_rows_on_device,
)
from declutr.objectives.memories.instance_ids import last_rows, require_ids
from declutr.objectives.settings import above_zero, at_least_zero, one_of
from declutr.system.host_memory import carried, on_host, to_device

logger = logging.getLogger(__name__)

ELIGIBLE = ("visited", "all")
STORAGES = ("memory", "disk")
PRECISIONS = {"float32": torch.float32, "float16": torch.float16}
SEARCHES = ("exact", "approximate")

_CANDIDATES = 4  # approximate search compares with so many times k rows


class FeatureBank(torch.nn.Module):
    """A slot for every training instance, which follows its feature (RECLAIM, equation 7).

    `slot <- (1 - rho) new + rho slot`. Where the paper is silent or contradicts itself, this is
    ours: rho is never given (0.5, as in the memories of CRD); a slot's first feature overwrites it,
    and slots without one are not found; an instance never finds itself. Slots are not normalised,
    but found by cosine.

    Vectors are part of checkpoints, and whole in them wherever they are kept. They are no buffer,
    which DistributedDataParallel would send around with every step; banks of several processes
    are equal because all processes give them the same rows.

    # Parameters

    instances : M, how many the training data has.
    width : d.
    momentum : rho in [0, 1): how much of a slot stays.
    eligible : `"visited"`, or `"all"`: as the paper has it, slots start as normal noise, which
        momentum keeps a share of, and can be found from the first step on.
    storage : `"memory"` of the model's device, or `"disk"`: mapped into main memory from a file,
        of which the system holds as much as it has room for. The host then waits for a GPU that
        asks for rows.
    folder : where that file lies, the folder for temporary files by default. It has no name and
        goes with the process.
    precision : `"float32"` or `"float16"` of vectors.
    search : `"exact"`, or `"approximate"`, which may find most of the nearest only: on a CPU with
        faiss, where more than `approximate_from` slots are eligible; `recall` says how many it
        finds. What it looks into is built anew every `rebuild_every` updates, and after a resume.
        Vectors in the memory of a GPU are always searched exactly, as that is fast.
    seed : of noise and samples.

    # Raises

    `ConfigurationError` : a setting that makes no sense.
    """

    visited: torch.Tensor
    texts: torch.Tensor
    lengths: torch.Tensor

    def __init__(
        self,
        instances: int,
        width: int,
        momentum: float = 0.5,
        eligible: str = "visited",
        storage: str = "memory",
        folder: Optional[str] = None,
        precision: str = "float32",
        search: str = "exact",
        approximate_from: int = 200_000,
        rebuild_every: int = 1000,
        seed: int = 13370,
    ) -> None:
        super().__init__()
        above_zero("instances", instances)
        above_zero("width", width)
        if not 0 <= momentum < 1:
            raise ConfigurationError(
                f"momentum must be in [0, 1), got {momentum}; 1 would never update a slot."
            )
        self.momentum = momentum
        self.eligible = one_of("eligible", eligible, ELIGIBLE)
        self.storage = one_of("storage", storage, STORAGES)
        self.search = one_of("search", search, SEARCHES)
        self._approximate_from = int(at_least_zero("approximate_from", approximate_from))
        self._rebuild_every = int(above_zero("rebuild_every", rebuild_every))
        self._seed = seed
        dtype = PRECISIONS[one_of("precision", precision, PRECISIONS)]
        if storage == "disk":
            self.vectors = _on_disk(instances, width, dtype, folder)
        else:
            self.vectors = torch.zeros(instances, width, dtype=dtype)
        if eligible == "all":
            _fill_with_noise(self.vectors, seed)
        self.register_buffer("visited", torch.zeros(instances, dtype=torch.bool))
        self.register_buffer("texts", torch.zeros(instances, dtype=torch.long))
        self.register_buffer("lengths", torch.ones(instances), persistent=False)
        self._measure()
        self._index: InvertedLists | None = None
        self._updates = 0  # since the index was built
        self._fixed_shapes: bool | None = None

    @property
    def fixed_shapes(self) -> bool:
        """Whether shapes never depend on what slots hold, so that the host has no need to wait for
        a look at them: where vectors lie on a GPU. A CPU spares itself empty slots instead."""
        if self._fixed_shapes is None:
            return self.vectors.device.type != "cpu"
        return self._fixed_shapes

    @fixed_shapes.setter
    def fixed_shapes(self, fixed: bool) -> None:
        self._fixed_shapes = fixed

    @property
    def instances(self) -> int:
        return self.vectors.size(0)

    @property
    def width(self) -> int:
        return self.vectors.size(1)

    @property
    def recall(self) -> float | None:
        """The share of true nearest slots that approximate search found in a sample, when what it
        looks into was built; `None` for exact search."""
        return None if self._index is None else self._index.recall

    # ----------------------------------------------------------------------------------- search

    @torch.no_grad()
    def nearest(
        self,
        queries: torch.Tensor,
        ids: torch.Tensor,
        k: int,
        texts: Optional[torch.Tensor] = None,
        among: Optional[torch.Tensor] = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The k slots whose cosine with a query is largest.

        # Parameters

        queries : raw `(n, d)`.
        ids : `(n,)`, their instances, whose own slots they never find.
        texts : `(n,)`, keys of their texts: slots last updated with the same key are not found.
        among : `(M,)` of booleans, the slots to look among.

        # Returns

        Slots `(n, min(k, M))`, the nearest first, and whether there was one, of the same shape:
        False where a query has fewer than k eligible slots.

        # Raises

        `ValueError` : shapes that do not fit, or ids that the bank does not have.
        """
        self._check(queries, ids, texts)
        queries = queries.to(self.lengths.dtype)
        eligible = self._eligible() if among is None else self._eligible() & among
        usable = self._usable(ids, texts, eligible)
        if k < 1 or len(ids) == 0:
            slots = ids.new_zeros(len(ids), max(0, min(k, self.instances)))
            return slots, slots.bool()
        index = None if self.fixed_shapes else self._current_index(k)
        if index is None:
            return self._exactly(queries, usable, k)
        slots, found = self._from_index(index, queries, usable, k)
        few = ~found.all(dim=1)
        if few.any():  # most candidates were ruled out, or there are no more
            theirs = None if texts is None else texts[few]
            rest = self._exactly(queries[few], self._usable(ids[few], theirs, eligible), k)
            slots[few], found[few] = rest
        return slots, found

    def _usable(
        self, ids: torch.Tensor, texts: Optional[torch.Tensor], eligible: torch.Tensor
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Which slots `(b,)` or `(n, b)` queries of these instances may find: `(n, b)`."""
        return lambda slots: self.others(slots, ids, texts) & eligible[slots]

    def usable(
        self, slots: torch.Tensor, ids: torch.Tensor, texts: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """`others`, of slots that hold something: `(n, b)`."""
        return self._usable(ids, texts, self._eligible())(slots)

    def _exactly(
        self,
        queries: torch.Tensor,
        usable: Callable[[torch.Tensor], torch.Tensor],
        k: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The best of all slots."""
        copies = self.vectors.dtype != queries.dtype or self.vectors.device != queries.device
        every = torch.arange(self.instances, device=queries.device)
        search, numbers = nearest_rows, BLOCK
        if self.fixed_shapes:
            search, numbers = nearest_rows_on_device, DEVICE_BLOCK
        return search(
            queries,
            self.lengths,
            # To the device first: it widens numbers faster than they get there.
            lambda start, stop: self.vectors[start:stop].to(queries.device).to(queries.dtype),
            lambda start, stop: usable(every[start:stop]),
            k,
            max(1, numbers // (self.width if copies else len(queries))),
        )

    def others(
        self, slots: torch.Tensor, ids: torch.Tensor, texts: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """Which of slots `(b,)` or `(n, b)` are of other instances than `ids` `(n,)`, and, where
        `texts` `(n,)` are given, of other texts: `(n, b)`."""
        others = slots != ids.unsqueeze(1)
        return others if texts is None else others & (self.texts[slots] != texts.unsqueeze(1))

    def candidates(self, among: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The slots `(c,)` that can be found, of those of `among` `(M,)`. With `fixed_shapes` those
        that hold nothing are among them: see `usable`."""
        if self.fixed_shapes:
            every = torch.arange(self.instances, device=self.visited.device)
            if among is None:
                return every
            return to_device(on_host(among).nonzero().squeeze(1), every.device)
        eligible = self._eligible() if among is None else self._eligible() & among
        return eligible.nonzero().squeeze(1)

    def rows(self, slots: torch.Tensor) -> torch.Tensor:
        """Copies `(..., d)` of slots `(...)`, on their device."""
        rows = self.vectors[self._where_vectors_are(slots)]
        return rows.to(slots.device).to(self.lengths.dtype)

    def _where_vectors_are(self, slots: torch.Tensor) -> torch.Tensor:
        return slots if slots.device == self.vectors.device else on_host(slots)

    def _eligible(self) -> torch.Tensor:
        return self.visited if self.eligible == "visited" else torch.ones_like(self.visited)

    def _current_index(self, k: int) -> InvertedLists | None:
        """What approximate search looks into, built where it is time to."""
        if self.search == "exact":
            return None
        if self._index is None or self._updates >= self._rebuild_every:
            numbers = self._eligible().nonzero().squeeze(1)
            if len(numbers) <= self._approximate_from:
                return None
            lengths = self.lengths[numbers]
            self._index = InvertedLists(numbers, lengths, self.rows, self._seed)
            self._updates = 0
            recall = self._index.tune(min(k, len(numbers)), _CANDIDATES * k)
            logger.info(
                "Approximate search among %d of %d slots finds %.1f %% of the %d nearest.",
                len(numbers),
                self.instances,
                100 * recall,
                k,
            )
        return self._index

    def _from_index(
        self,
        index: InvertedLists,
        queries: torch.Tensor,
        usable: Callable[[torch.Tensor], torch.Tensor],
        k: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The best of the candidates of an index, by what the slots hold now."""
        k = min(k, self.instances)
        found = index.candidates(queries, max(_CANDIDATES * k, k + 1))  # (n, c)
        slots = found.clamp_min(0)
        products = (self.rows(slots).to(queries) @ queries.unsqueeze(2)).squeeze(2)
        cosines = products / self.lengths[slots]  # of each query times its length
        cosines = cosines.masked_fill(~usable(slots) | (found < 0), -torch.inf)
        best, order = cosines.topk(k, dim=1)
        return slots.gather(1, order), best > -torch.inf

    # ----------------------------------------------------------------------------------- update

    @torch.no_grad()
    def update(
        self, ids: torch.Tensor, features: torch.Tensor, texts: Optional[torch.Tensor] = None
    ) -> None:
        """Move the slots `ids` `(n,)` towards raw `features` `(n, d)`; of several rows of one id
        the last counts. `texts` `(n,)` are keys of the texts they are of.

        # Raises

        `ValueError` : shapes that do not fit, or ids that the bank does not have.
        """
        self._check(features, ids, texts)
        rows = last_rows(ids)
        if rows is not None:
            ids, features = carried(torch.Tensor.__getitem__, ids, rows), features[rows]
            texts = None if texts is None else texts[rows]
        features = features.to(self.lengths.dtype)
        kept = torch.full_like(features[:, :1], self.momentum)
        if self.eligible == "visited":
            kept.mul_(self.visited[ids].unsqueeze(1))  # a first feature overwrites
        mixed = (1 - kept) * features + kept * self.rows(ids)
        largest = torch.finfo(self.vectors.dtype).max
        mixed = mixed.clamp(-largest, largest).to(self.vectors)
        self.vectors[self._where_vectors_are(ids)] = mixed
        self.lengths[ids] = _lengths(mixed).to(self.lengths)
        self.visited.index_fill_(0, ids, True)
        if texts is not None:
            self.texts[ids] = texts
        self._updates += 1

    def _check(
        self, features: torch.Tensor, ids: torch.Tensor, texts: Optional[torch.Tensor]
    ) -> None:
        if features.dim() != 2 or features.size(1) != self.width or ids.shape != features.shape[:1]:
            raise ValueError(
                f"Expected features (n, {self.width}) and ids (n,), got {tuple(features.shape)} "
                f"and {tuple(ids.shape)}."
            )
        if texts is not None and texts.shape != ids.shape:
            raise ValueError(f"Expected texts {tuple(ids.shape)}, got {tuple(texts.shape)}.")
        require_ids(ids, self.instances)

    # ----------------------------------------------------------------------------- where it lies

    def _apply(self, fn: Any, recurse: bool = True) -> "FeatureBank":
        super()._apply(fn, recurse)
        if self.storage == "memory" and self.vectors.itemsize >= 4:
            self.vectors = fn(self.vectors)
        elif self.storage == "memory":  # narrow it stays, whatever the model becomes
            self.vectors = self.vectors.to(fn(self.vectors[:0]).device)
        return self

    def get_extra_state(self) -> torch.Tensor:
        return self.vectors

    def set_extra_state(self, state: torch.Tensor) -> None:
        if state.shape != self.vectors.shape:
            raise ConfigurationError(
                f"The checkpoint has a bank {tuple(state.shape)} of instances and their width, "
                f"this one is {tuple(self.vectors.shape)}: train on the data and with the model "
                "that it was made with."
            )
        with torch.no_grad():
            self.vectors.copy_(state)
        self._measure()
        self._index = None

    def _measure(self) -> None:
        """Fill in `lengths`."""
        size = max(1, BLOCK // self.width)
        for start in range(0, self.instances, size):
            rows = self.vectors[start : start + size]
            self.lengths[start : start + size] = _lengths(rows).to(self.lengths)


def _lengths(rows: torch.Tensor) -> torch.Tensor:
    """Of rows `(b, d)`, in float32 at least; one below 1e-12 counts as 1e-12."""
    wide = rows if rows.itemsize >= 4 else rows.float()
    return torch.linalg.vector_norm(wide, dim=1).clamp_min(1e-12)


def _on_disk(instances: int, width: int, dtype: torch.dtype, folder: Optional[str]) -> torch.Tensor:
    """Zeros `(M, d)`, mapped from a file."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = os.path.join(scratch, "bank")
        rows = torch.from_file(file, shared=True, size=instances * width, dtype=dtype)
    return rows.view(instances, width)


def _fill_with_noise(vectors: torch.Tensor, seed: int) -> None:
    """Normal deviates of a generator of their own: equal in all processes."""
    generator = torch.Generator().manual_seed(seed)
    for block in vectors.split(max(1, BLOCK // vectors.size(1))):
        block.copy_(torch.randn(block.shape, generator=generator))
