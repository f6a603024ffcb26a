"""Losses of classifiers whose predictions are to be the same for all views of a text (UDA).

The source is "Unsupervised Data Augmentation for Consistency Training" (Xie et al., 2020). The
divergence of Cutoff (Shen et al., 2020) is `declutr.objectives.distances.jensen_shannon`.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from declutr.objectives.numerics import full_precision, one_of, reduced

SCHEDULES = ("linear", "log", "exp")
_STEEPNESS = 5  # of the schedules "log" and "exp" in the paper's section 2.4


@full_precision
def sharpened_divergence(
    logits: Tensor,
    view_logits: Tensor,
    temperature: float = 1.0,
    confidence: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute the divergence `KL(P || Q)` of a text's prediction P and that for a view of it, Q.

    P is the softmax of `logits / temperature`, without gradient. Where no class has a probability
    above `confidence` (before sharpening) the divergence counts as 0, and the text still counts in
    the mean (Xie et al., 2020, equation 1 and section 2.3, as in the public code).

    # Parameters

    logits, view_logits : scores `(N, C)` of the texts and of their views.
    temperature : the temperature of P; below 1 it is sharper than the prediction.
    confidence : the probability that a class must exceed, in [0, 1).
    reduction : `"mean"`, `"sum"` or `"none"` over the N divergences.

    # Raises

    `ValueError` : if the predictions are not both `(N, C)` or the reduction is unknown.
    """
    if logits.shape != view_logits.shape or logits.dim() != 2:
        raise ValueError(
            "Expected two predictions (N, C) of the same shape, got "
            f"{tuple(logits.shape)} and {tuple(view_logits.shape)}."
        )
    logits = logits.detach()
    targets = log_softmax(logits / temperature, dim=1)
    terms = (targets.exp() * (targets - log_softmax(view_logits, dim=1))).sum(dim=1)
    counted = logits.softmax(dim=1).amax(dim=1) > confidence
    return reduced(terms.where(counted, 0), reduction, view_logits)


@full_precision
def annealed_cross_entropy(
    logits: Tensor, labels: Tensor, threshold: float
) -> tuple[Tensor, Tensor]:
    """Compute the cross entropy of the labelled texts that are not yet predicted well enough.

    Texts whose label has a probability above the threshold are left out (training signal annealing;
    Xie et al., 2020, section 2.4).

    # Parameters

    logits : scores `(N, C)`.
    labels : classes `(N,)`.
    threshold : see `annealing_threshold`.

    # Returns

    The sum over the texts that count, and their number, both scalars. The loss is their quotient,
    or 0 if there are none.
    """
    terms = cross_entropy(logits, labels, reduction="none")
    counted = (-terms.detach()).exp() <= threshold
    return terms.where(counted, 0).sum(), counted.sum()


def annealing_threshold(schedule: str, progress: float, classes: int) -> float:
    """Return the probability of its label above which a text is left out at a time of training.

    It is `a (1 - 1 / C) + 1 / C`, where a goes from 0 to 1: `progress` itself ("linear"),
    `1 - exp(-5 progress)` ("log") or `exp(5 (progress - 1))` ("exp").

    # Parameters

    schedule : one of `SCHEDULES`. "exp" suits problems that are easily overfitted, "log" others.
    progress : the share of the steps that are done, in [0, 1].
    classes : the number C of classes.

    # Raises

    `ValueError` : if the schedule is unknown.

    # Examples

    >>> annealing_threshold("linear", 0.5, classes=2)
    0.75
    """
    one_of("schedule", schedule, SCHEDULES, ValueError)
    share = progress
    if schedule == "log":
        share = 1 - math.exp(-_STEEPNESS * progress)
    elif schedule == "exp":
        share = math.exp(_STEEPNESS * (progress - 1))
    return share * (1 - 1 / classes) + 1 / classes


def logits_of(output: dict[str, Tensor], who: str) -> Tensor:
    """Return scores `(N, C)` of a classifier's outputs: its `logits`, or the logarithms of `probs`.

    # Raises

    `ValueError` : if there are neither, or they are not `(N, C)`.
    """
    found = output.get("logits", output.get("probs"))
    if found is None or found.dim() != 2:
        got = "none" if found is None else str(tuple(found.shape))
        raise ValueError(
            f"Expected 'logits' or 'probs' (N, C) of {who}, one row for each text, got {got} among "
            f"{', '.join(output) or 'no outputs'}."
        )
    if "logits" in output:
        return found
    return found.clamp_min(torch.finfo(found.dtype).tiny).log()
