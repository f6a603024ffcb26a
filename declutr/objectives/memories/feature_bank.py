"""A memory bank of the features of all training instances, and the search for the nearest ones."""

import logging
from collections.abc import Callable
from functools import partial

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.memories.bank_search import BLOCK, DEVICE_BLOCK, InvertedLists, nearest_rows
from declutr.objectives.memories.instance_vectors import InstanceVectors, last_rows
from declutr.objectives.numerics import above_zero, at_least_zero, one_of
from declutr.system.host_memory import carried, on_host, to_device

logger = logging.getLogger(__name__)

ELIGIBLE = ("visited", "all")
SEARCHES = ("exact", "approximate")

_CANDIDATES = 4  # For k nearest rows, approximate search compares with this many times k rows.


class FeatureBank(InstanceVectors):
    """A memory bank with a slot for every training instance, which follows its feature.

    An update is `slot <- (1 - rho) new + rho slot` (RECLAIM, equation 7). Where the paper is silent
    or contradicts itself, this class decides: rho is 0.5 by default, as in the memories of CRD; the
    first feature of a slot overwrites it, and slots without a feature are not found; an instance
    never finds itself. Slots are not normalised, but compared by cosine. Banks of several processes
    are equal, as all processes update them with the same rows.

    # Parameters

    instances : the number M of instances in the training data.
    width : the width d of features.
    momentum : rho in [0, 1), the share of a slot that an update keeps.
    eligible : the slots that can be found: `"visited"`, those that have been updated, or `"all"`,
        as in the paper. With `"all"`, slots start as noise, of which momentum keeps a share.
    storage, folder, precision : how the vectors are stored; see `InstanceVectors`.
    search : `"exact"`, or `"approximate"`, by a faiss index on a CPU, which finds most of the
        nearest slots. In the memory of a GPU search is always exact, because that is fast.
    approximate_from : the number of eligible slots above which search is approximate.
    rebuild_every : the number of updates after which (as after a resume) the index is built anew.
    seed : the seed of the noise and of the samples that the index draws.

    # Raises

    `ConfigurationError` : if a setting makes no sense.
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
        self._updates = 0  # the number of updates since the index was built

    @property
    def recall(self) -> float | None:
        """The share of a sample's true nearest slots that the index found when built, or `None`."""
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
        """Find the k slots whose cosines with a query are largest.

        # Parameters

        queries : raw queries `(n, d)`.
        ids : the instances `(n,)` of the queries, whose own slots they never find.
        k : the number of slots to find for each query.
        texts : keys `(n,)` of the queries' texts; slots whose last key is the same are not found.
        among : a mask `(M,)` of the slots to search, by default all of them.

        # Returns

        The slots `(n, min(k, M))`, the nearest first, and a mask of the same shape that is false
        where a query has fewer than k eligible slots.

        # Raises

        `ValueError` : if shapes do not fit, or if the bank does not have an id.
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
        if few.any():  # Most candidates were ruled out, or there are no more slots to find.
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
        """Return a mask `(n, b)` of eligible slots of other instances and, if given, other texts.

        # Parameters

        slots : the slots in question, `(b,)`, or `(n, b)` if they differ between queries.
        ids, texts : the instances and texts of n queries; see `nearest`.
        eligible : a mask `(M,)` of the eligible slots, by default as the setting `eligible` says.
        """
        usable = slots != ids.unsqueeze(1)
        if texts is not None:
            usable &= self.texts[slots] != texts.unsqueeze(1)
        return usable & (self._eligible() if eligible is None else eligible)[slots]

    def candidates(self, among: Tensor | None = None) -> Tensor:
        """Return slots `(c,)` in `among` `(M,)`: eligible ones or, with `fixed_shapes`, all."""
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
        """Find the k nearest slots by comparing the queries with all slots."""
        copies = self.vectors.dtype != queries.dtype or self.vectors.device != queries.device
        every = torch.arange(self.instances, device=queries.device)
        numbers = DEVICE_BLOCK if self.fixed_shapes else BLOCK
        return nearest_rows(
            queries,
            self.lengths,
            # The dtype is changed on the device: copying narrow numbers there takes less time.
            lambda start, stop: self.vectors[start:stop].to(queries.device).to(queries.dtype),
            lambda start, stop: usable(every[start:stop]),
            k,
            max(1, numbers // (self.width if copies else len(queries))),
            numbers,
        )

    def _current_index(self, k: int) -> InvertedLists | None:
        """Return the index for approximate search, built anew if it is due, or `None`."""
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
                f"Approximate search among {len(numbers)} of {self.instances} slots finds "
                f"{100 * recall:.1f} % of the {k} nearest."
            )
        return self._index

    def _from_index(
        self, index: InvertedLists, queries: Tensor, usable: Callable[[Tensor], Tensor], k: int
    ) -> tuple[Tensor, Tensor]:
        """Find the k nearest of the candidates of an index, by the current vectors of the slots."""
        k = min(k, self.instances)
        found = index.candidates(queries, max(_CANDIDATES * k, k + 1))  # (n, c)
        slots = found.clamp_min(0)
        products = (self.rows(slots).to(queries) @ queries.unsqueeze(2)).squeeze(2)
        # The lengths of queries are left out, as they do not change the order of the slots.
        cosines = products / self.lengths[slots]
        cosines = cosines.masked_fill(~usable(slots) | (found < 0), -torch.inf)
        best, order = cosines.topk(k, dim=1)
        return slots.gather(1, order), best > -torch.inf

    @torch.no_grad()
    def update(self, ids: Tensor, features: Tensor, texts: Tensor | None = None) -> None:
        """Move the slots of instances towards new features.

        # Parameters

        ids : the instances `(n,)`. If an id is repeated, its last row counts.
        features : raw features `(n, d)`.
        texts : keys `(n,)` of their texts, equal for equal texts; see `nearest`, also for errors.
        """
        self.check(features, ids, texts)
        rows = last_rows(ids)
        if rows is not None:
            ids, features = carried(Tensor.__getitem__, ids, rows), features[rows]
            texts = None if texts is None else texts[rows]
        features = features.to(self.lengths.dtype)
        kept = torch.full_like(features[:, :1], self.momentum)
        if self.eligible == "visited":
            kept.mul_(self.visited[ids].unsqueeze(1))  # The first feature overwrites a slot.
        self.write(ids, (1 - kept) * features + kept * self.rows(ids))
        self.visited.index_fill_(0, ids, True)
        if texts is not None:
            self.texts[ids] = texts
        self._updates += 1
