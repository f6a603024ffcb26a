"""An objective of several prefixes of embeddings, so that dimensions can be cut after training."""

import copy
import math
from typing import Any, Optional

import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.objective import VIEWS, Miner, Objective, loss_of

_CUT = (*(name for name in VIEWS if name != "token_mask"), "negatives")
"""The inputs that are embeddings, whose last dimension is cut."""

_OF_WHOLE = (
    *("min_pairs", "min_consecutive", "embedding_size", "same_texts", "group"),
    *("more_room", "of_every_row", "temperature", "reduction"),
)
"""What a model asks an objective for, and the wrapped one answers."""


@Objective.register("matryoshka")
class Matryoshka(Objective):
    """The sum of an objective over the whole embedding and over prefixes of it.

    The loss is `L(z) + sum_k c_k L_k(z[1..m_k])` (Kusupati et al., 2022, equation 1, whose sizes
    include that of the whole). The first dimensions of an embedding then work alone
    (`truncate_dim` of `Encoder`, `--truncate-dim` of commands). L and every L_k are objectives of
    the same settings, each with a state of its own: a queue or memory bank holds the prefixes that
    it is for, and a learned temperature or classifier is learned for each size. After a step
    `last_terms` has the value of each, detached and without its weight: `whole`, `dimension_64`.

    Prefixes are of embeddings; with a projection head, an objective sees projections alone, which
    the model refuses, as it does two encoders.

    # Parameters

    loss : the configuration of the wrapped objective, any but `deep_cluster` and `matryoshka`. Its
        `embedding_size`, where it has one, is that of the whole embedding.
    dimensions : the sizes m_k of the prefixes, each at least 1 and below the size of the whole.
    weights : the weights c_k, 0 or above; by default 1 each, as in the paper.

    # Raises

    `ConfigurationError` : there are no sizes or two equal ones, weights are not as many, a number
        is out of range, or the wrapped objective is one of those two.
    """

    def __init__(
        self, loss: dict[str, Any], dimensions: list[int], weights: Optional[list[float]] = None
    ) -> None:
        super().__init__()
        if not dimensions or min(dimensions) < 1 or len(set(dimensions)) < len(dimensions):
            raise ConfigurationError(
                "dimensions must be the sizes of prefixes, each at least 1 and named once, got "
                f"{dimensions}."
            )
        weights = [1.0] * len(dimensions) if weights is None else weights
        if len(weights) != len(dimensions) or not all(0 <= one < math.inf for one in weights):
            raise ConfigurationError(
                f"weights must be a number of 0 or above for each of {dimensions}, got {weights}."
            )
        self.dimensions = dimensions
        self.weights = weights
        self.whole = _built(loss)
        self.prefixes = torch.nn.ModuleList(_built(_resized(loss, size)) for size in dimensions)
        for name in _OF_WHOLE:
            if hasattr(self.whole, name):
                setattr(self, name, getattr(self.whole, name))
        self.last_terms: dict[str, Tensor] = {}

    @property
    def inputs(self) -> dict[str, bool]:
        """The tensors that the wrapped objective takes."""
        return self.whole.inputs

    @property
    def instances(self) -> int | None:
        """The number of places of the wrapped objective's memory, or `None` if it has none."""
        return getattr(self.whole, "instances", None)

    @property
    def last_metrics(self) -> dict[str, Tensor]:
        """The metrics of the wrapped objective over the whole embedding."""
        return getattr(self.whole, "last_metrics", {})

    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor | None = None, **others: Tensor
    ) -> Tensor:
        second = {} if positives is None else {"positives": positives, "keys": positives}
        given = {"anchors": anchors, **second, **others}
        self.require_embeddings(anchors.size(-1))
        values = [loss_of(self.whole, given)]
        for objective, size in zip(self.prefixes, self.dimensions, strict=True):
            values.append(loss_of(objective, _first(size, given)))
        names = ["whole", *(f"dimension_{size}" for size in self.dimensions)]
        terms = zip(names, values, strict=True)
        self.last_terms = {name: value.detach() for name, value in terms}
        weighted = [one * value for one, value in zip([1, *self.weights], values, strict=True)]
        return torch.stack(weighted).sum()

    def attach_miner(self, miner: Miner) -> None:
        """Attach `miner` to the wrapped objective of every size, or raise if it takes none."""
        for objective in (self.whole, *self.prefixes):
            objective.attach_miner(miner)  # type: ignore[operator]

    def require_embeddings(
        self, width: int, projected: bool = False, concatenated: bool = False
    ) -> None:
        """Raise unless embeddings are wider than all prefixes, and the loss is of them alone."""
        if projected:
            raise ConfigurationError(
                "matryoshka takes prefixes of embeddings, and behind a head or feedforward there "
                "are projections: remove it, or take the wrapped loss alone."
            )
        if concatenated:
            raise ConfigurationError(
                "matryoshka takes prefixes of embeddings, and with two_encoders they are of the "
                "first encoder alone: remove two_encoders, or take the wrapped loss alone."
            )
        if max(self.dimensions) >= width:
            raise ConfigurationError(
                f"matryoshka has prefixes of {self.dimensions} dimensions, and embeddings have "
                f"{width}: remove sizes from {width} on. The whole embedding is a term by itself."
            )

    def follow_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the wrapped objective of every size follow an optimizer."""
        for objective in (self.whole, *self.prefixes):
            objective.follow_optimizer(optimizer)  # type: ignore[operator]


def _first(size: int, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs of an objective with embeddings cut to their first dimensions."""
    return {name: one[..., :size] if name in _CUT else one for name, one in given.items()}


def _resized(settings: Any, size: int) -> Any:
    """Return a configuration with every `embedding_size`, however deep, set to a size."""
    if isinstance(settings, list):
        return [_resized(one, size) for one in settings]
    if not isinstance(settings, dict):
        return settings
    return {
        name: size if name == "embedding_size" else _resized(one, size)
        for name, one in settings.items()
    }


def _built(settings: dict[str, Any]) -> Objective:
    """Return a new objective of a configuration; raise if it cannot be wrapped."""
    objective = Objective.from_params(Params(copy.deepcopy(settings)))
    for one in objective.modules():
        reason = None
        if getattr(one, "needs_clusters", False):
            reason = "has clusters of whole embeddings"
        elif isinstance(one, Matryoshka):
            reason = "cuts embeddings itself"
        if reason is not None:
            raise ConfigurationError(
                f"matryoshka cannot wrap an objective with a {type(one).__name__}, which {reason}."
            )
    return objective
