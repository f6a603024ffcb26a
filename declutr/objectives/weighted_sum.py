"""An objective that is the weighted sum of other objectives."""

import math
from dataclasses import dataclass
from typing import Any, Optional

import torch
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.components import registered_name
from declutr.objectives.objective import PAIRS, PROJECTIONS, TARGETS, Miner, Objective, loss_of


@dataclass(eq=False)
class WeightedObjective(FromParams):
    """A term of the objective `weighted_sum`.

    # Parameters

    objective : any objective of two views, except those that take targets of both (`byol`).
    weight : the factor of the term, 0 or above.
    name : the name of the term in `last_terms`. By default it is the registered name of the
        objective, with a number if an earlier term has the same name.

    # Raises

    `ConfigurationError` : if the weight is negative or not finite, or if the objective cannot be a
        term.
    """

    objective: Objective
    weight: float = 1.0
    name: Optional[str] = None

    def __post_init__(self) -> None:
        kind, inputs = type(self.objective).__name__, self.objective.inputs
        if not 0 <= self.weight < math.inf:
            raise ConfigurationError(f"weight must be a number of 0 or above, got {self.weight}.")
        if not any(name in PAIRS for name in inputs):
            raise ConfigurationError(
                f"weighted_sum adds objectives of two views, which {kind} is not. Remove it."
            )
        if any(name in TARGETS for name in inputs):
            raise ConfigurationError(
                f"weighted_sum adds objectives of two views alone; {kind} compares with targets "
                "of both. Use it by itself."
            )


@Objective.register("weighted_sum")
class WeightedSum(Objective):
    """A weighted sum of several objectives of the same two views.

    The loss is `sum_i weight_i objective_i(views)`. After a step `last_terms` has the value of each
    term, detached and without its weight, and `last_metrics` what terms report besides: with the
    name of the term before it where an earlier term reports the same. If one objective takes
    projections beside embeddings (`scd`), so does the sum; the other objectives then get
    projections only, as they do outside of a sum. All other tensors go to the objectives that take
    them.

    # Parameters

    objectives : the terms: `[{"weight": 1.0, "objective": {"type": ...}}, ...]`.

    # Raises

    `ConfigurationError` : if there are no terms, if two terms are given the same name, or if terms
        take groups of different numbers of pairs (`contrastive_tension` beside another objective)
        or embeddings of different widths.
    """

    def __init__(self, objectives: list[WeightedObjective]) -> None:
        super().__init__()
        if not objectives:
            raise ConfigurationError("weighted_sum needs at least one objective, got none.")
        self.names = _names(objectives)
        self.weights = [term.weight for term in objectives]
        self.objectives = torch.nn.ModuleList(term.objective for term in objectives)
        groups = {term.objective.group for term in objectives}
        if len(groups) > 1:
            raise ConfigurationError(
                f"The terms of a weighted_sum take groups of {sorted(groups)} pairs, expected "
                "equal numbers: contrastive_tension goes with no other objective."
            )
        self.group = groups.pop()
        self.min_pairs = max(term.objective.min_pairs for term in objectives)
        self.min_consecutive = max(term.objective.min_consecutive for term in objectives)
        self.same_texts = any(term.objective.same_texts for term in objectives)
        self.embedding_size = _common_size(objectives)
        self._inputs: dict[str, bool] = {}
        for term in objectives:
            for name, required in term.objective.inputs.items():
                self._inputs[name] = required or self._inputs.get(name, False)
        self.last_terms: dict[str, Tensor] = {}
        self.last_metrics: dict[str, Tensor] = {}

    @property
    def instances(self) -> int | None:
        """The number of places of the smallest memory of a term, or `None` if none has one."""
        return getattr(self._smallest, "instances", None)

    @property
    def more_room(self) -> str | None:
        """The advice of the term with that memory for data with more rows, or `None`."""
        return getattr(self._smallest, "more_room", None)

    @property
    def _smallest(self) -> Any:
        """The term with the smallest memory, or `None`."""
        limited = [one for one in self.objectives if getattr(one, "instances", None) is not None]
        return min(limited, key=lambda one: int(one.instances), default=None)  # type: ignore[arg-type]

    @property
    def inputs(self) -> dict[str, bool]:
        """The tensors that any term takes, each required if a term requires it."""
        return dict(self._inputs)

    def forward(  # type: ignore[override]
        self,
        anchors: Tensor,
        positives: Tensor | None = None,
        projected_anchors: Tensor | None = None,
        projected_positives: Tensor | None = None,
        **others: Tensor,
    ) -> Tensor:
        views = (anchors, positives, projected_anchors, projected_positives)
        names = ("anchors", "positives", *PROJECTIONS)
        given = {name: view for name, view in zip(names, views, strict=True) if view is not None}
        given |= others
        values = [
            loss_of(objective, given if _takes_both(objective) else _projected(given))
            for objective in self.objectives
        ]
        terms = zip(self.names, values, strict=True)
        self.last_terms = {name: value.detach() for name, value in terms}
        self.last_metrics = {}
        for term, objective in zip(self.names, self.objectives, strict=True):
            for name, value in getattr(objective, "last_metrics", {}).items():
                own = f"{term}_{name}" if name in self.last_metrics else name
                self.last_metrics[own] = value
        weighted = [w * value for w, value in zip(self.weights, values, strict=True)]
        return torch.stack(weighted).sum()

    def attach_miner(self, miner: Miner) -> None:
        """Attach `miner` to the objective of every term.

        # Raises

        `ConfigurationError` : if one of the objectives takes no miner.
        """
        for objective in self.objectives:
            assert isinstance(objective, Objective)
            objective.attach_miner(miner)

    def require_embeddings(self, width: int, projected: bool, concatenated: bool) -> None:
        """Raise if the objective of a term cannot be of the embeddings of a model."""
        for objective in self.objectives:
            assert isinstance(objective, Objective)
            objective.require_embeddings(width, projected, concatenated)

    def follow_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the objective of every term follow an optimizer."""
        for objective in self.objectives:
            assert isinstance(objective, Objective)
            objective.follow_optimizer(optimizer)


def _takes_both(objective: torch.nn.Module) -> bool:
    assert isinstance(objective, Objective)
    return any(name in PROJECTIONS for name in objective.inputs)


def _projected(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace embeddings by projections, and use positives as keys if there are no keys."""
    views = {
        name: given.get(f"projected_{name}", given[name])
        for name in ("anchors", "positives")
        if name in given
    }
    keys = {"keys": views["positives"]} if "positives" in views else {}
    return keys | given | views


def _common_size(terms: list[WeightedObjective]) -> int | None:
    """Return the `embedding_size` of the terms that have one; raise if these differ."""
    sizes = {term.objective.embedding_size for term in terms} - {None}
    if len(sizes) > 1:
        raise ConfigurationError(
            f"The terms of a weighted_sum have embedding_size {sorted(map(str, sizes))}, expected "
            "one, the width of what the model gives them."
        )
    return next(iter(sizes), None)


def _names(terms: list[WeightedObjective]) -> list[str]:
    """Return a name for each term, in order, no two of them equal."""
    names: list[str] = []
    for term in terms:
        if term.name is not None and term.name in names:
            raise ConfigurationError(f"Two terms are called '{term.name}': rename one of them.")
        kind = type(term.objective)
        wanted = term.name or registered_name(Objective, kind) or kind.__name__
        name, number = wanted, 1
        while name in names:
            number += 1
            name = f"{wanted}_{number}"
        names.append(name)
    return names
