"""Masked language modelling: what a transformer's head makes of masked tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from declutr.sampling.masking import IGNORE
from declutr.system.host_copies import on_host, to_device
from declutr.transformer.linear.training_products import quick_products
from declutr.transformer.masked_lm_head import masked_lm_logits


class MaskedLMOutput(NamedTuple):
    """What a pass over masked text gives."""

    embeddings: torch.Tensor
    """Token vectors as `forward` gives them, of the last layer or a mix of all: `(N, L, d)`."""

    loss_sum: torch.Tensor
    """Cross entropy, summed over the masked tokens; 0 (with a graph) if there are none."""

    num_correct: torch.Tensor
    """How many of them the model gets right, without a gradient."""

    num_masked: torch.Tensor
    """How many there are."""


def predicted(
    transformer: torch.nn.Module,
    embeddings: torch.Tensor,
    hidden: torch.Tensor,
    labels: torch.Tensor,
) -> MaskedLMOutput:
    """Predict masked tokens by the head of a transformer, which is run on their positions alone.

    # Parameters

    transformer : the model with the head.
    embeddings : to go into the output.
    hidden : `(N, L, d)`, what the head reads.
    labels : `(N, L)`, the original id at masked positions, `IGNORE` elsewhere.
    """
    on_host_labels = on_host(labels).flatten()  # (N * L,)
    places = (on_host_labels != IGNORE).nonzero()[:, 0]  # (M,)
    if not len(places):
        # The head must still take part, or DistributedDataParallel would wait for its gradient.
        nothing = masked_lm_logits(transformer, hidden[:1, 0]).sum() * 0
        zero = torch.zeros((), device=nothing.device)
        return MaskedLMOutput(embeddings, nothing.float(), zero, zero)
    sent = to_device(torch.stack([places, on_host_labels[places]]), hidden.device)
    positions, targets = sent.unbind()
    masked = hidden.flatten(0, 1).index_select(0, positions)  # (M, d)
    with quick_products(transformer, masked.device):
        logits = masked_lm_logits(transformer, masked)  # (M, V)
    return MaskedLMOutput(
        embeddings,
        cross_entropy(logits.float(), targets, reduction="sum"),
        (logits.detach().argmax(dim=-1) == targets).sum().float(),
        torch.full((), len(places), dtype=torch.float32, device=hidden.device),
    )
