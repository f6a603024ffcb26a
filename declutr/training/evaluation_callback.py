"""The TrainerCallback "evaluate_embeddings", which scores embeddings on tasks during training."""

import logging
import os
import time
from dataclasses import replace
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.training import GradientDescentTrainer, TrainerCallback

from declutr.bridge.resumption import has_resumed
from declutr.evaluation.task import PROTOCOLS
from declutr.models.declutr import DeCLUTR
from declutr.objectives.numerics import one_of
from declutr.system.distributed import is_sharded, of_all_processes, process_rank
from declutr.training.best_weights import BestWeights, EpochTracker
from declutr.training.evaluation_tasks import (
    EvaluationTasks,
    Outcome,
    Scores,
    require_parts,
    require_scores,
    write_scores,
)
from declutr.training.model_in_training import averaged_weights

logger = logging.getLogger(__name__)


@TrainerCallback.register("evaluate_embeddings")
class EvaluateEmbeddings(TrainerCallback):
    """A callback that runs evaluation tasks between steps, and can select the best weights by them.

        "callbacks": [{
            "type": "evaluate_embeddings",
            "data": "SentEval/data",
            "tasks": ["STS-B", "SICK-R"],
            "every_num_steps": 250,
            "select_by": "STS-B/cosine Spearman dev",
        }]

    Scores are named `TASK/score`. They are logged, written to `evaluations/step_N.json`, and passed
    to TensorBoard and other log writers of AllenNLP as `validation_scores`. Scores at the end of an
    epoch are also metrics of the epoch, such as `validation_STS-B/cosine Spearman dev`. So the
    trainer's `validation_metric` can be a score, such as `"+STS-B/cosine Spearman dev"`, which is
    then used for `patience` and, without `select_by`, for the choice of the best epoch.

    Evaluation does not affect training: random numbers of torch, numpy and Python, modes of modules
    and running metrics are restored, so that the weights are the same bit for bit.

    All tasks also run once before the first step. So mistakes in the settings show at once, and the
    initial weights can be selected as the best: if training does not improve them, the archive
    holds them (`best_step` 0), and a warning at the end says so.

    With several processes, the first one evaluates while the others wait, at most for torch's
    timeout (10 minutes on GPUs). A sharded model is run by all processes.

    # Parameters

    serialization_dir : the serialization directory, which AllenNLP passes.
    data : a folder with the layout of SentEval's data (`downstream/`, `probing/`).
    tasks : patterns of names or groups of tasks, such as `["STS*", "MR"]`.
    protocol : the training of classifiers on embeddings, `"published"` or `"prototyping"`.
    regressor : True computes the `trained` scores of STS-B and SICK-R as well, which take most of
        the time of these tasks.
    every_num_steps : the number of steps between evaluations within epochs; `None` for none.
    every_num_epochs : the number of epochs between evaluations. The last epoch is always evaluated.
        `None` leaves the ends of epochs out, as the public codes of SimCSE and SCD do; a run that
        ends before its first evaluation is then evaluated at its end, to select anything.
    select_by : the score that selects the best weights (`best.th`, which goes into the archive) by
        its highest value, or, with a leading `-`, by its lowest. Prefer a score on a development
        set.
    corpus : a file with one document a line, for label-free span retrieval.
    batch_size : the number of sentences in a batch.
    select_start : whether the initial weights can be selected as the best. Before release 1.6 they
        could not; a run that an earlier release began is resumed without them.

    # Raises

    `ConfigurationError` : a value is out of range, nothing is ever evaluated, or, before the first
        step, data are broken, a task or score is unknown, or model or reader have another type.
    """

    looks_at_metrics = False  # so that the trainer "declutr" does not read them for it

    def __init__(
        self,
        serialization_dir: str,
        data: str,
        tasks: list[str],
        protocol: str = "published",
        regressor: bool = False,
        every_num_steps: Optional[int] = None,
        every_num_epochs: Optional[int] = 1,
        select_by: Optional[str] = None,
        corpus: Optional[str] = None,
        batch_size: int = 64,
        select_start: bool = True,
    ) -> None:
        super().__init__(serialization_dir)
        numbers = {
            "every_num_steps": every_num_steps,
            "every_num_epochs": every_num_epochs,
            "batch_size": batch_size,
        }
        for name, value in numbers.items():
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {value}.")
        if every_num_steps is every_num_epochs is None:
            raise ConfigurationError("Set every_num_steps or every_num_epochs: both are null.")
        one_of("protocol", protocol, PROTOCOLS)
        if not tasks:
            raise ConfigurationError("There are no tasks to evaluate: name some, as in ['STS*'].")
        settings = replace(PROTOCOLS[protocol], regressor=regressor)
        self._tasks = EvaluationTasks(data, tasks, settings, corpus, batch_size)
        self._every_num_steps = every_num_steps
        self._every_num_epochs = every_num_epochs
        self._best = BestWeights(select_by, serialization_dir)
        self._select_start = select_start
        self.selects = self._best.score is not None
        """Whether this callback selects the best weights, and the trainer does not."""
        self._selecting = [self._best.score] if self._best.score else []
        self.start_scores: Scores = {}
        """The scores before the first step."""
        self._evaluates = True  # whether this process runs tasks
        self._step = 0
        self._scores: Scores = {}  # the scores after `_step` steps, the last that were computed
        self._resumed_at = 0  # steps done before this process started

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        super().on_start(trainer, *args, **kwargs)
        require_parts(trainer)
        if self.selects and not self.serialization_dir:
            raise ConfigurationError("select_by needs a folder to keep the best weights in.")
        self._evaluates = process_rank() == 0 or is_sharded(trainer.model)
        if self._evaluates:
            self._tasks.read()
        tracker = trainer._metric_tracker
        trainer._metric_tracker = EpochTracker(
            tracker, lambda: self._at_end_of_epoch(trainer), self.selects
        )
        epoch = trainer._start_after_epochs_completed
        resumed = has_resumed(trainer)
        # Scores have a slash in their names, metrics of the model do not.
        tracked = [name for _, name in tracker.tracked_metrics if "/" in name]
        needed = tracked + self._selecting
        known = all(name in self._scores for name in needed)
        lost = self._best.is_lost()
        if self._best.found is not None:  # the folder may have been moved since
            trainer._best_model_filename = self._best.file
        errors: list[str] = []
        if not resumed or not known or lost or self._best.begins_anew:
            errors = self._evaluate(trainer, self._resumed_at, epoch, resumed or self._select_start)
        if not resumed:
            self.start_scores = self._scores
        if errors:
            raise ConfigurationError(
                f"Some tasks cannot be scored: {'; '.join(errors)}. Repair their data, or leave "
                "them out of the tasks of evaluate_embeddings."
            )
        require_scores(trainer, self._scores, needed, tracked, self._every_num_epochs)

    def on_batch(
        self, trainer: GradientDescentTrainer, *batch: Any, is_training: bool = False, **kwargs: Any
    ) -> None:
        step = trainer._total_batches_completed
        if is_training and self._every_num_steps and step % self._every_num_steps == 0:
            self._evaluate(trainer, step, trainer._epochs_completed)

    def on_epoch(
        self, trainer: GradientDescentTrainer, metrics: Any, epoch: int, *args: Any, **kwargs: Any
    ) -> None:
        # In an epoch with validation, `EpochTracker` has already computed these scores.
        scores = self._at_end_of_epoch(trainer)
        # The trainer keeps the metrics of earlier epochs in this dictionary.
        for name in self._scores.keys() - scores.keys():
            metrics.pop(f"validation_{name}", None)
        metrics.update({f"validation_{name}": value for name, value in scores.items()})
        best = self._best.found
        if best is not None:
            metrics.update(best_epoch=best["epoch"], best_step=best["step"])
            metrics.update({f"best_validation_{name}": v for name, v in best["scores"].items()})
        if trainer._primary and self.serialization_dir:
            # The trainer has written this file already, without the scores.
            file = os.path.join(self.serialization_dir, f"metrics_epoch_{epoch}.json")
            dump_metrics(file, metrics)

    def on_end(
        self, trainer: GradientDescentTrainer, metrics: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        if metrics is not None and trainer._total_batches_completed and trainer._primary:
            self._best.warn_of_no_gain()

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self.trainer._total_batches_completed if self.trainer is not None else 0,
            "step": self._step,
            "scores": self._scores,
            "start": self.start_scores,
            "select_by": self._best.score,
            "best": self._best.found,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed_at = state_dict.get("done", 0)
        self._step = state_dict.get("step", 0)
        self._scores = state_dict.get("scores", {})
        self.start_scores = state_dict.get("start", {})
        self._best.resume(state_dict.get("select_by"), state_dict.get("best"))

    def _at_end_of_epoch(self, trainer: GradientDescentTrainer) -> Scores:
        """Return the scores of the weights of now, or no scores if they are not evaluated."""
        epoch, step = trainer._epochs_completed, trainer._total_batches_completed
        last = epoch + 1 == trainer._num_epochs or trainer._metric_tracker.should_stop_early()
        if self._step != step:
            if self._every_num_epochs is None:
                wanted = last and self.selects and self._best.found is None
            else:
                wanted = last or (epoch + 1) % self._every_num_epochs == 0
            if not wanted:
                return {}
            self._evaluate(trainer, step, epoch)
        return self._scores

    def _evaluate(
        self, trainer: GradientDescentTrainer, step: int, epoch: int, select: bool = True
    ) -> list[str]:
        """Score the current weights, and return messages about tasks that failed."""
        if isinstance(trainer.model, DeCLUTR):
            trainer.model.require_finite()  # otherwise broken weights would be scored
        began = time.perf_counter()
        outcome = Outcome({}, [], [])
        with averaged_weights(trainer):
            if self._evaluates:
                outcome = self._tasks.outcome(trainer)
            # All processes must agree on whether these weights are the best.
            self._scores, main, errors = of_all_processes(outcome)[0]
            self._step = step
            best = select and self._best.select(trainer, self._scores, step, epoch)
        if trainer._primary:
            shown = dict.fromkeys(main + self._selecting)
            values = ", ".join(f"{n} {self._scores[n]:.2f}" for n in shown if n in self._scores)
            seconds = time.perf_counter() - began
            mark = " (the best so far)" if best else ""
            logger.info("After %d steps (%.0f s): %s%s", step, seconds, values, mark)
            for error in errors:
                logger.warning("After %d steps, a task could not be scored: %s.", step, error)
            write_scores(trainer, self.serialization_dir, step, epoch, self._scores)
        return errors
