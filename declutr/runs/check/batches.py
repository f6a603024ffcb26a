"""The tokens of batches, useful ones and padding, and the learning rates of the steps."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from allennlp.common import Params
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

_MOST_BATCHES = 64
_SECONDS = 10.0  # after which no further batch is drawn
_MOST_STEPS = 200_000  # of which the learning rate is computed, about a second


@dataclass(frozen=True)
class BatchTokens:
    """The tokens of one batch.

    # Parameters

    useful : the number of tokens, special ones included.
    padded : the number of places that they take in tensors.
    texts : the number of texts.
    longest : the tokens of the longest text.
    """

    useful: int
    padded: int
    texts: int
    longest: int


def drawn_batches(loader: Any, processes: int) -> tuple[list[BatchTokens], dict[str, Any]]:
    """Draw the first batches of an epoch: at most 64, and for at most 10 seconds.

    # Parameters

    loader : a data loader with a vocabulary, which gives the batches of all processes together.
    processes : the number of processes that share a batch.

    # Returns

    The tokens of the share of the first process in each batch, and the share with the most tokens.
    """
    found: list[BatchTokens] = []
    largest: dict[str, Any] = {}
    end = time.monotonic() + _SECONDS
    for whole in loader:
        batch = _share(whole, processes)
        tokens = tokens_of(batch)
        if not found or tokens.useful > max(one.useful for one in found):
            largest = batch
        found.append(tokens)
        if len(found) == _MOST_BATCHES or time.monotonic() > end:
            break
    return found, largest


def _share(batch: Any, processes: int) -> Any:
    """Return the rows of the first of several processes."""
    if processes == 1:
        return batch
    if isinstance(batch, Mapping):
        return {key: _share(value, processes) for key, value in batch.items()}
    rows = isinstance(batch, list) or (isinstance(batch, torch.Tensor) and batch.dim() > 0)
    return batch[: math.ceil(len(batch) / processes)] if rows else batch


def tokens_of(batch: Mapping[str, Any]) -> BatchTokens:
    """Return the tokens of the text fields of a batch."""
    masks = list(_masks(batch))
    lengths = [mask.flatten(0, -2).sum(dim=-1) for mask in masks]
    return BatchTokens(
        sum(int(mask.sum()) for mask in masks),
        sum(mask.numel() for mask in masks),
        sum(int((one > 0).sum()) for one in lengths),
        max((int(one.max()) for one in lengths if one.numel()), default=0),
    )


def _masks(batch: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the mask of each text field, once even if it has several indexers."""
    for value in batch.values():
        if not isinstance(value, Mapping):
            continue
        for tensors in value.values():
            if not isinstance(tensors, Mapping):
                continue
            mask = tensors.get("mask")
            if mask is None and isinstance(tensors.get("tokens"), torch.Tensor):
                mask = tensors["tokens"] != 0
            if isinstance(mask, torch.Tensor) and mask.dim() > 1:
                yield mask
                break


@dataclass(frozen=True)
class Rates:
    """The learning rate of a run.

    # Parameters

    first, peak, last : the rate of the first step, the highest one, and that of the last step.
    warm_up_steps : the number of steps before the first one with the highest rate.
    """

    first: float
    peak: float
    last: float
    warm_up_steps: int


def learning_rates(trainer: Mapping[str, Any], steps: int, epochs: int) -> Rates | None:
    """Return the learning rates of a run, as its schedule gives them; `None` if that is unknown."""
    rate = (trainer.get("optimizer") or {}).get("lr")
    schedule = trainer.get("learning_rate_scheduler")
    if not isinstance(rate, (int, float)) or rate < 0 or not steps * epochs:
        return None
    if schedule is None:
        return Rates(rate, rate, rate, 0)
    if steps * epochs > _MOST_STEPS:
        return None
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    try:
        scheduler = LearningRateScheduler.from_params(
            Params(copy.deepcopy(dict(schedule))),
            optimizer=optimizer,
            num_epochs=epochs,
            num_steps_per_epoch=steps,
        )
        rates = _rates(scheduler, optimizer, steps, epochs)
    except Exception:  # schedules of any kind; one may need groups of parameters, or metrics
        return None
    peak = max(rates)
    return Rates(rates[0], peak, rates[-1], rates.index(peak))


def _rates(scheduler: Any, optimizer: Any, steps: int, epochs: int) -> list[float]:
    rates = []
    optimizer.step()  # there is no gradient; torch warns of schedules that begin before a step
    for epoch in range(epochs):
        for step in range(steps):
            scheduler.step_batch(epoch * steps + step + 1)
            rates.append(float(optimizer.param_groups[0]["lr"]))
        scheduler.step(None)
    return rates
