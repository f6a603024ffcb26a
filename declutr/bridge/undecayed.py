"""Additions to AllenNLP's optimizers: parameter groups without weight decay by types of modules.

They do not work around a change of a library, but are applied in the same way and switched off
together with the bridge. Each function takes a module of AllenNLP right after its body ran.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

# A module of a package that builds on the bridge, imported only when a group names `UNDECAYED`.
WEIGHT_DECAY = "declutr.training.weight_decay"

UNDECAYED = "@norms_and_biases"
"""A stand-in for a regular expression in `parameter_groups`: all parameters without decay."""

_model: ContextVar[Any] = ContextVar("model", default=None)


@contextmanager
def optimizing(model: Any) -> Iterator[None]:
    """Say in a context that optimizers are built for the parameters of a model."""
    token = _model.set(model)
    try:
        yield
    finally:
        _model.reset(token)


def optimized_model() -> Any:
    """Return the model that `optimizing` names, or `None` outside of it."""
    return _model.get()


def groups_by_module(module: ModuleType) -> None:
    """Let `parameter_groups` of an optimizer exclude modules from weight decay by their type.

    See `declutr.training.weight_decay`. The optimizer "multi" is patched as well, because it
    matches patterns itself before the optimizers inside it see them.

    Can be removed when AllenNLP gives optimizers the model.
    """

    def resolved(groups: Any, model_parameters: Any) -> Any:
        if not any(UNDECAYED in patterns for patterns, _ in groups or ()):
            return groups
        return importlib.import_module(WEIGHT_DECAY).with_undecayed(groups, model_parameters)

    @replaces(module)
    def make_parameter_groups(original: Any, model_parameters: Any, groups: Any = None) -> Any:
        return original(model_parameters, resolved(groups, model_parameters))

    @replaces(module.MultiOptimizer)
    def __init__(
        original: Any, self: Any, model_parameters: Any, optimizers: Any, parameter_groups: Any
    ) -> None:
        original(self, model_parameters, optimizers, resolved(parameter_groups, model_parameters))


def optimized_models(module: ModuleType) -> None:
    """Make the model known while a trainer, and with it the optimizer, is being built for it.

    `groups_by_module` needs the model. Can be removed together with that switch.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with optimizing(model):
            return original(cls, model, *args, **kwargs)
