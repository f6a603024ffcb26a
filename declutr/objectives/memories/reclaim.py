"""RECLAIM: pairs of features of two levels against the hardest of all training instances.

The paper is "Towards Robust and Efficient Contrastive Textual Representation Learning" (submitted
to ICLR 2021). There is no public code. Where the paper is silent or contradicts itself, this module
decides as follows, and `reclaim_losses` decides for the loss:

- Algorithm 1 updates the memory banks before it selects negatives, so that an instance would find
  its own new feature. Here banks are updated after the loss, and no instance finds itself.
- If K negatives are summed, the last bias of the critic starts at -log K: that is the logit to
  which noise contrastive estimation converges as long as nothing tells pairs from negatives.
"""

import logging
import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.memories.feature_bank import FeatureBank
from declutr.objectives.memories.instance_vectors import last_rows
from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.objectives.memories.reclaim_losses import NEGATIVES, loss_against_all, reclaim_loss
from declutr.objectives.numerics import HostCount, full_precision, one_of, scalar_reduction, unit
from declutr.objectives.objective import Objective
from declutr.system.host_memory import on_host, remember, to_device

logger = logging.getLogger(__name__)

CANDIDATES = ("bank", "batch")


@Objective.register("reclaim")
class Reclaim(Objective):
    """The RECLAIM loss of two views, each with the nearest negatives from a memory bank of its own.

    `forward(u (n, d_u), v (n, d_v), ids (n,))` computes `reclaim_loss`; ids are rows of the
    training data. Negatives have no gradient; u and v have one through all three terms. Training
    updates the banks after the loss; validation does not. Banks and critic are saved in
    checkpoints. With fewer than `num_negatives` candidates (in step 1 none), all are negatives.

    # Parameters

    instances : the number M of instances in the training data.
    embedding_size, v_embedding_size : the width d_u of anchors, and d_v of positives (if not d_u).
    num_negatives : the number K of nearest negatives of each kind. The paper has 100, 10 for small
        data, and finds 300 as good. `None` takes all candidates, block by block (an ablation).
    negatives, reduction : `"sum"` or `"mean"` over the negatives, and over the pairs.
    candidates : where negatives come from: the `"bank"`, or the `"batch"` alone (an ablation).
    candidate_share : the share of the bank drawn as candidates in each step; an ablation has 0.8.
    momentum, eligible, storage, folder, precision, search, approximate_from, rebuild_every :
        settings of the banks; see `FeatureBank`.
    critic_width, lipschitz : settings of the critic; see `Critic`.
    seed : the seed of what is drawn.

    # Raises

    `ConfigurationError` : if a setting is invalid, or if settings contradict each other.
    """

    min_pairs = 1  # The negatives come from the banks.

    steps: Tensor

    def __init__(
        self,
        instances: int,
        embedding_size: int,
        v_embedding_size: Optional[int] = None,
        num_negatives: Optional[int] = 100,
        momentum: float = 0.5,
        negatives: str = "sum",
        candidates: str = "bank",
        candidate_share: float = 1.0,
        eligible: str = "visited",
        storage: str = "memory",
        folder: Optional[str] = None,
        precision: str = "float32",
        search: str = "exact",
        approximate_from: int = 200_000,
        rebuild_every: int = 1000,
        critic_width: int = 64,
        lipschitz: bool = True,
        reduction: str = "mean",
        seed: int = 13370,
    ) -> None:
        super().__init__()
        widths = embedding_size, embedding_size if v_embedding_size is None else v_embedding_size
        if num_negatives is not None and num_negatives < 0:
            raise ConfigurationError(f"num_negatives must be 0 or more, got {num_negatives}.")
        if num_negatives is None and search == "approximate":
            raise ConfigurationError(
                "Without num_negatives all candidates are negatives, and nothing is searched: set "
                'search to "exact", or give num_negatives.'
            )
        if not 0 < candidate_share <= 1:
            raise ConfigurationError(f"candidate_share must be in (0, 1], got {candidate_share}.")
        self.instances, self.embedding_size = instances, embedding_size
        self.num_negatives = num_negatives
        self.negatives = one_of("negatives", negatives, NEGATIVES)
        self.candidates = one_of("candidates", candidates, CANDIDATES)
        if candidates == "batch" and candidate_share < 1:
            raise ConfigurationError(
                'candidate_share is a share of the bank: remove it, or set candidates to "bank".'
            )
        self.candidate_share = candidate_share
        self.reduction = scalar_reduction(reduction)
        self.critic = Critic(*widths, critic_width, lipschitz)
        drawn = round(candidate_share * (instances - 1)) if candidates == "bank" else 0
        # With all candidates of a batch their number is not known yet, and `expected` is 0.
        expected = drawn if num_negatives is None else num_negatives
        if negatives == "sum" and expected > 1:
            # From 0, a learning rate for fine-tuning would not reach the logit that the module
            # names, and the loss would only push features away from all negatives.
            torch.nn.init.constant_(self.critic.last_bias, -math.log(expected))
        self.seed = seed
        where, how = (storage, folder, precision), (search, approximate_from, rebuild_every)
        self.u_bank, self.v_bank = (
            FeatureBank(instances, width, momentum, eligible, *where, *how, seed + number)
            for number, width in enumerate(widths)
        )
        self._steps_done = HostCount(self, "steps")
        self._told_of_repeated_ids = False
        if candidates == "bank" and num_negatives is not None and num_negatives >= instances:
            logger.warning(
                f"num_negatives is {num_negatives}, but in banks of {instances} instances there "
                f"are at most {instances - 1} others: all of them are negatives. Is 'instances' "
                "the number of rows of the training data?"
            )

    @full_precision
    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, ids: Tensor, texts: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of two features of each instance, and in training update the banks.

        # Parameters

        anchors, positives, ids : u `(n, d_u)` and v `(n, d_v)`, and their instances `(n,)`.
        texts : int64 keys `(n,)`; instances with equal keys are not negatives of each other.

        # Raises

        `ValueError` : if shapes do not fit, or if the banks do not have an id.
        """
        if anchors.shape[:1] != positives.shape[:1]:
            raise ValueError(
                "Row i of both features must be of the same instance; got "
                f"{tuple(anchors.shape)} and {tuple(positives.shape)}."
            )
        remember(ids, on_host(ids))  # The host reads the ids once here, and not in each bank again.
        among = self._among()
        if self.num_negatives is None and self.candidates == "bank":
            banks, mean = (self.u_bank, self.v_bank), self.negatives == "mean"
            sum_ = loss_against_all(self.critic, anchors, positives, banks, ids, texts, among, mean)
            loss = sum_ / len(ids) if self.reduction == "mean" else sum_
        else:
            u_negatives, u_found = self._nearest(self.u_bank, anchors, ids, texts, among)
            v_negatives, v_found = self._nearest(self.v_bank, positives, ids, texts, among)
            logits = self.critic.against(anchors, positives, v_negatives, u_negatives)
            loss = reclaim_loss(*logits, v_found, u_found, self.negatives, self.reduction)
        if self.training:  # Validation must change neither the banks nor the number of steps.
            self._tell_of_repeated(ids)
            self._steps_done.advance()
            self.u_bank.update(ids, anchors.detach(), texts)
            self.v_bank.update(ids, positives.detach(), texts)
        return loss

    @property
    def last_metrics(self) -> dict[str, Tensor]:
        """The metrics of the last step: the recall of each bank that is searched approximately."""
        return {
            name: to_device(torch.tensor(bank.recall), self.steps.device)
            for name, bank in (("u_recall", self.u_bank), ("v_recall", self.v_bank))
            if bank.recall is not None
        }

    def _tell_of_repeated(self, ids: Tensor) -> None:
        """Warn once of repeated ids, which may be right: some loaders repeat rows at the end."""
        kept = None if self._told_of_repeated_ids else last_rows(ids)
        if kept is None:
            return
        self._told_of_repeated_ids = True
        logger.warning(
            f"{len(ids) - len(kept)} of {len(ids)} instances in a batch have the id of another "
            f"one, such as {int(on_host(ids).mode().values)}: they share a slot of the banks, "
            "which keeps the last of them. Give each row of the training data a number of its own."
        )

    @torch.no_grad()
    def _nearest(
        self,
        bank: FeatureBank,
        queries: Tensor,
        ids: Tensor,
        texts: Tensor | None,
        among: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the nearest negatives `(n, k, d)` and a mask `(n, k)` of those that were found."""
        queries = queries.detach()
        if self.candidates == "batch":
            k = len(ids) if self.num_negatives is None else self.num_negatives
            return _nearest_of_batch(queries, ids, texts, k)
        assert self.num_negatives is not None
        slots, found = bank.nearest(queries, ids, self.num_negatives, texts, among)
        if not bank.fixed_shapes:
            # In the first steps few slots are eligible: the columns that nobody found are dropped.
            used = int(found.sum(dim=1).max()) if found.numel() else 0
            slots, found = slots[:, :used], found[:, :used]
        return bank.rows(slots).to(queries), found

    def _among(self) -> Tensor | None:
        """Draw a mask `(M,)` of slots, alike in all processes and resumed runs; `None` for all."""
        if self.candidate_share == 1:
            return None
        generator = torch.Generator().manual_seed(self.seed + self._steps_done.value)
        drawn = torch.rand(self.u_bank.instances, generator=generator) < self.candidate_share
        return to_device(drawn, self.steps.device)


def _nearest_of_batch(
    features: Tensor, ids: Tensor, texts: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k nearest features `(n, k, d)` of other instances, and a mask of those found."""
    usable = ids.unsqueeze(1) != ids
    if texts is not None:
        usable &= texts.unsqueeze(1) != texts
    directions = unit(features)
    cosines = (directions @ directions.T).masked_fill(~usable, -torch.inf)
    best, rows = cosines.topk(min(k, len(ids)), dim=1)
    return features[rows], best > -torch.inf
