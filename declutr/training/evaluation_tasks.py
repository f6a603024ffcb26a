"""The tasks that a model is scored on while it is trained, and what they need of its run."""

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
from declutr.training.model_in_training import text_encoder, undisturbed

FOLDER = "evaluations"
"""Where, in the folder of a run, each evaluation is a file `step_N.json`."""

Scores = dict[str, float]
"""Values by `TASK/score`."""


class Outcome(NamedTuple):
    """What an evaluation gives."""

    scores: Scores
    main: list[str]
    """Names of the scores that stand for their tasks."""
    errors: list[str]
    """What went wrong, in words."""


@dataclass
class EvaluationTasks:
    """Tasks of `declutr.evaluation`, with their data.

    # Parameters

    data, patterns, protocol, corpus, batch_size : see
        `declutr.training.evaluation_callback.EvaluateEmbeddings`, where patterns are `tasks`.
    """

    data: str
    patterns: list[str]
    protocol: Protocol
    corpus: Optional[str]
    batch_size: int
    tasks: list[Task] = field(default_factory=list, init=False)

    def read(self) -> None:
        """Read the data.

        # Raises

        `ConfigurationError` : they are missing or broken, or a pattern fits no task.
        """
        if not os.path.isdir(self.data):
            raise ConfigurationError(
                f"There is no folder '{self.data}'. As 'data', evaluate_embeddings expects one "
                "laid out as SentEval's (downstream/, probing/)."
            )
        try:
            tasks = chosen(all_tasks(self.data, self.protocol, self.corpus), self.patterns)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
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
        """Score a trainer's model as it is now; training goes on as if it had not happened."""
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
