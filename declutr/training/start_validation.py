"""How good a model is before it is trained, so that a run that makes it worse does not pass unseen.

AllenNLP validates after epochs alone, and archives the best of those, whatever the start was.
"""

from __future__ import annotations

from contextlib import ExitStack

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import GradientDescentTrainer
from allennlp.training.metric_tracker import MetricTracker
from allennlp.training.util import get_metrics

from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.row_reader import RowReader
from declutr.training.model_in_training import undisturbed

_SEED = 13370


def validated(trainer: GradientDescentTrainer) -> dict[str, float]:
    """The metrics of a pass over the validation data, with the weights as they are.

    Those of a moving average, where there is one. Training goes on as if it had not happened:
    random numbers, modes and running metrics are what they were, other callbacks see nothing of it,
    and the first epoch draws the same training and validation data, also where AllenNLP's own
    loaders share a reader. All processes take part.
    """
    loader = trainer._validation_data_loader
    readers = [getattr(loader, "reader", None), *getattr(loader, "readers", {}).values()]
    callbacks, trainer._callbacks = trainer._callbacks, []
    try:
        with ExitStack() as stack:
            for reader in readers:
                if isinstance(reader, RowReader):
                    stack.enter_context(reader.same_epoch_after())
            stack.enter_context(undisturbed(trainer.model, trainer.cuda_device, _SEED))
            stack.enter_context(torch.no_grad())
            loss, penalty, batches = trainer._validation_loss(0)
            return get_metrics(
                trainer.model,
                dist_reduce_sum(loss),
                None if penalty is None else dist_reduce_sum(penalty),
                batch_loss=None,
                batch_reg_loss=None,
                num_batches=dist_reduce_sum(batches),
                reset=True,
            )
    finally:
        trainer._callbacks = callbacks
        if isinstance(loader, DeCLUTRDataLoader):
            loader.begin_at(0)


def no_better_than(tracker: MetricTracker, start: dict[str, float]) -> str | None:
    """What to tell of a run whose best epoch is no better than its start, if it is not.

    # Parameters

    tracker : of all epochs.
    start : metrics of validation before the first step; where the `validation_metric` is not among
        them, nothing is told.
    """
    if tracker._best_so_far is None:
        return None
    try:  # that of the class itself: a subclass may add metrics of now
        at_the_start = MetricTracker.combined_score(tracker, start)
    except ConfigurationError:
        return None
    if not tracker._best_so_far <= at_the_start:  # nor if one of them is not a number
        return None
    figures = " and ".join(
        f"{name} was {start[name]:.6g} at the start and {tracker.best_epoch_metrics[name]:.6g} "
        "after the best epoch"
        for _, name in tracker.tracked_metrics
        if name in tracker.best_epoch_metrics
    )
    return (
        f"On the validation data {figures} ({tracker.best_epoch}): this run did not improve the "
        "model. The archive holds the weights of that epoch all the same. Look at the learning "
        "rate and the data. (Against a memory that fills while training, a loss begins low.)"
    )
