"""Several objectives as one."""

import math
from collections.abc import Iterable
from typing import Optional

import torch
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError

from declutr.components import registered_name
from declutr.objectives.miner import Miner
from declutr.objectives.objective import VIEWS, Objective


class WeightedObjective(FromParams):
    """A term of `weighted_sum`.

    # Parameters

    objective : any objective of two views and nothing else (not `byol`).
    weight : its factor, 0 or above.
    name : in `last_terms`; without it the registered name, numbered where it comes again.
    """

    def __init__(
        self, objective: Objective, weight: float = 1.0, name: Optional[str] = None
    ) -> None:
        if not 0 <= weight < math.inf:
            raise ConfigurationError(f"weight must be a number of 0 or above, got {weight}.")
        if objective.compares != VIEWS:
            raise ConfigurationError(
                f"weighted_sum adds objectives of two views, which {type(objective).__name__} is "
                "not. Remove it."
            )
        if objective.uses_targets == "both":
            raise ConfigurationError(
                f"weighted_sum adds objectives of two views alone; {type(objective).__name__} "
                "compares with targets of both. Use it by itself."
            )
        self.objective = objective
        self.weight = weight
        self.name = name


@Objective.register("weighted_sum")
class WeightedSum(Objective):
    """`sum_i weight_i objective_i(views)`.

    After a step `last_terms` holds the value of each, detached and without its weight. If one of
    them uses projections beside embeddings (`scd`), `forward` takes all four tensors; the others
    then get the projections, as they do alone. What comes with a batch goes to those that name it.

    # Parameters

    objectives : the terms: `[{"weight": 1.0, "objective": {"type": ...}}, ...]`.
    """

    def __init__(self, objectives: list[WeightedObjective]) -> None:
        super().__init__()
        if not objectives:
            raise ConfigurationError("weighted_sum needs at least one objective, got none.")
        self.names = _names(objectives)
        self.weights = [term.weight for term in objectives]
        self.objectives = torch.nn.ModuleList(term.objective for term in objectives)
        self.min_pairs = max(term.objective.min_pairs for term in objectives)
        self.needs = _named(term.objective.needs for term in objectives)
        self.takes = _named(term.objective.takes for term in objectives)
        # A momentum encoder makes the positives of all terms, or of none.
        self.uses_targets = (
            "keys" if all(term.objective.uses_targets == "keys" for term in objectives) else None
        )
        self._beside = [_uses_both(term.objective) for term in objectives]
        if any(self._beside):
            self.uses_projections = "beside"
        self.last_terms: dict[str, torch.Tensor] = {}
        self.last_metrics: dict[str, torch.Tensor] = {}

    def forward(
        self,
        anchors: torch.Tensor,
        positives: torch.Tensor,
        *projections: torch.Tensor,
        **given: torch.Tensor,
    ) -> torch.Tensor:
        views = (anchors, positives, *projections)
        values = [
            objective(*(views if beside else views[-2:]), **_wanted(objective, given))
            for objective, beside in zip(self.objectives, self._beside, strict=True)
        ]
        self.last_terms = {
            name: value.detach() for name, value in zip(self.names, values, strict=True)
        }
        self.last_metrics = {
            name: value
            for objective in self.objectives
            for name, value in getattr(objective, "last_metrics", {}).items()
        }
        weighted = [w * value for w, value in zip(self.weights, values, strict=True)]
        return torch.stack(weighted).sum()

    def attach_miner(self, miner: Miner) -> None:
        """Give the miner to every term."""
        for objective in self.objectives:
            assert isinstance(objective, Objective)
            objective.attach_miner(miner)


def _named(of_each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in of_each for name in names))


def _wanted(objective: torch.nn.Module, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    assert isinstance(objective, Objective)
    return {name: given[name] for name in objective.wants if name in given}


def _uses_both(objective: Objective) -> bool:
    return objective.uses_projections == "beside"


def _names(terms: list[WeightedObjective]) -> list[str]:
    """A different name for each term, in order.

    # Raises

    `ConfigurationError` : two terms were given the same name.
    """
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
