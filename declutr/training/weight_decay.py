"""Exclusion of biases and of normalisation parameters from weight decay.

Names do not tell which parameters belong to a normalisation: the gains of a batch normalisation in
a projector are called `layers.1.weight`, and those of Flaubert's layers `layer_norm1.0.weight`. The
types of the modules do. AllenNLP gives optimizers names and parameters only. So `declutr.bridge`
says which model a trainer is being built for, and replaces `UNDECAYED` in the `parameter_groups` of
any optimizer by a regular expression.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError

from declutr.bridge.undecayed import UNDECAYED, optimized_model, optimizing

__all__ = ["UNDECAYED", "normalisation_parameters", "optimizing", "with_undecayed"]

# The class names of normalisations in torch and transformers, such as LayerNorm, BatchNorm1d,
# T5LayerNorm, EuroBertRMSNorm, NoNorm, ...
_NORMALISATION = re.compile(r"norm(\dd)?$", re.IGNORECASE)


def normalisation_parameters(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """Return the parameters that belong directly to the normalisation modules of a model."""
    return {
        parameter
        for module in model.modules()
        if any(_NORMALISATION.search(kind.__name__) for kind in type(module).__mro__)
        for parameter in module.parameters(recurse=False)
    }


def with_undecayed(
    groups: Sequence[Any], parameters: Sequence[tuple[str, torch.nn.Parameter]]
) -> list[Any]:
    """Return parameter groups with a regular expression in place of each `UNDECAYED`.

    The regular expression matches all parameters with `bias` in their name, and those of the
    normalisations of the model that `optimizing` names.

    # Parameters

    groups : AllenNLP's `parameter_groups`, pairs of regular expressions and settings.
    parameters : the names and parameters that the optimizer is built for.

    # Raises

    `ConfigurationError` : `UNDECAYED` is used outside of the context `optimizing`.
    """
    if not any(UNDECAYED in patterns for patterns, _ in groups):
        return list(groups)
    model = optimized_model()
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
