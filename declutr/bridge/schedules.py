"""Repairs of AllenNLP's learning rate schedules, and of the metric that the best epoch is told by.

Without them a run is silently trained at other rates than those it was configured with.
"""

import importlib
import inspect
import logging
import math
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge.repairs import DISTRIBUTED, replaces

logger = logging.getLogger(__name__)

_BY_STEP = (
    "ConstantWithWarmupLearningRateScheduler",
    "CosineWithWarmupLearningRateScheduler",
    "CosineHardRestartsWithWarmupLearningRateScheduler",
)
_COUNTS_STEPS = "counts_steps"  # in what a schedule saves
_MOVES_BY_STEP = "moves_by_step"  # likewise, once a trainer has called its `step_batch`


def scheduled_groups(module: ModuleType) -> None:
    """Let schedules set the learning rates with which the optimizers inside "multi" train.

    The parameter groups of "multi" are copies of those that its optimizers train with. Schedules,
    and the command `find-learning-rate`, set the rates of the copies, so that the logs showed a
    schedule and training went on at the rate it began with. Can be removed when `MultiOptimizer`
    shares the groups of its optimizers.
    """
    cls = module.MultiOptimizer

    @replaces(cls)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _share_groups(self)

    @replaces(cls)
    def load_state_dict(original: Any, self: Any, training_state: dict[str, Any]) -> None:
        original(self, training_state)  # each optimizer then has new groups
        _share_groups(self)


