"""Which parameters weight decay leaves alone: biases, and whatever a normalisation holds.

Names do not tell: the gains of a batch normalisation inside a projector are `layers.1.weight`,
those of Flaubert's layers `layer_norm1.0.weight`. The type of the module does. AllenNLP gives
optimizers names and parameters only, so the bridge says which model a trainer is being built for,
and lets `UNDECAYED` stand for a regular expression in the `parameter_groups` of any optimizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError

UNDECAYED = "@norms_and_biases"
"""In place of a regular expression of `parameter_groups`: all parameters of `is_undecayed`."""

_model: ContextVar[torch.nn.Module | None] = ContextVar("model", default=None)

# torch's and transformers' own: LayerNorm, BatchNorm1d, T5LayerNorm, EuroBertRMSNorm, NoNorm, ...
_NORMALISATION = re.compile(r"norm(\dd)?$", re.IGNORECASE)


@contextmanager
def optimizing(model: torch.nn.Module) -> Iterator[None]:
    """A context in which optimizers are built for the parameters of `model`."""
    token = _model.set(model)
    try:
        yield
    finally:
        _model.reset(token)


def normalisation_parameters(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """The parameters that normalisations of a model hold themselves."""
    return {
        parameter
        for module in model.modules()
        if any(_NORMALISATION.search(kind.__name__) for kind in type(module).__mro__)
        for parameter in module.parameters(recurse=False)
    }


def with_undecayed(
    groups: Sequence[Any], parameters: Sequence[tuple[str, torch.nn.Parameter]]
) -> list[Any]:
    """`parameter_groups` with a regular expression in place of each `UNDECAYED`.

    It matches the names of biases, as far as a name says `bias`, and of parameters that belong to a
    normalisation of the model (see `optimizing`).

    # Raises

    `ConfigurationError` : it is not known whose parameters these are.
    """
    if not any(UNDECAYED in patterns for patterns, _ in groups):
        return list(groups)
    model = _model.get()
    if model is None:
        raise ConfigurationError(
            f"'{UNDECAYED}' in parameter_groups goes by the modules of a model, which are known "
            "where a trainer is built from a configuration. Build this optimizer within "
            "declutr.training.weight_decay.optimizing(model), or give regular expressions."
        )
    held = normalisation_parameters(model)
    names = [re.escape(name) for name, p in parameters if "bias" in name or p in held]
    pattern = f"^(?:{'|'.join(names)})$"
    return [
        ([pattern if one == UNDECAYED else one for one in patterns], settings)
        for patterns, settings in groups
    ]
