"""What AllenNLP's metrics have counted so far, to be saved with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from allennlp.training.metrics import Metric


class _NotPlain(Exception):
    """A value that a checkpoint cannot hold, or that would not be read back unasked."""


def metric_states(model: torch.nn.Module) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The states of all `Metric` objects that the modules of a model have, and what is left out.

    Metrics are found as attributes, and in lists, dictionaries and other metrics.

    # Returns

    states : numbers, texts, tensors and collections of them, by the place of a metric and the name
        of its attribute.
    left_out : attributes that are nothing of the kind; functions do not count.
    """
    states: dict[str, dict[str, Any]] = {}
    left_out = []
    for place, metric in _metrics(model):
        states[place] = {}
        for name, value in vars(metric).items():
            try:
                states[place][name] = _saved(value)
            except _NotPlain:
                if not isinstance(value, Metric) and not callable(value):
                    left_out.append(f"{place}.{name}")
    return states, left_out


def load_metric_states(
    model: torch.nn.Module, states: dict[str, dict[str, Any]], device: torch.device
) -> None:
    """Let the metrics of a model go on from their `metric_states`.

    Tensors that were not in main memory come to `device`.
    """
    for place, metric in _metrics(model):
        for name, value in states.get(place, {}).items():
            now, before = getattr(metric, name, None), _loaded(value, device)
            if isinstance(now, dict) and isinstance(before, dict):  # it may have a default
                now.clear()
                now.update(before)
            elif isinstance(now, (set, tuple)) and isinstance(before, list):
                setattr(metric, name, type(now)(before))
            else:
                setattr(metric, name, before)


def _metrics(model: torch.nn.Module) -> Iterator[tuple[str, Metric]]:
    """Each once, with its place."""
    known: set[int] = set()
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            for place, metric in _inside(value, f"{prefix}.{name}" if prefix else name):
                if id(metric) not in known:
                    known.add(id(metric))
                    yield place, metric


def _inside(value: Any, place: str) -> Iterator[tuple[str, Metric]]:
    if isinstance(value, Metric):
        yield place, value
        value = vars(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _inside(inner, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _inside(inner, f"{place}.{number}")


def _saved(value: Any) -> Any:
    """A copy that `torch.load` reads unasked; tensors of a device become tuples of one."""
    if torch.is_tensor(value):
        copied = value.detach().to("cpu", copy=True)
        return copied if value.device.type == "cpu" else (copied,)
    if isinstance(value, dict):
        return {_saved(key): _saved(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_saved(inner) for inner in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise _NotPlain


def _loaded(value: Any, device: torch.device) -> Any:
    if isinstance(value, tuple):
        return value[0].to(device)
    if isinstance(value, dict):
        return {key: _loaded(inner, device) for key, inner in value.items()}
    if isinstance(value, list):
        return [_loaded(inner, device) for inner in value]
    return value
