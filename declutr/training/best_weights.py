"""Selection of the best weights of a run by scores on evaluation tasks."""

import logging
import math
import os
from collections.abc import Callable
from typing import Any, Optional

from allennlp.training import GradientDescentTrainer
from allennlp.training.metric_tracker import MetricTracker

from declutr.archives import BEST_WEIGHTS
from declutr.system.distributed import of_all_processes
from declutr.training.checkpointer import write_best_weights
from declutr.training.evaluation_tasks import FOLDER, Scores

logger = logging.getLogger(__name__)


class BestWeights:
    """The weights with the best score so far, in `best.th`, which goes into the archive.

    # Parameters

    select_by : the name of the score, whose highest value is the best, or, with a leading `-`, the
        lowest; `None` selects no weights.
    folder : the serialization directory.
    """

    def __init__(self, select_by: Optional[str], folder: Optional[str]) -> None:
        self._lowest = (select_by or "").startswith("-")
        self.score = select_by.removeprefix("-").removeprefix("+") if select_by else None
        """The name of the score, without its sign."""
        self.file = os.path.join(folder or "", BEST_WEIGHTS)
        self.found: Optional[dict[str, Any]] = None
        """The value, step, epoch and all scores of the best weights, if there are any yet."""
        self.begins_anew = False
        """Whether the run was resumed with another `select_by` than it had before."""

    def resume(self, score: Optional[str], found: Optional[dict[str, Any]]) -> None:
        """Restore the best weights of a checkpoint, if they were selected by the same score."""
        if score == self.score:
            self.found = found
        elif self.score is not None:
            self.begins_anew = True
            logger.warning(
                f"Until now the best weights were chosen by {score or 'the validation_metric'}; "
                f"from here on by {self.score}, beginning with those of the checkpoint."
            )

    def is_lost(self) -> bool:
        """Return whether the file of the best weights is missing, and if so forget them."""
        # All processes are asked, as each node may have a folder of its own.
        if self.found is None or all(of_all_processes(os.path.exists(self.file))):
            return False
        logger.warning(
            "There is no %s any more. The choice begins anew, with the weights of the checkpoint.",
            self.file,
        )
        self.found = None
        return True

    def select(
        self, trainer: GradientDescentTrainer, scores: Scores, step: int, epoch: int
    ) -> bool:
        """Save the current weights if they are the best so far, and return whether they are.

        All processes must call this.

        # Parameters

        trainer : the trainer with the weights.
        scores : the scores of the weights by name.
        step, epoch : the steps and epochs completed.
        """
        if self.score is None:
            return False
        value = scores.get(self.score, math.nan)
        if not math.isfinite(value):
            logger.warning("%s is %s: these weights cannot be chosen.", self.score, value)
            return False
        if self.found is not None:
            before = self.found["value"]
            if value >= before if self._lowest else value <= before:
                return False
        write_best_weights(trainer, self.file)
        self.found = {"value": value, "step": step, "epoch": epoch, "scores": scores}
        return True

    def warn_of_no_gain(self) -> None:
        """Warn if no weights were better than the initial weights."""
        if self.found is not None and self.found["step"] == 0:
            logger.warning(
                f"{self.score} was {self.found['value']:.2f} at the start and never better "
                f"afterwards (see {os.path.join(os.path.dirname(self.file), FOLDER)}): training "
                "did not improve the embeddings, and the archive holds the weights of the start. "
                "Look at the learning rate and the data."
            )


class EpochTracker(MetricTracker):
    """A `MetricTracker` that adds scores to the validation metrics of an epoch before it compares.

    The trainer calls its tracker after the last step of an epoch and before it writes anything. No
    callback is called in between, so this is how scores can count as metrics of the epoch.

    # Parameters

    tracker : the tracker to replace, whose state is taken over.
    scores : a function that returns the scores at the end of the current epoch.
    never_best : True reports no epoch as the best, so that the trainer writes no best weights.
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
