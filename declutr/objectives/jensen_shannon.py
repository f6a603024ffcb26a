"""How far two predictions of the same thing are apart (Jensen-Shannon divergence)."""

import math

import torch
from torch.nn.functional import log_softmax

from declutr.objectives.full_precision import full_precision
from declutr.objectives.reductions import reduced


@full_precision
def jensen_shannon(
    logits_p: torch.Tensor, logits_q: torch.Tensor, reduction: str = "mean"
) -> torch.Tensor:
    """`KL(P || M) / 2 + KL(Q || M) / 2` in nats, `M = (P + Q) / 2`; in [0, log 2], symmetric.

    The consistency term of cutoff (Shen et al., 2020, section 3.3), between what is predicted for a
    text and for the same text cut. The public code computes `KL(M || P) / 2 + KL(M || Q) / 2`,
    which has no upper bound.

    # Parameters

    logits_p, logits_q : `(N, C)`, scores of C classes; `-inf` rules a class out.
    reduction : of the N divergences: `"mean"`, `"sum"` or `"none"`.

    # Raises

    `ValueError` : other shapes; an unknown reduction.
    """
    if logits_p.shape != logits_q.shape or logits_p.dim() != 2:
        raise ValueError(
            "Expected two predictions (N, C) of the same shape, got "
            f"{tuple(logits_p.shape)} and {tuple(logits_q.shape)}."
        )
    # 0 * log 0 is 0: a class that is ruled out gets the lowest finite logarithm.
    log_p, log_q = (
        log_softmax(logits, dim=1).clamp_min(torch.finfo(logits.dtype).min / 4)
        for logits in (logits_p, logits_q)
    )
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    terms = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)  # (N, C)
    return reduced(terms.sum(dim=1) / 2, reduction, logits_p, logits_q)
