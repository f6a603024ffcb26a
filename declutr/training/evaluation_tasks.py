"""The tasks of "evaluate_embeddings": their data, their scores, and checks of the trainer."""

import os
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.training import GradientDescentTrainer
from allennlp.training.callbacks.log_writer import LogWriterCallback

from declutr.data.row_reader import RowReader
from declutr.evaluation.suite import all_tasks, chosen, evaluate
from declutr.evaluation.task import Protocol, Task, TaskError
from declutr.models.declutr import DeCLUTR
from declutr.system import raised_as
from declutr.training.model_in_training import text_encoder, undisturbed

FOLDER = "evaluations"
"""The folder, in the serialization directory, with a file `step_N.json` for each evaluation."""

Scores = dict[str, float]
"""The values of scores by the name `TASK/score`."""


class Outcome(NamedTuple):
    """The result of an evaluation on all tasks."""

    scores: Scores
    main: list[str]
    """The name of the main score of each task."""
    errors: list[str]
    """A message for each task that failed."""


@dataclass
class EvaluationTasks:
    """The tasks of `declutr.evaluation` that a model is scored on during training.

    # Parameters

    data, patterns, protocol, corpus, batch_size : the parameters of
        `declutr.training.evaluation_callback.EvaluateEmbeddings`, where patterns are `tasks`.
    """

    data: str
    patterns: list[str]
    protocol: Protocol
    corpus: Optional[str]
    batch_size: int
    tasks: list[Task] = field(default_factory=list, init=False)

    def read(self) -> None:
        """Read the data of the tasks.

        # Raises

        `ConfigurationError` : data are missing or broken, or a pattern matches no task.
        """
        if not os.path.isdir(self.data):
            raise ConfigurationError(
                f"There is no folder '{self.data}'. As 'data', evaluate_embeddings expects one "
                "laid out as SentEval's (downstream/, probing/)."
            )
        with raised_as(ConfigurationError, ValueError):
            tasks = chosen(
                all_tasks(self.data, self.protocol, self.corpus), self.patterns, self.protocol
            )
        errors = []
        for task in tasks:
            try:
                task.sentences()
            except TaskError as error:
                errors.append(_failure(task.name, error))
        if errors:
            raise ConfigurationError(
                f"Data of {len(errors)} of {len(tasks)} tasks cannot be used: {'; '.join(errors)}. "
                f"Complete '{self.data}', or leave these tasks out."
            )
        self.tasks = tasks

    def outcome(self, trainer: GradientDescentTrainer) -> Outcome:
        """Score the model of a trainer on all tasks, without an effect on training."""
        scores: Scores = {}
        main, errors = [], []
        with undisturbed(trainer.model, trainer.cuda_device, self.protocol.seed):
            for result in evaluate(text_encoder(trainer, self.batch_size), self.tasks):
                scores |= {f"{result.task}/{score.name}": score.value for score in result.scores}
                if result.error is None:
                    main.append(f"{result.task}/{result.main}")
                else:
                    errors.append(_failure(result.task, result.error))
        return Outcome(scores, main, errors)


def _failure(task: str, error: object) -> str:
    return f"{task}: {str(error).rstrip('.')}"


def require_parts(trainer: GradientDescentTrainer) -> None:
    """Raise a `ConfigurationError` unless the model and the dataset reader are of this package."""
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
    every_num_epochs: Optional[int],
) -> None:
    """Raise a `ConfigurationError` if a score that selects weights or epochs will be missing.

    # Parameters

    trainer : the trainer that is about to start.
    scores : the scores that the tasks gave.
    needed : the names of scores that select weights or epochs.
    tracked : the names among them that the trainer's `validation_metric` has.
    every_num_epochs : the number of epochs between evaluations; `None` evaluates no epoch.
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
            f"every epoch: set every_num_epochs to 1, not {every_num_epochs or 'null'}."
        )


def write_scores(
    trainer: GradientDescentTrainer, folder: Optional[str], step: int, epoch: int, scores: Scores
) -> None:
    """Write scores to a trainer's log writers, and to a JSON file for this step.

    # Parameters

    trainer : the trainer, whose callbacks may be log writers (`LogWriterCallback`, TensorBoard).
    folder : the serialization directory, for the file; `None` writes no file.
    step, epoch : the numbers of steps and epochs completed. They are written into the file.
    scores : the scores by name.
    """
    for writer in trainer._callbacks:
        if isinstance(writer, LogWriterCallback):
            writer.trainer = trainer  # its on_start may not have been called yet
            writer.log_scalars(dict(scores), log_prefix="validation_scores")
    if folder:
        os.makedirs(os.path.join(folder, FOLDER), exist_ok=True)
        record = {"step": step, "epoch": epoch, "scores": scores}
        dump_metrics(os.path.join(folder, FOLDER, f"step_{step}.json"), record)
