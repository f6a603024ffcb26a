"""Repairs of AllenNLP's metrics that report other figures than their names say."""

import math
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

_ROUNDING = 1e-6  # of the mean of equal numbers in float32: eight units in the last place


def masked_pairs(module: ModuleType) -> None:
    """Let "spearman_correlation" leave out what is masked, and count every pair once.

    AllenNLP counts masked pairs as pairs of zeros. With several processes, each call also gathers
    what earlier calls have gathered. Can be removed when it selects by the mask, and gathers the
    pairs of the call alone.
    """

    @replaces(module.SpearmanCorrelation)
    def __call__(
        original: Any, self: Any, predictions: Any, gold_labels: Any, mask: Any = None
    ) -> None:
        if mask is not None:
            kept = mask.bool()  # numbers would be positions
            predictions, gold_labels = predictions[kept], gold_labels[kept]
        before = self.total_predictions, self.total_gold_labels
        self.reset()
        original(self, predictions, gold_labels)
        self.total_predictions = _after(before[0], self.total_predictions)
        self.total_gold_labels = _after(before[1], self.total_gold_labels)


def small_numbers(module: ModuleType) -> None:
    """Let "pearson_correlation" work with small numbers, too.

    AllenNLP returns 0 where the product of the standard deviations is below 5e-6, such as that of
    targets and predictions of about 0.001. Only a standard deviation of 0 makes it 0 here, up to
    rounding in float32. Can be removed when AllenNLP compares each with the size of its numbers.
    """

    @replaces(module.PearsonCorrelation)
    def get_metric(original: Any, self: Any, reset: bool = False) -> float:
        if module.is_distributed():
            return original(self, reset)  # which refuses
        covariance = self._predictions_labels_covariance.get_metric()
        denominator = 1.0
        for variance in (self._predictions_variance, self._labels_variance):
            deviation = math.sqrt(variance.get_metric())
            constant = deviation <= _ROUNDING * abs(variance._total_label_mean)
            denominator *= 0.0 if constant else deviation
        if reset:
            self.reset()
        return covariance / denominator if denominator else 0.0


def pairs_of_processes(module: ModuleType) -> None:
    """Let "auc" with several processes count every pair once.

    Each call of AllenNLP's gathers what earlier calls have gathered, too. Can be removed when it
    gathers the pairs of the call alone.
    """

    @replaces(module.Auc)
    def __call__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        before = self._all_predictions, self._all_gold_labels
        self.reset()
        original(self, *args, **kwargs)
        self._all_predictions = _after(before[0], self._all_predictions)
        self._all_gold_labels = _after(before[1], self._all_gold_labels)


def sums_of_processes(module: ModuleType) -> None:
    """Let "attachment_scores" sum its counts before processes exchange them.

    AllenNLP exchanges a number for each token, of which processes have different numbers, so that
    the run broke off. Can be removed when it exchanges sums.
    """

    @replaces(module)
    def dist_reduce_sum(original: Any, value: Any) -> Any:
        return original(value.sum() if isinstance(value, module.torch.Tensor) else value)


def counts_of_processes(module: ModuleType) -> None:
    """Let "separation" and "sufficiency" compare counts of all processes with such counts.

    Of the counts by class, AllenNLP exchanges those of the last class alone. They are the sums of
    the counts by class and protected label, of which it exchanges all. Can be removed when it
    exchanges both.
    """
    _sum_over_labels(module.Separation, "_predicted_label_counts_by_gold_label")
    _sum_over_labels(module.Sufficiency, "_gold_label_counts_by_predicted_label")


def _sum_over_labels(metric: Any, counts: str) -> None:
    @replaces(metric)
    def __call__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        by_label = getattr(self, f"{counts}_and_protected_variable_label")
        setattr(self, counts, by_label.sum(dim=1))


def _after(earlier: Any, values: Any) -> Any:
    import torch

    return torch.cat((earlier.to(values.device, values.dtype), values))


def predicted_classes(module: ModuleType) -> None:
    """Let "fbeta" and the metrics on top of it leave out predictions of zeros, not of sum 0.

    AllenNLP leaves out rows that are all zeros, but tests their sum: the logits (-x, x), say, or
    rows that cancel out in half precision. Can be removed when it tests every number.
    """
    import torch

    @replaces(module.FBetaMeasure)
    def __call__(original: Any, self: Any, predictions: Any, *args: Any, **kwargs: Any) -> None:
        chosen = torch.zeros_like(predictions, dtype=torch.float32)
        chosen.scatter_(-1, predictions.max(dim=-1, keepdim=True)[1], 1.0)
        original(self, chosen * _any_number(predictions), *args, **kwargs)


def predicted_labels(module: ModuleType) -> None:
    """Do for "fbeta_multi_label" what `predicted_classes` does.

    Can be removed together with that switch.
    """

    @replaces(module.FBetaMultiLabelMeasure)
    def __call__(original: Any, self: Any, predictions: Any, *args: Any, **kwargs: Any) -> None:
        threshold = self._threshold
        chosen = (predictions >= threshold).float() * _any_number(predictions)
        self._threshold = 0.5
        try:
            original(self, chosen, *args, **kwargs)
        finally:
            self._threshold = threshold


def _any_number(predictions: Any) -> Any:
    return (predictions != 0).any(dim=-1, keepdim=True)


def names_of_classes(module: ModuleType) -> None:
    """Let "fbeta_verbose" give the scores of chosen `labels` the names of their classes.

    AllenNLP takes their position in `labels` for the class, so that the scores of class 1 get the
    name of class 0 in `index_to_label`. Without that, positions stay the names. Can be removed when
    `get_metric` looks up names by `labels`.
    """

    @replaces(module.FBetaVerboseMeasure)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        names = self._index_to_label
        if self._labels is not None and names:
            self._index_to_label = {n: names[label] for n, label in enumerate(self._labels)}


def continued_spans(module: ModuleType) -> None:
    """Let "span_f1" join a span C-ARG1 with those of ARG1 alone.

    AllenNLP joins it with all spans whose label contains ARG1, such as R-ARG1 and ARG10, which it
    then neither expects nor finds. Can be removed when AllenNLP compares labels as a whole.
    """

    def _handle_continued_spans(spans: list[Any]) -> list[Any]:
        continued = {label[2:] for label, _ in spans if label.startswith("C-")}
        joined = {span for span in spans if span[0].removeprefix("C-") not in continued}
        for name in continued:
            parts = [place for label, place in spans if label in (name, f"C-{name}")]
            place = min(start for start, _ in parts), max(end for _, end in parts)
            joined.add((name, place))
        return list(joined)

    module.SpanBasedF1Measure._handle_continued_spans = staticmethod(_handle_continued_spans)
