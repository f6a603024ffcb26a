"""The tasks that a model is scored on while it is trained."""

import os
from dataclasses import replace
from typing import Any, NamedTuple, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer

from declutr.evaluation.suite import all_tasks, chosen, evaluate
from declutr.evaluation.task import PROTOCOLS, Protocol, Task, TaskError
from declutr.training.model_in_training import text_encoder, undisturbed

Scores = dict[str, float]
"""Values by `TASK/score`."""


class Outcome(NamedTuple):
    """What an evaluation gives."""

    scores: Scores
    main: list[str]
    """Names of the scores that stand for their tasks."""
    errors: list[str]
    """What went wrong, in words."""


class EvaluationTasks:
    """Tasks of `declutr.evaluation`, with their data.

    # Parameters

    data, patterns, protocol, corpus, batch_size : see
        `declutr.training.evaluation_callback.EvaluateEmbeddings`, where patterns are `tasks`.
    """

    def __init__(
        self,
        data: str,
        patterns: list[str],
        protocol: Protocol,
        corpus: Optional[str],
        batch_size: int,
    ) -> None:
        self._data, self._patterns, self._corpus = data, patterns, corpus
        self._protocol, self._batch_size = protocol, batch_size
        self._tasks: list[Task] = []

    def read(self) -> None:
        """Read the data.

        # Raises

        `ConfigurationError` : they are missing or broken, or a pattern fits no task.
        """
        if not os.path.isdir(self._data):
            raise ConfigurationError(
                f"There is no folder '{self._data}'. As 'data', evaluate_embeddings expects one "
                "laid out as SentEval's (downstream/, probing/)."
            )
        try:
            tasks = chosen(all_tasks(self._data, self._protocol, self._corpus), self._patterns)
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
                f"Complete '{self._data}', or leave these tasks out."
            )
        self._tasks = tasks

    def outcome(self, trainer: GradientDescentTrainer) -> Outcome:
        """Score a trainer's model as it is now; training goes on as if it had not happened."""
        scores: Scores = {}
        main, errors = [], []
        with undisturbed(trainer.model, trainer.cuda_device, self._protocol.seed):
            for result in evaluate(text_encoder(trainer, self._batch_size), self._tasks):
                scores |= {f"{result.task}/{score.name}": score.value for score in result.scores}
                main += [f"{result.task}/{result.main}"] if result.error is None else []
                errors += [] if result.error is None else [_failure(result.task, result.error)]
        return Outcome(scores, main, errors)


def named_protocol(name: str, **changes: Any) -> Protocol:
    """Return a protocol by name, with changes.

    # Raises

    `ConfigurationError` : there is none of that name.
    """
    if name not in PROTOCOLS:
        raise ConfigurationError(
            f"Unknown protocol '{name}': expected one of {', '.join(PROTOCOLS)}."
        )
    return replace(PROTOCOLS[name], **changes)


def _failure(task: str, error: object) -> str:
    return f"{task}: {str(error).rstrip('.')}"
