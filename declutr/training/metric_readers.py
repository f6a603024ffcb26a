"""Functions that tell which callbacks read the metrics of a step, for which the host waits."""

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
"""The classes whose `on_batch` does not read metrics."""


_OF_LOG_WRITERS = ("on_batch", "log_batch", "_should_log_this_batch")
"""The methods that decide when a log writer reads metrics."""


def may_look(callback: TrainerCallback) -> bool:
    """Return whether `on_batch` of a callback may read metrics or the norm of gradients.

    The class of the callback can decide this by an attribute `looks_at_metrics`. The attribute
    counts for the `on_batch` of that class: a subclass that overrides `on_batch` must set it again.
    """
    for cls in type(callback).__mro__:
        if "looks_at_metrics" in vars(cls):
            return vars(cls)["looks_at_metrics"]
        if "on_batch" in vars(cls):
            return cls not in _BLIND
    return False


def looks_always(callback: TrainerCallback) -> bool:
    """Return whether a callback for which `may_look` is true must be assumed to read every step.

    AllenNLP's log writers read at their interval only.
    """
    cls, known = type(callback), LogWriterCallback
    own = (getattr(cls, name) is not getattr(known, name, None) for name in _OF_LOG_WRITERS)
    return not isinstance(callback, known) or any(own)


def looks_now(callback: TrainerCallback) -> bool:
    """Return whether a callback for which `may_look` is true reads the metrics of the last step."""
    return looks_always(callback) or callback._should_log_this_batch()  # type: ignore[attr-defined]


def tell_of_waits(callbacks: Iterable[TrainerCallback]) -> None:
    """Log which of the callbacks that may read metrics make the host wait at every step."""
    names = [type(callback).__name__ for callback in callbacks if looks_always(callback)]
    if names:
        logger.info(
            f"At every step the host waits for the device, as {' and '.join(names)} may look at "
            "metrics. Where that is not so, give the class an attribute looks_at_metrics = False."
        )
