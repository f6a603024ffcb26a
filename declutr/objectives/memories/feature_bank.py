"""Features of all training instances, as each was last seen, and the nearest of them."""

import logging
from collections.abc import Callable
from functools import partial

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.checks import above_zero, at_least_zero, one_of
from declutr.objectives.memories.bank_search import BLOCK, DEVICE_BLOCK, InvertedLists, nearest_rows
from declutr.objectives.memories.instance_vectors import InstanceVectors, last_rows
from declutr.system.host_memory import carried, on_host, to_device

logger = logging.getLogger(__name__)

ELIGIBLE = ("visited", "all")
SEARCHES = ("exact", "approximate")

_CANDIDATES = 4  # approximate search compares with so many times k rows


class FeatureBank(InstanceVectors):
    """A slot for every training instance, which follows its feature (RECLAIM, equation 7).

    `slot <- (1 - rho) new + rho slot`. Where the paper is silent or contradicts itself, this is
    ours: rho is never given (0.5, as in the memories of CRD); a slot's first feature overwrites it,
    and slots without one are not found; an instance never finds itself. Slots are not normalised,
    but found by cosine.

    Banks of several processes are equal because all processes give them the same rows.

    # Parameters

    instances : M, how many the training data has.
    width : d.
    momentum : rho in [0, 1): how much of a slot stays.
    eligible : `"visited"`, or `"all"`: as the paper has it, slots start as normal noise, which
        momentum keeps a share of, and can be found from the first step on.
    storage, folder, precision : of the vectors; see `InstanceVectors`.
    search : `"exact"`, or `"approximate"`, which may find most of the nearest only: on a CPU with
        faiss, where more than `approximate_from` slots are eligible; `recall` says how many it
        finds. What it looks into is built anew every `rebuild_every` updates, and after a resume.
        Vectors in the memory of a GPU are always searched exactly, as that is fast.
    seed : of noise and samples.

    # Raises

    `ConfigurationError` : a setting that makes no sense.
    """

    visited: Tensor
    texts: Tensor

    def __init__(
        self,
        instances: int,
        width: int,
        momentum: float = 0.5,
        eligible: str = "visited",
        storage: str = "memory",
        folder: str | None = None,
        precision: str = "float32",
        search: str = "exact",
        approximate_from: int = 200_000,
        rebuild_every: int = 1000,
        seed: int = 13370,
    ) -> None:
        super().__init__(instances, width, storage, folder, precision)
        if not 0 <= momentum < 1:
            raise ConfigurationError(
                f"momentum must be in [0, 1), got {momentum}; 1 would never update a slot."
            )
        self.momentum = momentum
        self.eligible = one_of("eligible", eligible, ELIGIBLE)
        self.search = one_of("search", search, SEARCHES)
        self._approximate_from = at_least_zero("approximate_from", approximate_from)
        self._rebuild_every = above_zero("rebuild_every", rebuild_every)
        self._seed = seed
        if eligible == "all":
            self.fill_with_noise(seed)
        self.register_buffer("visited", torch.zeros(instances, dtype=torch.bool))
        self.register_buffer("texts", torch.zeros(instances, dtype=torch.long))
        self._index: InvertedLists | None = None
        self._updates = 0  # since the index was built

    @property
    def recall(self) -> float | None:
        """The share of true nearest slots that approximate search found in a sample, when what it
        looks into was built; `None` for exact search."""
        return None if self._index is None else self._index.recall

    def set_extra_state(self, state: Tensor) -> None:
        super().set_extra_state(state)
        self._index = None

    @torch.no_grad()
    def nearest(
        self,
        queries: Tensor,
        ids: Tensor,
        k: int,
        texts: Tensor | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Find the k slots whose cosine with a query is largest.

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
        self.check(queries, ids, texts)
        queries = queries.to(self.lengths.dtype)
        if k < 1 or len(ids) == 0:
            slots = ids.new_zeros(len(ids), max(0, min(k, self.instances)))
            return slots, slots.bool()
        eligible = self._eligible(among)
        usable = partial(self.usable, ids=ids, texts=texts, eligible=eligible)
        index = None if self.fixed_shapes else self._current_index(k)
        if index is None:
            return self._exactly(queries, usable, k)
        slots, found = self._from_index(index, queries, usable, k)
        few = ~found.all(dim=1)
        if few.any():  # most candidates were ruled out, or there are no more
            theirs = None if texts is None else texts[few]
            usable = partial(self.usable, ids=ids[few], texts=theirs, eligible=eligible)
            slots[few], found[few] = self._exactly(queries[few], usable, k)
        return slots, found

    def usable(
        self,
        slots: Tensor,
        ids: Tensor,
        texts: Tensor | None = None,
        eligible: Tensor | None = None,
    ) -> Tensor:
        """Tell which of slots `(b,)` or `(n, b)` are `eligible` `(M,)`, by default those that hold
        something, of other instances than `ids` `(n,)`, and, where `texts` `(n,)` are given, of
        other texts: `(n, b)`."""
        usable = slots != ids.unsqueeze(1)
        if texts is not None:
            usable &= self.texts[slots] != texts.unsqueeze(1)
        return usable & (self._eligible() if eligible is None else eligible)[slots]

    def candidates(self, among: Tensor | None = None) -> Tensor:
        """Return the slots `(c,)` that can be found, of those of `among` `(M,)`.

        With `fixed_shapes` those that hold nothing are among them: see `usable`.
        """
        if not self.fixed_shapes:
            return self._eligible(among).nonzero().squeeze(1)
        if among is None:
            return torch.arange(self.instances, device=self.visited.device)
        return to_device(on_host(among).nonzero().squeeze(1), self.visited.device)

    def _eligible(self, among: Tensor | None = None) -> Tensor:
        eligible = self.visited if self.eligible == "visited" else torch.ones_like(self.visited)
        return eligible if among is None else eligible & among

    def _exactly(
        self, queries: Tensor, usable: Callable[[Tensor], Tensor], k: int
    ) -> tuple[Tensor, Tensor]:
        """Find the best of all slots."""
        copies = self.vectors.dtype != queries.dtype or self.vectors.device != queries.device
        every = torch.arange(self.instances, device=queries.device)
        numbers = DEVICE_BLOCK if self.fixed_shapes else BLOCK
        return nearest_rows(
            queries,
            self.lengths,
            # To the device first: it widens numbers faster than they get there.
            lambda start, stop: self.vectors[start:stop].to(queries.device).to(queries.dtype),
            lambda start, stop: usable(every[start:stop]),
            k,
            max(1, numbers // (self.width if copies else len(queries))),
            numbers,
        )

    def _current_index(self, k: int) -> InvertedLists | None:
        """Return what approximate search looks into, built where it is time to."""
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
        self, index: InvertedLists, queries: Tensor, usable: Callable[[Tensor], Tensor], k: int
    ) -> tuple[Tensor, Tensor]:
        """Find the best of the candidates of an index, by what the slots hold now."""
        k = min(k, self.instances)
        found = index.candidates(queries, max(_CANDIDATES * k, k + 1))  # (n, c)
        slots = found.clamp_min(0)
        products = (self.rows(slots).to(queries) @ queries.unsqueeze(2)).squeeze(2)
        cosines = products / self.lengths[slots]  # of each query times its length
        cosines = cosines.masked_fill(~usable(slots) | (found < 0), -torch.inf)
        best, order = cosines.topk(k, dim=1)
        return slots.gather(1, order), best > -torch.inf

    @torch.no_grad()
    def update(self, ids: Tensor, features: Tensor, texts: Tensor | None = None) -> None:
        """Move the slots `ids` `(n,)` towards raw `features` `(n, d)`; of several rows of one id
        the last counts. `texts` `(n,)` are keys of the texts they are of.

        # Raises

        `ValueError` : shapes that do not fit, or ids that the bank does not have.
        """
        self.check(features, ids, texts)
        rows = last_rows(ids)
        if rows is not None:
            ids, features = carried(Tensor.__getitem__, ids, rows), features[rows]
            texts = None if texts is None else texts[rows]
        features = features.to(self.lengths.dtype)
        kept = torch.full_like(features[:, :1], self.momentum)
        if self.eligible == "visited":
            kept.mul_(self.visited[ids].unsqueeze(1))  # a first feature overwrites
        self.write(ids, (1 - kept) * features + kept * self.rows(ids))
        self.visited.index_fill_(0, ids, True)
        if texts is not None:
            self.texts[ids] = texts
        self._updates += 1
