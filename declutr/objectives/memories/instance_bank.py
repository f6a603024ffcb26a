"""Instance discrimination, in which every training instance is a class (Wu et al., 2018)."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from declutr.objectives import numerics
from declutr.objectives.memories.instance_vectors import last_rows, require_ids
from declutr.objectives.objective import Objective
from declutr.system.host_memory import to_device


@numerics.full_precision
def instance_loss(
    features: Tensor, ids: Tensor, bank: Tensor, temperature: float = 0.07, reduction: str = "mean"
) -> Tensor:
    """Compute the cross entropy of finding the instance of each feature among all instances.

    With f the feature of instance i and v the rows of the memory bank, the loss is
    `-log softmax_i(v f / tau)`, the non-parametric softmax (Wu et al., 2018, equation 2). It takes
    memory for a matrix `(N, M)`.

    # Parameters

    features : raw features `(N, d)`; they are L2-normalised here.
    ids : the rows `(N,)` of their instances in the bank.
    bank : raw rows `(M, d)`, which are L2-normalised here and get no gradient.
    temperature : tau.
    reduction : `"mean"` or `"sum"` over the N features, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    logits = _similarities(features, bank) / temperature  # (N, M)
    return numerics.reduced(cross_entropy(logits, ids, reduction="none"), reduction, features)


