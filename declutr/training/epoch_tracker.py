"""The trainer's tracker of metrics, with scores that are no metrics of the model."""

from collections.abc import Callable

from allennlp.training.metric_tracker import MetricTracker


class EpochTracker(MetricTracker):
    """A tracker that adds scores to the metrics of validation before it judges them.

    The trainer asks it after the last step of an epoch and before it writes anything: the only
    place from which a callback gets at metrics that count.

    # Parameters

    tracker : the one to take the place of.
    scores : those at the end of the current epoch.
    never_best : say of no epoch that it is the best, so that the trainer writes no best weights.
    """

    def __init__(
        self, tracker: MetricTracker, scores: Callable[[], dict[str, float]], never_best: bool
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
