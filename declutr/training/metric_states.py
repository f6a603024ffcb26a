"""States of the AllenNLP metrics in a model, to be saved with a checkpoint."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from allennlp.training.metrics import Metric

_DEPTH = 20  # of nested collections; one that contains itself has no end
_KINDS = {kind.__name__: kind for kind in (tuple, set, frozenset, Counter, OrderedDict)}
_DEFAULTS = {
    kind.__name__: kind for kind in (bool, int, float, str, tuple, list, set, dict, Counter)
}


class _NotPlain(Exception):
    """An error for a value that cannot be saved, or would not be restored with the same type."""


def metric_states(model: torch.nn.Module) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the states of all `Metric` objects in a model, and the attributes that are left out.

    Metrics are found as attributes of modules, and inside of lists, tuples, dictionaries and other
    metrics. A state is restored with its types, or is left out; no value raises an error.

    The states are those of this process. AllenNLP's metrics exchange counts between processes in
    every call, so that they are equal in all of them; others count in their own process, and
    exchange counts in `get_metric`. In a distributed run, a checkpoint holds the states of the
    first process, and the `differing_states` of the others.

    # Returns

    states : numbers, strings, tensors and collections of them, by the place of a metric and the
        name of its attribute. `torch.load` reads them with `weights_only`.
    left_out : the attributes, except functions, that hold other values. Keys of dictionaries must
        be numbers or strings, and the factory of a `defaultdict` must be a collection or number
        type of Python.
    """
    states: dict[str, dict[str, Any]] = {}
    left_out = []
    for place, metric in _metrics(model):
        states[place] = {}
        for name, value in vars(metric).items():
            try:
                states[place][name] = _saved(value)
            except Exception:  # tensors too may raise, and must not fail a checkpoint
                if not isinstance(value, Metric) and not callable(value):
                    left_out.append(f"{place}.{name}")
    return states, left_out


def metrics_of_others(model: torch.nn.Module) -> set[str]:
    """Return the places of the metrics of a model that are not AllenNLP's.

    They may count in their own process, and exchange counts in `get_metric`.
    """
    return {
        place
        for place, metric in _metrics(model)
        if not type(metric).__module__.startswith("allennlp.")
    }


def differing_states(
    states: dict[str, dict[str, Any]], others: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return those of the first `metric_states` that are not equal to the second ones."""
    return {place: state for place, state in states.items() if not _same(state, others.get(place))}


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def load_metric_states(
    model: torch.nn.Module, states: dict[str, dict[str, Any]], device: torch.device
) -> None:
    """Restore the metrics of a model from their `metric_states`.

    # Parameters

    model : the model with the metrics.
    states : the first result of `metric_states`.
    device : the device for tensors that were not on the CPU when they were saved.
    """
    for place, metric in _metrics(model):
        for name, value in states.get(place, {}).items():
            setattr(metric, name, _loaded(value, device))


def _metrics(model: torch.nn.Module) -> Iterator[tuple[str, Metric]]:
    """Yield each metric of a model once, with its place."""
    known: set[int] = set()
    for prefix, module in model.named_modules():
        left: list[tuple[str, Any]] = [(prefix, vars(module))]
        while left:
            place, value = left.pop()
            if id(value) in known:  # values may contain themselves or each other
                continue
            known.add(id(value))
            if isinstance(value, Metric):
                yield place, value
                value = vars(value)
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            left += [
                (f"{place}.{key}" if place else str(key), one)
                for key, one in reversed(list(inner))
                if isinstance(one, (Metric, dict, list, tuple))
            ]


def _saved(value: Any, depth: int = 0) -> Any:
    """Return a copy that `torch.load` can read; a tuple names the type that it stands for."""
    if depth > _DEPTH:
        raise _NotPlain
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is torch.Tensor:
        copied = value.detach().to("cpu", copy=True)
        return copied if value.device.type == "cpu" else ("device", copied)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.itemsize <= 8:
        return "numpy", value.dtype.str, value.item()
    if kind is list:
        return [_saved(inner, depth + 1) for inner in value]
    if kind in (tuple, set, frozenset):
        return kind.__name__, [_saved(inner, depth + 1) for inner in value]
    if kind in (dict, Counter, OrderedDict, defaultdict):
        return _saved_dict(value, depth)
    raise _NotPlain


def _saved_dict(value: dict[Any, Any], depth: int) -> Any:
    if any(key is not None and type(key) not in (bool, int, float, str) for key in value):
        raise _NotPlain
    items = {key: _saved(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, defaultdict):
        default = getattr(value.default_factory, "__name__", "")
        if _DEFAULTS.get(default) is not value.default_factory:
            raise _NotPlain
        return "defaultdict", default, items
    return items if type(value) is dict else (type(value).__name__, items)


def _loaded(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {key: _loaded(inner, device) for key, inner in value.items()}
    if isinstance(value, list):
        return [_loaded(inner, device) for inner in value]
    if not isinstance(value, tuple):
        return value
    kind, *held = value
    if kind == "device":
        return held[0].to(device)
    if kind == "numpy":
        return np.dtype(held[0]).type(held[1])
    if kind == "defaultdict":
        return defaultdict(_DEFAULTS.get(held[0]), _loaded(held[1], device))
    return _KINDS[kind](_loaded(held[0], device))
