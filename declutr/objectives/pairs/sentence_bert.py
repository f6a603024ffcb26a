"""The objectives of Sentence-BERT for labelled pairs (Reimers & Gurevych, 2019).

The third objective of Sentence-BERT, which needs no labels, is `triplet`.
"""

from collections.abc import Callable, Sequence
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward
from allennlp.nn import Activation
from torch import Tensor
from torch.nn.functional import cross_entropy

from declutr.objectives import numerics
from declutr.objectives.objective import Objective

_PARTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "difference": lambda u, v: (u - v).abs(),
    "product": lambda u, v: u * v,
}
CONCATENATION = ("u", "v", "difference")


@numerics.full_precision
def pair_logits(
    u: Tensor, v: Tensor, weight: Tensor, concatenation: Sequence[str] = CONCATENATION
) -> Tensor:
    """Compute the logits of the classes of pairs from a concatenation of both embeddings.

    By default they are `W (u; v; |u - v|)` (Reimers & Gurevych, 2019, section 3).

    # Parameters

    u, v : raw embeddings `(N, d)`, of which row i of both belongs together.
    weight : the matrix W `(K, C * d)` for K classes and C parts.
    concatenation : the parts in order, each one of `"u"`, `"v"`, `"difference"`, which is |u - v|,
        and `"product"`, which is u * v by element.

    # Returns

    Logits `(N, K)`.

    # Raises

    `ValueError` : if shapes do not fit or a part is unknown.
    """
    features = _features(u, v, concatenation, weight.size(1))
    return features @ weight.to(features.dtype).T


def _features(u: Tensor, v: Tensor, concatenation: Sequence[str], width: int) -> Tensor:
    """Return the parts of pairs next to each other, `(N, C * d)`; raise unless that is `width`."""
    numerics.check_views(u, v)
    for part in concatenation:
        if part not in _PARTS:
            raise ValueError(f"Unknown part '{part}': expected some of {', '.join(_PARTS)}.")
    features = torch.cat([_PARTS[part](u, v) for part in concatenation], dim=1)
    if features.size(1) != width:
        raise ValueError(
            f"Expected rows of width {width / len(concatenation):g} (embedding_size), got "
            f"{tuple(u.shape)}."
        )
    return features


@numerics.full_precision
def pair_softmax_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the cross entropy of the classes of pairs.

    # Parameters

    logits : scores `(N, K)` of K classes.
    labels : the true classes `(N,)`, integers from 0 to K - 1.
    reduction : `"mean"` or `"sum"` over the N pairs, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if labels are not such classes or the reduction is unknown.
    """
    count, classes = logits.shape
    numerics.check_classes(labels, count)
    numerics.require(
        ((labels >= 0) & (labels < classes)).all(),
        f"Expected classes from 0 to {classes - 1} (num_labels is {classes})",
        labels,
    )
    terms = cross_entropy(logits, labels.long(), reduction="none")
    return numerics.reduced(terms, reduction, logits)


@numerics.full_precision
def cosine_regression_loss(u: Tensor, v: Tensor, scores: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the squared differences between the cosines of pairs and their scores.

    The loss of pair i is `(cos(u_i, v_i) - score_i)^2` (Reimers & Gurevych, 2019, section 3,
    regression objective).

    # Parameters

    u, v : raw embeddings `(N, d)`, of which row i of both belongs together.
    scores : floats `(N,)` in [-1, 1].
    reduction : `"mean"` or `"sum"` over the N pairs, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes do not fit, a score is outside of [-1, 1], or the reduction is unknown.
    """
    numerics.check_views(u, v)
    count = len(u)
    if not scores.is_floating_point() or scores.shape != (count,):
        raise ValueError(
            f"Expected the score (float32) of each of the {count} pairs, got {scores.dtype} "
            f"{tuple(scores.shape)}. Classes are for 'pair_softmax'."
        )
    numerics.require(
        (scores.abs() <= 1).all(),  # This is false if a score is not a number.
        "Expected scores from -1 to 1, as cosines are",
        scores,
        "Set max_score on the dataset reader to the highest there can be, such as 5 for STS.",
    )
    cosines = (numerics.unit(u) * numerics.unit(v)).sum(dim=1)  # (N,)
    return numerics.reduced((cosines - scores.to(cosines.dtype)).square(), reduction, u, v)


