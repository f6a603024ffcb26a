"""Which callbacks look at the metrics of a step, so that others need not wait for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from allennlp.training import TrainerCallback
from allennlp.training.callbacks import (
    ConfidenceChecksCallback,
    ConsoleLoggerCallback,
    ShouldValidateCallback,
    TrackEpochCallback,
)
from allennlp.training.callbacks.log_writer import LogWriterCallback

logger = logging.getLogger(__name__)

_BLIND = (
    TrainerCallback,
    ConsoleLoggerCallback,
    ConfidenceChecksCallback,
    ShouldValidateCallback,
    TrackEpochCallback,
)
"""Whose `on_batch` does not look at metrics."""


_OF_LOG_WRITERS = ("on_batch", "log_batch", "_should_log_this_batch")
"""What decides when a log writer looks."""


def may_look(callback: TrainerCallback) -> bool:
    """Whether `on_batch` of a callback may look at metrics or the norm of gradients, in any step.

    Its class can say so itself, by an attribute `looks_at_metrics`, which counts for the `on_batch`
    that it has then: a subclass with another one has to say so again.
    """
    for cls in type(callback).__mro__:
        if "looks_at_metrics" in vars(cls):
            return vars(cls)["looks_at_metrics"]
        if "on_batch" in vars(cls):
            return cls not in _BLIND
    return False


def looks_always(callback: TrainerCallback) -> bool:
    """Whether a callback that may look has to be taken to look at every step; AllenNLP's log
    writers look at their interval only."""
    cls, known = type(callback), LogWriterCallback
    own = (getattr(cls, name) is not getattr(known, name, None) for name in _OF_LOG_WRITERS)
    return not isinstance(callback, known) or any(own)


def looks_now(callback: TrainerCallback) -> bool:
    """Whether one that may look does so in the step that was just taken."""
    return looks_always(callback) or callback._should_log_this_batch()  # type: ignore[attr-defined]


def tell_of_waits(callbacks: Iterable[TrainerCallback]) -> None:
    """Log which of those that may look make the host wait at every step."""
    names = [type(callback).__name__ for callback in callbacks if looks_always(callback)]
    if names:
        logger.info(
            "At every step the host waits for the device, as %s may look at metrics. Where that is "
            "not so, give the class an attribute looks_at_metrics = False.",
            " and ".join(names),
        )