@numerics.full_precision
def instance_nce_loss(
    features: Tensor,
    ids: Tensor,
    bank: Tensor,
    noise: Tensor,
    log_normaliser: Tensor,
    temperature: float = 0.07,
    reduction: str = "mean",
) -> Tensor:
    """Compute the noise contrastive estimate of `instance_loss` with m instances as noise.

    With `P(i|f) = exp(v_i f / tau) / Z`, noise uniform over the M instances, and
    `h(i) = P(i|f) / (P(i|f) + m / M)`, the loss of a feature is
    `-log h(own) - sum_noise log(1 - h)` (Wu et al., 2018, equations 4 to 7).

    # Parameters

    features, ids, bank, temperature, reduction : see `instance_loss`.
    noise : ids `(m,)` of instances, drawn uniformly with replacement. All features share them,
        which does not change the expectation and needs a matrix `(N, m)` instead of `(N, m, d)`.
    log_normaliser : log Z, a constant; see `estimated_log_normaliser`.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    near_own = numerics.unit(features) * numerics.unit(bank[ids].to(features)).detach()
    near_noise = _similarities(features, bank[noise])  # (N, m)
    odds = log_normaliser.to(features) + math.log(max(noise.numel(), 1) / bank.size(0))
    own = softplus(odds - near_own.sum(dim=-1) / temperature)  # -log h
    others = softplus(near_noise / temperature - odds)  # -log(1 - h)
    return numerics.reduced(own + others.sum(dim=1), reduction, features)


@numerics.full_precision
def proximal_loss(features: Tensor, ids: Tensor, bank: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the proximal term, which keeps features near what they were an epoch ago.

    It is `|f - v|^2` of the feature f of an instance and its row v of the memory bank, both of
    length 1 (Wu et al., 2018, equation 10, there times lambda).

    # Parameters

    features, ids, bank, reduction : see `instance_loss`.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    before = numerics.unit(bank[ids].to(features)).detach()
    terms = (numerics.unit(features) - before).square().sum(dim=1)
    return numerics.reduced(terms, reduction, features)


@torch.no_grad()
@numerics.full_precision
def estimated_log_normaliser(
    features: Tensor, bank: Tensor, noise: Tensor, temperature: float = 0.07
) -> Tensor:
    """Estimate the logarithm of the normaliser Z of `instance_nce_loss`.

    The estimate is `Z = M mean_{row, noise} exp(v f / tau)` (Wu et al., 2018, equation 8).

    # Parameters

    features, bank, noise, temperature : see `instance_nce_loss`.

    # Returns

    A scalar without gradient.
    """
    logits = _similarities(features, bank[noise]) / temperature  # (N, m)
    return logits.flatten().logsumexp(dim=0) + math.log(bank.size(0) / logits.numel())


def _similarities(features: Tensor, rows: Tensor) -> Tensor:
    """Return the cosines of `features` and `rows`, with a gradient to `features` only."""
    rows = numerics.unit(rows.detach().to(features.dtype))
    return numerics.unit(features) @ rows.T


@Objective.register("instance_discrimination")
class InstanceDiscrimination(Objective):
    """The loss of telling each instance from all others with a memory bank of all instances.

    `forward(anchors (N, d), ids (N,))` takes ids instead of a second view. The loss is
    `instance_loss`, or `instance_nce_loss` with `noise`, plus `proximal * proximal_loss`, with the
    bank as it was before the step. After that, in training only, the slots of the batch are
    updated: `v <- normalise(m v + (1 - m) f)`. If an id is repeated, its last row counts. The bank
    starts with random unit vectors (those of the public code have about that length), so that the
    first epoch draws every instance in a direction of its own. Checkpoints contain the bank, Z and
    the number of steps. The noise depends on the seed and the number of training steps, so that it
    is the same after a resume and in every process.

    # Parameters

    instances : the number M of instances in the training data.
    embedding_size : the width d of embeddings.
    temperature : tau, above 0.
    momentum : m in [0, 1), the share of a slot that an update keeps.
    noise : the number of instances drawn as noise in each step; `None` for the exact softmax over
        all M instances.
    reduction : `"mean"` or `"sum"` over the rows.
    seed : the seed of the noise.
    proximal : the weight lambda of the proximal term, 0 or above. The public code has no such term,
        and averages the rows of the bank instead, which is `momentum`.
    """

    min_pairs = 1  # The negatives come from the bank.

    bank: Tensor
    log_normaliser: Tensor

    def __init__(
        self,
        instances: int,
        embedding_size: int,
        temperature: float = 0.07,
        momentum: float = 0.5,
        noise: Optional[int] = None,
        reduction: str = "mean",
        seed: int = 13370,
        proximal: float = 0.0,
    ) -> None:
        super().__init__()
        self.instances = numerics.above_zero("instances", instances)
        self.embedding_size = numerics.above_zero("embedding_size", embedding_size)
        if not 0 <= momentum < 1:
            raise ConfigurationError(f"momentum must be in [0, 1), got {momentum}.")
        if noise is not None and noise < 1:
            raise ConfigurationError(f"noise must be at least 1 draw, got {noise}.")
        self.temperature = numerics.above_zero("temperature", temperature)
        self.momentum = momentum
        self.noise = noise
        self.reduction = numerics.scalar_reduction(reduction)
        self.seed = seed
        self.proximal = numerics.at_least_zero("proximal", proximal)
        self.register_buffer(
            "bank", numerics.unit(torch.randn(instances, embedding_size))
        )  # (M, d)
        self.register_buffer("log_normaliser", torch.zeros(()))  # estimated in the first step
        self._steps_done = numerics.HostCount(self, "steps")

    def forward(  # type: ignore[override]
        self, anchors: Tensor, ids: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Compute the loss of the embeddings of instances.

        # Parameters

        anchors : raw embeddings `(N, d)`.
        ids : their instances `(N,)`.
        generator : the source of random numbers in this step, instead of the one from the seed.

        # Raises

        `ValueError` : if shapes do not fit, or if the bank does not have an id.
        """
        self._check(anchors, ids)
        if self.noise is None:
            loss = instance_loss(anchors, ids, self.bank, self.temperature, self.reduction)
        else:
            loss = self._estimated(anchors, ids, self.noise, generator)
        if self.proximal:
            loss = loss + self.proximal * proximal_loss(anchors, ids, self.bank, self.reduction)
        if self.training:  # Validation must change neither the bank nor the number of steps.
            self._steps_done.advance()
            self.update(anchors, ids)
        return loss

    def _estimated(
        self, features: Tensor, ids: Tensor, count: int, generator: torch.Generator | None
    ) -> Tensor:
        if generator is None:
            generator = torch.Generator().manual_seed(self.seed + self._steps_done.value)
        drawn = torch.randint(self.instances, (count,), generator=generator)
        noise = to_device(drawn, features.device)
        log_normaliser = self.log_normaliser
        if self._steps_done.value == 0:
            log_normaliser = estimated_log_normaliser(features, self.bank, noise, self.temperature)
            if self.training:  # Z is estimated from the first batch and then stays a constant.
                self.log_normaliser.copy_(log_normaliser)
        return instance_nce_loss(
            features, ids, self.bank, noise, log_normaliser, self.temperature, self.reduction
        )

    @torch.no_grad()
    def update(self, features: Tensor, ids: Tensor) -> None:
        """Move the slots of instances `ids` `(N,)` towards raw `features` `(N, d)`."""
        rows = last_rows(ids)
        if rows is not None:
            features, ids = features[rows], ids[rows]
        features = features.to(self.bank.dtype)
        mixed = self.momentum * self.bank[ids] + (1 - self.momentum) * numerics.unit(features)
        self.bank[ids] = numerics.unit(mixed)

    def _check(self, features: Tensor, ids: Tensor) -> None:
        count, width = self.bank.shape
        if features.dim() != 2 or features.size(1) != width or ids.shape != features.shape[:1]:
            raise ValueError(
                f"Expected features (N, {width}) and ids (N,), got {tuple(features.shape)} and "
                f"{tuple(ids.shape)}."
            )
        require_ids(ids, count)
