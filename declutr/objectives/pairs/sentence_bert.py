"""What Sentence-BERT learns from labelled pairs (Reimers & Gurevych, 2019); `triplet` is its third
objective."""

from collections.abc import Callable, Sequence
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import cross_entropy

from declutr.objectives.checks import (
    above_zero,
    check_classes,
    check_views,
    one_of,
    require,
    scalar_reduction,
)
from declutr.objectives.numerics import full_precision, reduced, unit
from declutr.objectives.objective import Objective

_PARTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "difference": lambda u, v: (u - v).abs(),
    "product": lambda u, v: u * v,
}
CONCATENATION = ("u", "v", "difference")


@full_precision
def pair_logits(
    u: Tensor, v: Tensor, weight: Tensor, concatenation: Sequence[str] = CONCATENATION
) -> Tensor:
    """`W (u; v; |u - v|)`, the logits `(N, K)` of the classes of pairs (section 3).

    # Parameters

    u, v : raw `(N, d)`, row i of both belonging together.
    weight : W, `(K, C * d)` for C parts.
    concatenation : the parts, in order: of `"u"`, `"v"`, `"difference"`, |u - v|, and `"product"`,
        u * v by element.

    # Raises

    `ValueError` : shapes that do not fit, an unknown part.
    """
    check_views(u, v)
    for part in concatenation:
        if part not in _PARTS:
            raise ValueError(f"Unknown part '{part}': expected some of {', '.join(_PARTS)}.")
    features = torch.cat([_PARTS[part](u, v) for part in concatenation], dim=1)  # (N, C * d)
    if features.size(1) != weight.size(1):
        raise ValueError(
            f"Expected rows of width {weight.size(1) / len(concatenation):g} (embedding_size), got "
            f"{tuple(u.shape)}."
        )
    return features @ weight.to(features.dtype).T


@full_precision
def pair_softmax_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross entropy of logits `(N, K)` against classes `(N,)`, 0 to K - 1.

    # Raises

    `ValueError` : labels that are not such classes, an unknown reduction.
    """
    count, classes = logits.shape
    check_classes(labels, count)
    require(
        ((labels >= 0) & (labels < classes)).all(),
        f"Expected classes from 0 to {classes - 1} (num_labels is {classes})",
        labels,
    )
    terms = cross_entropy(logits, labels.long(), reduction="none")
    return reduced(terms, reduction, logits)


@full_precision
def cosine_regression_loss(u: Tensor, v: Tensor, scores: Tensor, reduction: str = "mean") -> Tensor:
    """`(cos(u_i, v_i) - score_i)^2` (section 3, regression objective).

    # Parameters

    u, v : raw `(N, d)`, row i of both belonging together.
    scores : `(N,)` of floats in [-1, 1].
    reduction : `"mean"`, `"sum"` or `"none"` `(N,)`.

    # Raises

    `ValueError` : shapes that do not fit, scores that no cosine can meet, an unknown reduction.
    """
    check_views(u, v)
    count = len(u)
    if not scores.is_floating_point() or scores.shape != (count,):
        raise ValueError(
            f"Expected the score (float32) of each of the {count} pairs, got {scores.dtype} "
            f"{tuple(scores.shape)}. Classes are for 'pair_softmax'."
        )
    require(
        (scores.abs() <= 1).all(),  # not if one is not a number
        "Expected scores from -1 to 1, as cosines are",
        scores,
        "Set max_score on the dataset reader to the highest there can be, such as 5 for STS.",
    )
    cosines = (unit(u) * unit(v)).sum(dim=1)  # (N,)
    return reduced((cosines - scores.to(cosines.dtype)).square(), reduction, u, v)


@Objective.register("pair_softmax")
class PairSoftmax(Objective):
    """A softmax classifier on top of both embeddings, for pairs with classes such as those of
    natural language inference; see `pair_logits`.

    As printed it has no bias, which the public code adds. It is trained with the encoder and left
    behind when texts are embedded. After a step `last_metrics` holds `class_accuracy`, the share of
    pairs whose class has the highest logit.

    # Parameters

    num_labels : K, 2 or more: 3 for natural language inference.
    embedding_size : d, the width of embeddings (or of projections, with a head).
    concatenation : what the classifier sees: some of `"u"`, `"v"`, `"difference"` and `"product"`;
        by default all but the last, the best of the paper's table 6.
    reduction : `"mean"` or `"sum"` over the pairs.
    """

    min_pairs = 1  # pairs are judged one by one

    def __init__(
        self,
        num_labels: int,
        embedding_size: int,
        concatenation: Optional[list[str]] = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if num_labels < 2:
            raise ConfigurationError(f"num_labels must be at least 2, got {num_labels}.")
        self.embedding_size = above_zero("embedding_size", embedding_size)
        parts = CONCATENATION if concatenation is None else tuple(concatenation)
        for part in parts:
            one_of("part of the concatenation", part, _PARTS)
        if not parts or len(set(parts)) < len(parts):
            raise ConfigurationError(
                f"concatenation must name some of {', '.join(_PARTS)}, each once; got "
                f"{list(parts)}."
            )
        self.concatenation = parts
        self.classifier = torch.nn.Linear(len(parts) * embedding_size, num_labels, bias=False)
        self.reduction = scalar_reduction(reduction)
        self.last_metrics: dict[str, Tensor] = {}

    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, labels: Tensor
    ) -> Tensor:
        logits = pair_logits(anchors, positives, self.classifier.weight, self.concatenation)
        loss = pair_softmax_loss(logits, labels, self.reduction)
        if len(labels):
            right = logits.detach().argmax(dim=1) == labels
            self.last_metrics = {"class_accuracy": right.float().mean()}
        return loss


@Objective.register("cosine_regression")
class CosineRegression(Objective):
    """`cosine_regression_loss` of pairs with scores, such as those of semantic textual similarity.

    # Parameters

    reduction : `"mean"` or `"sum"` over the pairs.
    """

    min_pairs = 1  # pairs are judged one by one

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = scalar_reduction(reduction)

    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, labels: Tensor
    ) -> Tensor:
        return cosine_regression_loss(anchors, positives, labels, self.reduction)
