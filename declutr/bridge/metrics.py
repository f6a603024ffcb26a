"""Repairs of AllenNLP's metrics that report other figures than their names say."""

from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def masked_pairs(module: ModuleType) -> bool:
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
            predictions, gold_labels = predictions[mask], gold_labels[mask]
        before = self.total_predictions, self.total_gold_labels
        self.reset()
        original(self, predictions, gold_labels)
        self.total_predictions = _after(before[0], self.total_predictions)
        self.total_gold_labels = _after(before[1], self.total_gold_labels)

    return True


def pairs_of_processes(module: ModuleType) -> bool:
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

    return True


def _after(earlier: Any, values: Any) -> Any:
    import torch

    return torch.cat((earlier.to(values.device, values.dtype), values))


def predicted_classes(module: ModuleType) -> bool:
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

    return True


def predicted_labels(module: ModuleType) -> bool:
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

    return True


def _any_number(predictions: Any) -> Any:
    return (predictions != 0).any(dim=-1, keepdim=True)


def names_of_classes(module: ModuleType) -> bool:
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

    return True
