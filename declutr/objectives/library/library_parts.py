"""Construction of losses, miners and other parts of pytorch-metric-learning from their names."""

import difflib
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.bridge.deferral import scipy_stats

# The library imports `scipy.stats` for one function that nothing here calls. The import is slow, so
# it is deferred until something uses it.
with scipy_stats():
    from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

FAMILIES: dict[str, ModuleType] = {
    "loss": losses,
    "miner": miners,
    "distance": distances,
    "reducer": reducers,
    "regularizer": regularizers,
}

_CLASS_WEIGHTS = (
    "it learns weights for each class, and there are no classes: labels number the pairs of a "
    "batch and mean another text in the next"
)
_WITH_CLASS_WEIGHTS = (
    *("ArcFaceLoss", "CosFaceLoss", "LargeMarginSoftmaxLoss", "ManifoldLoss"),
    *("NormalizedSoftmaxLoss", "P2SGradLoss", "ProxyAnchorLoss", "ProxyNCALoss"),
    *("SoftTripleLoss", "SphereFaceLoss", "SubCenterArcFaceLoss", "ClassWeightedReducer"),
)
_WEIGHT_REGULARIZER = (
    "it is for the weights of classes, and there are no classes; as an embedding_regularizer take "
    "LpRegularizer or ZeroMeanRegularizer"
)
REFUSED: dict[str, str] = {
    **dict.fromkeys(_WITH_CLASS_WEIGHTS, _CLASS_WEIGHTS),
    **dict.fromkeys(
        ("CenterInvariantRegularizer", "RegularFaceRegularizer", "SparseCentersRegularizer"),
        _WEIGHT_REGULARIZER,
    ),
    "BatchedDistance": "it hands distances to a callback and returns none",
    "CrossBatchMemory": (
        "its position is lost when training is resumed; the objective 'cross_batch_memory' keeps it"
    ),
    "DoNothingReducer": "it returns no scalar",
    "DynamicSoftMarginLoss": (
        "its histogram keeps the graph of earlier batches, so that the second step fails, and is "
        "lost when training is resumed"
    ),
    "EmbeddingsAlreadyPackagedAsTriplets": "rows come as anchors and after them positives",
    "HistogramLoss": (
        "it fails, one past the end of its histogram, as soon as two rows point the same way"
    ),
}


def names(family: str) -> list[str]:
    """Return the names of the classes of a family, of `FAMILIES`, that can be used here, sorted."""
    return sorted(
        name
        for name, part in vars(FAMILIES[family]).items()
        if inspect.isclass(part)
        and issubclass(part, torch.nn.Module)
        and not _is_base(name)
        and name not in REFUSED
    )


def _is_base(name: str) -> bool:
    """Return whether a class is only a base of other classes and of no use by itself."""
    return name.startswith("Base") or name.endswith("Mixin") or name == "GenericPairLoss"


def built(family: str, name: str, arguments: Mapping[str, Any] | None) -> Any:
    """Build a part of pytorch-metric-learning, such as a loss or a miner, from its name.

    # Parameters

    family : a key of `FAMILIES`.
    name : the name of a class of that family.
    arguments : the arguments of its constructor. A value `{"class": name, argument: ...}`, at any
        depth, is built as a part of any family.

    # Raises

    `ConfigurationError` : if there is no such class, if it cannot be used here, or if its
        constructor does not take the arguments.
    """
    return _made(_resolved(name, [family]), arguments or {})


def _made(part: type, arguments: Mapping[str, Any]) -> Any:
    values = {key: _value(value) for key, value in arguments.items()}
    _check_arguments(part, values)
    try:
        return part(**values)
    except Exception as error:  # The library raises AssertionError and Exception, too.
        given = arguments.as_dict(quiet=True) if isinstance(arguments, Params) else arguments
        raise ConfigurationError(
            f"{part.__name__} cannot be made with {given}: {error or type(error).__name__}"
        ) from error


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "class" not in value:
        return {key: _value(item) for key, item in value.items()}
    arguments = {key: item for key, item in value.items() if key != "class"}
    return _made(_resolved(str(value["class"]), list(FAMILIES)), arguments)


def _resolved(name: str, families: list[str]) -> type:
    """Return the class called `name` of one of the families, or raise if none can be used."""
    for family in families:
        if name in names(family):
            return getattr(FAMILIES[family], name)
    if name in REFUSED and any(hasattr(FAMILIES[family], name) for family in families):
        raise ConfigurationError(
            f"{name} of pytorch-metric-learning cannot be used here: {REFUSED[name]}."
        )
    known = [known for family in families for known in names(family)]
    kind = families[0] if len(families) == 1 else "class"
    raise ConfigurationError(
        f"pytorch-metric-learning has no {kind} '{name}'. {_suggestion(name, known)}"
    )


def _check_arguments(part: type, values: Mapping[str, Any]) -> None:
    if values.get("num_classes") is not None:
        raise ConfigurationError(
            f"{part.__name__} cannot be used with num_classes: {_CLASS_WEIGHTS}."
        )
    known = _argument_names(part)
    for name in values:
        if name not in known:
            raise ConfigurationError(
                f"{part.__name__} takes no argument '{name}'. {_suggestion(name, known)}"
            )


def _argument_names(part: type) -> list[str]:
    """Return the arguments of a constructor and of those that it passes further arguments to."""
    found: dict[str, None] = {}
    for owner in part.__mro__[: part.__mro__.index(torch.nn.Module)]:
        for name, parameter in inspect.signature(owner).parameters.items():
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                found[name] = None
    return list(found)


def _suggestion(name: str, known: list[str]) -> str:
    lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), lower, cutoff=0.6)
    meant = f"Did you mean {' or '.join(lower[match] for match in close)}? " if close else ""
    return f"{meant}Known: {', '.join(known)}."
