"""Which tensors an objective is given: those that the arguments of its `forward` name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, NamedTuple

import torch
from allennlp.common.checks import ConfigurationError

TOKENS = ("token_vectors", "token_mask")
PROJECTIONS = ("projected_anchors", "projected_positives")
TARGETS = ("target_anchors", "target_positives")
VIEWS = ("anchors", "positives", "keys", *PROJECTIONS, *TARGETS, *TOKENS)
PAIRS = ("positives", "keys", "projected_positives", "target_positives")
"""What there is of a second view alone."""

OF_DATA = ("labels", "ids", "documents", "texts", "negatives")
"""What comes with a batch beside its two views."""

_PAIR = ("anchors", "positives")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OF_ANY_NAME = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class Inputs(NamedTuple):
    """What an objective takes."""

    positional: tuple[str, ...]
    """Views that are passed by position, because `forward` has other names for them."""

    required: dict[str, bool]
    """All names, and whether `forward` has no default for them."""


def inputs_of(objective: torch.nn.Module) -> Inputs:
    """Read off the arguments of `forward` what an objective takes.

    Objectives that were written for releases before 1.9 may give the two views any names, or
    declare by class attributes what they take: views by `compares`, `uses_projections` and
    `uses_targets`, and what comes with a batch by `needs` and `takes`.

    # Raises

    `ConfigurationError` : `forward` takes something that no model gives.
    """
    inputs = _of_signature(
        type(objective).forward, type(objective).__name__, _declared_views(objective)
    )
    needs, takes = (getattr(objective, name, None) for name in ("needs", "takes"))
    if needs is None and takes is None:
        return inputs
    views = {name: required for name, required in inputs.required.items() if name in VIEWS}
    of_data = dict.fromkeys(takes or (), False) | dict.fromkeys(needs or (), True)
    return Inputs(inputs.positional, {**views, **of_data})


def loss_of(objective: Any, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Compute an objective's loss from what it takes of `given`."""
    positional = inputs_of(objective).positional
    named = [name for name in objective.inputs if name in given and name not in positional]
    return objective(*(given[name] for name in positional), **{name: given[name] for name in named})


@cache
def _of_signature(
    forward: Callable[..., Any], owner: str, declared: tuple[str, ...] | None
) -> Inputs:
    _, *arguments = inspect.signature(forward).parameters.values()  # without `self`
    positional = _with_other_names(arguments) if declared is None else declared
    required = dict.fromkeys(positional, True)
    for place, argument in enumerate(arguments):
        if place < len(positional) and argument.kind is not Parameter.KEYWORD_ONLY:
            continue
        if argument.name in (*VIEWS, *OF_DATA):
            required[argument.name] = argument.default is argument.empty
        elif argument.default is argument.empty and argument.kind not in _OF_ANY_NAME:
            raise ConfigurationError(
                f"The forward method of {owner} takes '{argument.name}', which no model gives. "
                f"Name it as one of {', '.join((*VIEWS, *OF_DATA))}, or give it a default."
            )
    return Inputs(positional, required)


def _with_other_names(arguments: list[Parameter]) -> tuple[str, ...]:
    """The views of a pair that `forward` has names of its own for, and those before them."""
    if arguments and arguments[0].kind is Parameter.VAR_POSITIONAL:
        return _PAIR
    first = [argument for argument in arguments[:2] if argument.kind in _POSITIONAL]
    if not any(argument.name in VIEWS for argument in arguments):
        return _PAIR[: len(first)]
    known = (*VIEWS, *OF_DATA)
    other = [a.name not in known and a.default is a.empty for a in first]
    return _PAIR[: max((place for place, is_other in enumerate(other, 1) if is_other), default=0)]


def _declared_views(objective: torch.nn.Module) -> tuple[str, ...] | None:
    """The views that class attributes declare, in the order of the arguments of `forward`."""
    compares = getattr(objective, "compares", None)
    if compares == "texts":
        return ("anchors",)
    if compares == "tokens":
        return (*TOKENS, "anchors")
    if getattr(objective, "uses_projections", None) == "beside":
        return (*_PAIR, *PROJECTIONS)
    targets = getattr(objective, "uses_targets", None)
    if targets is not None:
        return (*_PAIR, *TARGETS) if targets == "both" else ("anchors", "keys")
    return _PAIR if compares == "views" else None
