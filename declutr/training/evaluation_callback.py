"""The TrainerCallback "evaluate_embeddings": how good embeddings are while they are trained."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.callbacks.log_writer import LogWriterCallback
from allennlp.training.metric_tracker import MetricTracker

from declutr.data.row_reader import RowReader
from declutr.evaluation.suite import all_tasks, chosen, evaluate
from declutr.evaluation.task import PROTOCOLS, Task, TaskError
from declutr.models.declutr import DeCLUTR
from declutr.system.distributed import is_sharded, of_all_processes, process_rank
from declutr.training.checkpointer import save_whole
from declutr.training.trained_texts import text_encoder
from declutr.training.undisturbed import undisturbed

logger = logging.getLogger(__name__)

Scores = dict[str, float]
"""Values by `TASK/score`."""

FOLDER = "evaluations"
"""Where, in the folder of a run, each evaluation is a file `step_N.json`."""


@TrainerCallback.register("evaluate_embeddings")
class EvaluateEmbeddings(TrainerCallback):
    """Runs tasks of `declutr.evaluation` in between steps, and may choose the best weights by them.

        "callbacks": [{
            "type": "evaluate_embeddings",
            "data": "SentEval/data",
            "tasks": ["STS-B", "SICK-R"],
            "every_num_steps": 250,
            "select_by": "STS-B/cosine Spearman dev",
        }]

    Scores are called `TASK/score`. They are logged, written to `evaluations/step_N.json`, given to
    TensorBoard (or any other log writer of AllenNLP) as `validation_scores`, by step, and those at
    the end of an epoch are metrics of it: `validation_STS-B/cosine Spearman dev`. So the trainer's
    `validation_metric` may name one, `"+STS-B/cosine Spearman dev"`, for its `patience`, and for
    its choice of the best epoch where there is no `select_by`.

    Training goes on as if nothing had happened: random numbers of torch, numpy and Python, modes
    of modules and running metrics are what they were, so weights are the same, bit for bit.

    All tasks run once before the first step too. So a mistake shows right away, and the weights of
    the start take part in the choice of the best: a run that only makes them worse leaves them in
    the archive (`best_step` 0), and a warning at its end says so.

    With several processes the first one evaluates, and the others wait, for as long as torch lets
    them (10 minutes on GPUs). A model that is spread over processes is run by all of them.

    # Parameters

    data : a folder laid out as SentEval's (`downstream/`, `probing/`).
    tasks : patterns of names or groups of tasks, such as `["STS*", "MR"]`.
    protocol : of classifiers on top of embeddings: `"published"` or `"prototyping"`.
    regressor : whether STS-B and SICK-R have `trained` scores too, which take most of their time.
    every_num_steps : evaluate after every so many steps (of the optimizer) as well.
    every_num_epochs : evaluate at the end of every so many epochs, and of the last one.
    select_by : the score whose highest value makes weights the best ones (`best.th`, which goes
        into the archive), whenever it was reached, or, with a `-` in front, the lowest. Prefer one
        of a development set.
    corpus : documents, one a line, for label-free span retrieval.
    batch_size : sentences a batch.
    select_start : whether the weights of the start can be the best ones. They could not before
        release 1.6; a run that was begun then goes on without them.

    # Raises

    `ConfigurationError` : values that make no sense; or, before the first step, data that are
        missing or broken, an unknown task or score, or a model or reader of another type.
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
        every_num_epochs: int = 1,
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
        if protocol not in PROTOCOLS:
            raise ConfigurationError(
                f"Unknown protocol '{protocol}': expected one of {', '.join(PROTOCOLS)}."
            )
        if not tasks:
            raise ConfigurationError("There are no tasks to evaluate: name some, as in ['STS*'].")
        self._data, self._corpus = data, corpus
        self._patterns = tasks
        self._protocol = replace(PROTOCOLS[protocol], regressor=regressor)
        self._every_num_steps = every_num_steps
        self._every_num_epochs = every_num_epochs
        self._lowest = (select_by or "").startswith("-")
        self._select_by = select_by.removeprefix("-").removeprefix("+") if select_by else None
        self._batch_size, self._select_start = batch_size, select_start
        self.selects = select_by is not None
        """Whether it chooses the best weights, so that the trainer does not."""
        self.start_scores: Scores = {}
        """Before the first step."""
        self._tasks: list[Task] = []
        self._is_primary = True
        self._step = 0
        self._scores: Scores = {}  # of the last evaluation, which was after `_step` steps
        self._best: dict[str, Any] | None = None  # its value, step, epoch and scores
        self._resumed_at = 0  # steps
        self._selects_anew = False

    # ---------------------------------------------------------------------- what the trainer calls

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary)
        self._is_primary = is_primary
        self._require_what_it_needs(trainer)
        if self._evaluates(trainer):
            self._tasks = self._read_tasks()
        tracker = trainer._metric_tracker
        trainer._metric_tracker = _EpochTracker(
            tracker, lambda: self._at_end_of_epoch(trainer), self._select_by is not None
        )
        epoch = trainer._start_after_epochs_completed
        resumed = bool(epoch or trainer._start_after_batches_in_epoch_completed)
        # The model's own metrics have no tasks.
        tracked = [name for _, name in tracker.tracked_metrics if "/" in name]
        needed = [*tracked, *([self._select_by] if self._select_by else [])]
        known = all(name in self._scores for name in needed)
        lost = self._best_is_lost()
        if self._best is not None:  # the checkpoint may come from a folder that was moved
            trainer._best_model_filename = self._best_file
        errors: list[str] = []
        if not resumed or not known or lost or self._selects_anew:
            select = resumed or self._select_start
            errors = self._evaluate(trainer, self._resumed_at, epoch, select)
        if not resumed:
            self.start_scores = self._scores
        if errors:
            raise ConfigurationError(
                f"Some tasks cannot be scored: {'; '.join(errors)}. Repair their data, or leave "
                "them out of the tasks of evaluate_embeddings."
            )
        self._require_scores(trainer, needed, tracked)

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: Any,
        batch_outputs: Any,
        batch_metrics: Any,
        epoch: int,
        batch_number: int,
        is_training: bool,
        is_primary: bool = True,
        batch_grad_norm: float | None = None,
        **kwargs: Any,
    ) -> None:
        step = trainer._total_batches_completed
        if is_training and self._every_num_steps and step % self._every_num_steps == 0:
            self._evaluate(trainer, step, epoch)

    def on_epoch(
        self,
        trainer: GradientDescentTrainer,
        metrics: dict[str, Any],
        epoch: int,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        # Those of an epoch with validation are there already, by the tracker of metrics.
        scores = self._at_end_of_epoch(trainer)
        # The trainer's metrics go on from epoch to epoch.
        for name in self._scores.keys() - scores.keys():
            metrics.pop(f"validation_{name}", None)
        metrics.update({f"validation_{name}": value for name, value in scores.items()})
        if self._best is not None:
            metrics.update(best_epoch=self._best["epoch"], best_step=self._best["step"])
            best = self._best["scores"].items()
            metrics.update({f"best_validation_{name}": value for name, value in best})
        if is_primary and self.serialization_dir:
            # The trainer wrote it before it called this.
            file = os.path.join(self.serialization_dir, f"metrics_epoch_{epoch}.json")
            dump_metrics(file, metrics)

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: dict[str, Any] | None = None,
        epoch: int | None = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        finished = metrics is not None and trainer._total_batches_completed > 0
        if finished and is_primary and self._best is not None and self._best["step"] == 0:
            logger.warning(
                "%s was %.2f at the start and never better afterwards (see %s): training did not "
                "improve the embeddings, and the archive holds the weights of the start. Look at "
                "the learning rate and the data.",
                self._select_by,
                self._best["value"],
                os.path.join(self.serialization_dir, FOLDER),
            )

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self.trainer._total_batches_completed if self.trainer is not None else 0,
            "step": self._step,
            "scores": self._scores,
            "start": self.start_scores,
            "select_by": self._select_by,
            "best": self._best,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed_at = state_dict.get("done", 0)
        self._step = state_dict.get("step", 0)
        self._scores = state_dict.get("scores", {})
        self.start_scores = state_dict.get("start", {})
        if state_dict.get("select_by") == self._select_by:
            self._best = state_dict.get("best")
        elif self._select_by is not None:
            self._selects_anew = True
            logger.warning(
                "Until now the best weights were chosen by %s; from here on by %s, beginning with "
                "those of the checkpoint.",
                state_dict.get("select_by") or "the validation_metric",
                self._select_by,
            )

    # ---------------------------------------------------------------------------- what it requires

    def _require_what_it_needs(self, trainer: GradientDescentTrainer) -> None:
        reader = getattr(trainer.data_loader, "reader", None)
        for part, expected in ((trainer.model, DeCLUTR), (reader, RowReader)):
            if not isinstance(part, expected):
                raise ConfigurationError(
                    'evaluate_embeddings needs a model and a dataset reader of type "declutr"; got '
                    f"{type(part).__name__} in place of {expected.__name__}."
                )
        if self._select_by is not None and not self.serialization_dir:
            raise ConfigurationError("select_by needs a folder to keep the best weights in.")

    def _read_tasks(self) -> list[Task]:
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
        return tasks

    def _require_scores(
        self, trainer: GradientDescentTrainer, needed: list[str], tracked: list[str]
    ) -> None:
        """Raise if something is to be chosen by a score that will not be there."""
        for name in needed:
            if name not in self._scores:
                raise ConfigurationError(
                    f"There is no score '{name}' to choose by. The tasks give: "
                    f"{', '.join(sorted(self._scores))}."
                )
        if tracked and trainer._validation_data_loader is None:
            raise ConfigurationError(
                f"validation_metric names '{tracked[0]}', but without validation_data_path the "
                "trainer does not look at it. Use select_by of evaluate_embeddings."
            )
        if tracked and self._every_num_epochs != 1:
            raise ConfigurationError(
                f"validation_metric names '{tracked[0]}', which the trainer wants to know after "
                f"every epoch: set every_num_epochs to 1, not {self._every_num_epochs}."
            )

    # ---------------------------------------------------------------------------------- evaluating

    @staticmethod
    def _evaluates(trainer: GradientDescentTrainer) -> bool:
        return process_rank() == 0 or is_sharded(trainer.model)

    def _at_end_of_epoch(self, trainer: GradientDescentTrainer) -> Scores:
        """The scores of the epoch that ends now; none if it is not one to evaluate."""
        epoch = trainer._epochs_completed
        last = epoch + 1 == trainer._num_epochs or trainer._metric_tracker.should_stop_early()
        if not last and (epoch + 1) % self._every_num_epochs:
            return {}
        if self._step != trainer._total_batches_completed:
            self._evaluate(trainer, trainer._total_batches_completed, epoch)
        return self._scores

    def _evaluate(
        self, trainer: GradientDescentTrainer, step: int, epoch: int, select: bool = True
    ) -> list[str]:
        """Score the weights as they are now; returns what went wrong, in words."""
        if isinstance(trainer.model, DeCLUTR):
            trainer.model.require_finite()  # or broken weights would be scored
        began = time.perf_counter()
        outcome: tuple[Scores, list[str], list[str]] = {}, [], []
        with _averaged_weights(trainer):
            if self._evaluates(trainer):
                with undisturbed(trainer.model, trainer.cuda_device, self._protocol.seed):
                    outcome = self._outcome(trainer)
            # All must agree on what is best.
            self._scores, main, errors = of_all_processes(outcome)[0]
            self._step = step
            best = select and self._select(trainer, step, epoch)
        if self._is_primary:
            shown = dict.fromkeys([*main, *([self._select_by] if self._select_by else [])])
            values = ", ".join(f"{n} {self._scores[n]:.2f}" for n in shown if n in self._scores)
            seconds = time.perf_counter() - began
            mark = " (the best so far)" if best else ""
            logger.info("After %d steps (%.0f s): %s%s", step, seconds, values, mark)
            for error in errors:
                logger.warning("After %d steps, a task could not be scored: %s.", step, error)
            self._write(trainer, epoch)
        return errors

    def _outcome(self, trainer: GradientDescentTrainer) -> tuple[Scores, list[str], list[str]]:
        """All scores, the names of those that stand for their tasks, and what went wrong."""
        scores: Scores = {}
        main, errors = [], []
        encode = text_encoder(trainer, self._batch_size)
        for result in evaluate(encode, self._tasks):
            scores |= {f"{result.task}/{score.name}": score.value for score in result.scores}
            main += [f"{result.task}/{result.main}"] if result.error is None else []
            errors += [] if result.error is None else [_failure(result.task, result.error)]
        return scores, main, errors

    def _write(self, trainer: GradientDescentTrainer, epoch: int) -> None:
        for writer in trainer._callbacks:
            if isinstance(writer, LogWriterCallback):
                writer.trainer = trainer  # its own on_start may be still to come
                writer.log_scalars(dict(self._scores), log_prefix="validation_scores")
        if self.serialization_dir:
            folder = os.path.join(self.serialization_dir, FOLDER)
            os.makedirs(folder, exist_ok=True)
            record = {"step": self._step, "epoch": epoch, "scores": self._scores}
            dump_metrics(os.path.join(folder, f"step_{self._step}.json"), record)

    # ----------------------------------------------------------------------------------- selecting

    @property
    def _best_file(self) -> str:
        return os.path.join(self.serialization_dir, "best.th")

    def _best_is_lost(self) -> bool:
        """Whether the best weights, chosen before the run was resumed, are not there any more."""
        # Each node of a run may have a folder of its own.
        if self._best is None or all(of_all_processes(os.path.exists(self._best_file))):
            return False
        logger.warning(
            "There is no %s any more. The choice begins anew, with the weights of the checkpoint.",
            self._best_file,
        )
        self._best = None
        return True

    def _select(self, trainer: GradientDescentTrainer, step: int, epoch: int) -> bool:
        """Keep these weights if they are the best so far. All processes take part."""
        if self._select_by is None:
            return False
        value = self._scores.get(self._select_by, math.nan)
        if not math.isfinite(value):
            logger.warning("%s is %s: these weights cannot be chosen.", self._select_by, value)
            return False
        if self._best is not None:
            before = self._best["value"]
            if value >= before if self._lowest else value <= before:
                return False
        state = (trainer._ddp_wrapped_model or trainer.model).state_dict()
        if self._is_primary:
            save_whole(state, self._best_file)
        trainer._best_model_filename = self._best_file
        self._best = {"value": value, "step": step, "epoch": epoch, "scores": self._scores}
        return True


def _failure(task: str, error: object) -> str:
    return f"{task}: {str(error).rstrip('.')}"


class _EpochTracker(MetricTracker):
    """A tracker that adds scores to the metrics of validation before it judges them.

    The trainer asks it after the last step of an epoch and before it writes anything: the only
    place from which a callback gets at metrics that count.

    # Parameters

    tracker : the one to take the place of.
    scores : those at the end of the current epoch.
    never_best : say of no epoch that it is the best, so that the trainer writes no best weights.
    """

    def __init__(
        self, tracker: MetricTracker, scores: Callable[[], Scores], never_best: bool
    ) -> None:
        vars(self).update(vars(tracker))
        self._scores = scores
        self._never_best = never_best
        self._is_best_so_far = self._is_best_so_far and not never_best

    def combined_score(self, metrics: dict[str, float]) -> float:
        metrics.update(self._scores())
        return super().combined_score(metrics)

    def add_metrics(self, metrics: dict[str, float]) -> None:
        super().add_metrics(metrics)
        self._is_best_so_far = self._is_best_so_far and not self._never_best


@contextmanager
def _averaged_weights(trainer: GradientDescentTrainer) -> Iterator[None]:
    """The weights that validation sees, which are the ones to keep: with a moving average, it."""
    average = trainer._moving_average
    if average is None:
        yield
        return
    average.assign_average_value()
    try:
        yield
    finally:
        average.restore()
