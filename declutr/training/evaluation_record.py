"""What evaluations while training need of a run, and what they leave in its folder."""

import os
from typing import Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.training import GradientDescentTrainer
from allennlp.training.callbacks.log_writer import LogWriterCallback

from declutr.data.row_reader import RowReader
from declutr.models.declutr import DeCLUTR
from declutr.training.evaluation_tasks import Scores

FOLDER = "evaluations"
"""Where, in the folder of a run, each evaluation is a file `step_N.json`."""


def require_parts(trainer: GradientDescentTrainer) -> None:
    """Raise a `ConfigurationError` unless there are a model and a reader that embed texts."""
    reader = getattr(trainer.data_loader, "reader", None)
    for part, expected in ((trainer.model, DeCLUTR), (reader, RowReader)):
        if not isinstance(part, expected):
            raise ConfigurationError(
                'evaluate_embeddings needs a model and a dataset reader of type "declutr"; got '
                f"{type(part).__name__} in place of {expected.__name__}."
            )


def require_scores(
    trainer: GradientDescentTrainer,
    scores: Scores,
    needed: list[str],
    tracked: list[str],
    every_num_epochs: int,
) -> None:
    """Raise a `ConfigurationError` if something is to be chosen by a score that will not be there.

    # Parameters

    scores : those that there are.
    needed : names of scores that something is chosen by.
    tracked : those among them that the trainer's `validation_metric` names.
    every_num_epochs : at the end of which epochs there are scores.
    """
    for name in needed:
        if name not in scores:
            raise ConfigurationError(
                f"There is no score '{name}' to choose by. The tasks give: "
                f"{', '.join(sorted(scores))}."
            )
    if tracked and trainer._validation_data_loader is None:
        raise ConfigurationError(
            f"validation_metric names '{tracked[0]}', but without validation_data_path the "
            "trainer does not look at it. Use select_by of evaluate_embeddings."
        )
    if tracked and every_num_epochs != 1:
        raise ConfigurationError(
            f"validation_metric names '{tracked[0]}', which the trainer wants to know after "
            f"every epoch: set every_num_epochs to 1, not {every_num_epochs}."
        )


def write_scores(
    trainer: GradientDescentTrainer, folder: Optional[str], step: int, epoch: int, scores: Scores
) -> None:
    """Give the scores of a step to the log writers of a run, and to its folder if it has one."""
    for writer in trainer._callbacks:
        if isinstance(writer, LogWriterCallback):
            writer.trainer = trainer  # its own on_start may be still to come
            writer.log_scalars(dict(scores), log_prefix="validation_scores")
    if folder:
        os.makedirs(os.path.join(folder, FOLDER), exist_ok=True)
        record = {"step": step, "epoch": epoch, "scores": scores}
        dump_metrics(os.path.join(folder, FOLDER, f"step_{step}.json"), record)