def _share_groups(several: Any) -> None:
    """Put the groups of the optimizers inside in the place of those of "multi" itself.

    Empty groups stay as they are. What schedules have noted in a group, such as `initial_lr`, is
    kept.
    """
    trained = {
        id(parameter): group
        for optimizer in several.optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for number, group in enumerate(several.param_groups):
        if group["params"]:
            own = trained[id(group["params"][0])]
            several.param_groups[number] = own
            for key, value in group.items():
                own.setdefault(key, value)


def plateaus(module: ModuleType) -> None:
    """Let "reduce_on_plateau" reduce the rate when the validation metric gets no better.

    AllenNLP gives it a score of which more is better, also for `-loss`, and its default mode is
    `min`. So rates were reduced while the loss fell, and not when it rose. In the mode `min` it now
    gets the score negated, which for `-loss` is the loss. Of a negative score, torch takes one that
    is worse by less than a relative threshold for a better one, so that a constant score was no
    plateau. Can be removed when AllenNLP's trainer gives schedules the score by their mode.
    """
    cls = module.ReduceOnPlateauLearningRateScheduler
    mark = "is_negated"  # in what the schedule saves

    @replaces(cls)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        setattr(self.lr_scheduler, mark, self.lr_scheduler.mode == "min")

    @replaces(cls)
    def step(original: Any, self: Any, metric: float | None = None) -> None:
        schedule = self.lr_scheduler
        if metric is not None and schedule.mode == "min":
            metric = -metric
        threshold = schedule.threshold
        if schedule.threshold_mode == "rel" and schedule.best < 0:
            schedule.threshold = -threshold  # torch multiplies the best score by 1 + threshold
        try:
            original(self, metric)
        finally:
            schedule.threshold = threshold

    @replaces(cls)
    def load_state_dict(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
        if state_dict["mode"] == "min" and mark not in state_dict:
            logger.warning(
                "The schedule reduce_on_plateau of this checkpoint has taken falling losses for "
                "rising ones. It looks for the best epoch anew, from the rate that it has reached."
            )
            state_dict = {**state_dict, "best": math.inf, "num_bad_epochs": 0, mark: True}
        original(self, state_dict)


def warmups_by_step(module: ModuleType) -> None:
    """Let schedules with `num_warmup_steps` move once a step, and not once an epoch.

    "constant_with_warmup", "cosine_with_warmup" and "cosine_hard_restarts_with_warmup" count steps,
    but moved at the end of epochs: the whole first epoch had a rate of 0. Like AllenNLP's other
    schedules by step they move before the update. After `num_training_steps` the rate stays. Who
    calls `step` alone, without a trainer, still moves them by it.
    Can be removed when they have a `step_batch`.
    """
    for name in _BY_STEP:
        _count_steps(getattr(module, name))


def _count_steps(cls: Any) -> None:
    @replaces(cls)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(original).bind(self, *args, **kwargs).arguments
        self._end = given.get("num_training_steps", math.inf)
        original(self, *args, **kwargs)
        setattr(self.lr_scheduler, _COUNTS_STEPS, True)
        self._in_first_epoch = True

    @replaces(cls)
    def step(original: Any, self: Any, metric: float | None = None) -> None:
        if not getattr(self.lr_scheduler, _MOVES_BY_STEP, False):
            return original(self, metric)
        if self._in_first_epoch and self.lr_scheduler.last_epoch >= self._end:
            logger.warning(
                "num_training_steps is %d, and the first epoch has ended after at least as many "
                "steps. Expected the steps of the whole run, not its epochs.",
                self._end,
            )
        self._in_first_epoch = False

    def step_batch(self: Any, batch_num_total: int | None = None) -> None:
        setattr(self.lr_scheduler, _MOVES_BY_STEP, True)
        if self.lr_scheduler.last_epoch < self._end:  # torch's name for how often it has moved
            with warnings.catch_warnings():  # torch expects the update first
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                self.lr_scheduler.step()

    @replaces(cls)
    def load_state_dict(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
        if _COUNTS_STEPS not in state_dict:
            logger.warning(
                "The schedule of this checkpoint has moved once an epoch, although it counts "
                "steps. It goes on from its step %d, once a step.",
                state_dict["last_epoch"],
            )
        self._in_first_epoch = False
        # A run that goes on after the last step of an epoch ends it before it takes a step. Up to
        # 2.4.13 this was not noted, and the schedule moved there.
        by_step = state_dict.get(_MOVES_BY_STEP, _COUNTS_STEPS in state_dict)
        original(self, {**state_dict, _MOVES_BY_STEP: by_step})

    cls.step_batch = step_batch


def combined_steps(module: ModuleType) -> None:
    """Let each schedule inside "combined" count steps and epochs from its own first epoch.

    AllenNLP gives it the steps of the whole run, and the number of its own epochs. So a second
    "polynomial_decay" or "linear_with_warmup" was past its end when it began, at a rate of 0. And
    the end of the epoch before counted as one of its own, so that a second "exponential" was one
    epoch ahead. Can be removed when `step_batch` takes the steps of earlier schedules off, and
    `step` leaves a new schedule alone.
    """

    @replaces(module.CombinedLearningRateScheduler)
    def step_batch(original: Any, self: Any, batch_num_total: int | None = None) -> None:
        current = self.current_scheduler
        if current is not None and None not in (batch_num_total, self.num_steps_per_epoch):
            batch_num_total -= self._current_scheduler_first_epoch * self.num_steps_per_epoch
        original(self, batch_num_total)

    def step(self: Any, metric: float | None = None) -> None:
        ending = self.current_scheduler
        self.last_epoch += 1
        self.metric = metric
        if ending is not None and self.current_scheduler is ending:
            ending.step(metric)

    module.CombinedLearningRateScheduler.step = step


def steps_of_all(module: ModuleType) -> None:
    """Let the schedules of several processes count on the same number of steps of an epoch.

    Each process gave its schedule the number of its own batches. Where these differ, so did the
    rates of schedules by step, and the weights of the processes went apart. An epoch has as many
    steps as the process with the fewest batches. An optimizer without a learning rate, such as
    "huggingface_adafactor" with its defaults, is refused: it ended in a `TypeError`, of some
    schedules after an epoch. Can be removed when `from_partial_objects` asks all processes, and
    whether there is a rate.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(cls, *args, **kwargs)
        lazy: Any = given.arguments.get("learning_rate_scheduler")

        def construct(num_steps_per_epoch: int | None = None, **settings: Any) -> Any:
            steps, optimizer = num_steps_per_epoch, settings["optimizer"]
            if any(group.get("lr", 0) is None for group in optimizer.param_groups):
                raise module.ConfigurationError(
                    f"{type(optimizer).__name__} computes its learning rates by itself (its lr is "
                    "null), so that a learning_rate_scheduler has none to change. Remove it, or "
                    "set the optimizer's lr (of huggingface_adafactor with relative_step false)."
                )
            if steps is not None:
                steps = min(importlib.import_module(DISTRIBUTED).of_all_processes(steps))
            return lazy.construct(num_steps_per_epoch=steps, **settings)

        if lazy is not None:
            given.arguments["learning_rate_scheduler"] = SimpleNamespace(construct=construct)
        return original(*given.args, **given.kwargs)


def unknown_lengths(module: ModuleType) -> None:
    """Let "slanted_triangular" tell that it does not know the number of steps of an epoch.

    With data that are read anew in every epoch (`max_instances_in_memory`), it takes each step of
    the first epoch for its last one: a run of one epoch has the rate divided by `ratio` throughout.
    Other schedules by step raise an error. Can be removed when this one does, too.
    """

    @replaces(module.SlantedTriangular)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.num_steps_per_epoch is None:
            told = (
                f"the only epoch has a rate of 1/{self.ratio} throughout"
                if self.num_epochs == 1
                else "the first epoch has no warm-up and other rates than it should"
            )
            logger.warning(
                'The schedule "slanted_triangular" does not know the number of steps of an epoch, '
                f"so that {told}. Give it num_steps_per_epoch, or take the data loader "
                '"declutr", or one without max_instances_in_memory.'
            )


def undefined_metrics(module: ModuleType) -> None:
    """Let any other epoch be better than one whose validation metric is not a number.

    Nothing is greater than such a number. So if the first epoch had one (the correlation of
    constant predictions, say), it stayed the best, its weights were archived, and `patience` ran
    out. Can be removed when `MetricTracker` compares with `isnan`.
    """

    @replaces(module.MetricTracker)
    def combined_score(original: Any, self: Any, metrics: dict[str, float]) -> float:
        score = original(self, metrics)
        return -math.inf if math.isnan(score) else score

    @replaces(module.MetricTracker)
    def load_state_dict(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
        original(self, state_dict)
        if self._best_so_far is not None and math.isnan(self._best_so_far):
            self._best_so_far = -math.inf