@Objective.register("pair_softmax")
class PairSoftmax(Objective):
    """The cross entropy of a softmax classifier on top of the embeddings of pairs with classes.

    It is for data such as natural language inference; see `pair_logits` and `pair_softmax_loss`.
    The classifier has no bias, as in the paper; the public code adds one. It is trained with the
    encoder and not used when texts are embedded. After a step `last_metrics` has `class_accuracy`,
    the share of pairs whose class has the highest logit.

    # Parameters

    num_labels : the number K of classes, 2 or more: 3 for natural language inference.
    embedding_size : the width d of embeddings, or of projections if the model has a projection
        head.
    concatenation : the parts that the classifier sees: some of `"u"`, `"v"`, `"difference"` and
        `"product"`. The default is all but the last, which is the best in the paper's table 6.
    reduction : `"mean"` or `"sum"` over the pairs.
    hidden_dims : the widths of hidden layers of the classifier; all its layers then have biases.
        InferSent (Conneau et al., 2017) has two of 512, over all four parts. By default there are
        none.
    activation : the activation of hidden layers, by its name in AllenNLP: `"linear"`, the default
        of InferSent's public code, `"tanh"`, its other one (`nonlinear_fc`), or others.
    """

    min_pairs = 1  # Each pair is judged on its own.

    def __init__(
        self,
        num_labels: int,
        embedding_size: int,
        concatenation: Optional[list[str]] = None,
        reduction: str = "mean",
        hidden_dims: Optional[list[int]] = None,
        activation: str = "linear",
    ) -> None:
        super().__init__()
        if num_labels < 2:
            raise ConfigurationError(f"num_labels must be at least 2, got {num_labels}.")
        self.embedding_size = numerics.above_zero("embedding_size", embedding_size)
        parts = CONCATENATION if concatenation is None else tuple(concatenation)
        for part in parts:
            numerics.one_of("part of the concatenation", part, _PARTS)
        if not parts or len(set(parts)) < len(parts):
            raise ConfigurationError(
                f"concatenation must name some of {', '.join(_PARTS)}, each once; got "
                f"{list(parts)}."
            )
        self.concatenation = parts
        self._width = len(parts) * embedding_size
        self.classifier = (
            _layered(self._width, hidden_dims, num_labels, activation)
            if hidden_dims
            else torch.nn.Linear(self._width, num_labels, bias=False)
        )
        self.reduction = numerics.scalar_reduction(reduction)
        self.last_metrics: dict[str, Tensor] = {}

    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, labels: Tensor
    ) -> Tensor:
        logits = self._logits(anchors, positives)
        loss = pair_softmax_loss(logits, labels, self.reduction)
        if len(labels):
            right = logits.detach().argmax(dim=1) == labels
            self.last_metrics = {"class_accuracy": right.float().mean()}
        return loss

    def _logits(self, u: Tensor, v: Tensor) -> Tensor:
        if isinstance(self.classifier, torch.nn.Linear):
            return pair_logits(u, v, self.classifier.weight, self.concatenation)
        features = numerics.full_precision(_features)(u, v, self.concatenation, self._width)
        dtype = next(self.classifier.parameters()).dtype
        return numerics.full_precision(self.classifier)(features.to(dtype))


def _layered(width: int, hidden: list[int], classes: int, activation: str) -> FeedForward:
    if min(hidden) < 1 or activation not in Activation.list_available():
        raise ConfigurationError(
            f"Got hidden_dims {hidden} and activation '{activation}'; expected widths of at least "
            f"1, and one of {', '.join(Activation.list_available())}."
        )
    activations = [Activation.by_name(activation)()] * len(hidden) + [
        Activation.by_name("linear")()
    ]
    return FeedForward(width, len(activations), [*hidden, classes], activations)


@Objective.register("cosine_regression")
class CosineRegression(Objective):
    """The squared error of cosines against the scores of pairs; see `cosine_regression_loss`.

    It is for data such as semantic textual similarity.

    # Parameters

    reduction : `"mean"` or `"sum"` over the pairs.
    """

    min_pairs = 1  # Each pair is judged on its own.

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = numerics.scalar_reduction(reduction)

    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, labels: Tensor
    ) -> Tensor:
        return cosine_regression_loss(anchors, positives, labels, self.reduction)
