"""Masked language modelling: the language modelling head and its loss, on masked tokens only."""

import torch
from torch.nn.functional import cross_entropy

from declutr.sampling.masking import IGNORE
from declutr.system.host_memory import on_host, to_device
from declutr.transformer.architectures import masked_lm_logits
from declutr.transformer.training_products import quick_products, quick_rows


def masked_lm_sums(
    transformer: torch.nn.Module, hidden: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the cross entropy and the numbers of correct and of all predictions of masked tokens.

    The head is run on the masked positions only.

    # Parameters

    transformer : the model with its language modelling head.
    hidden : `(N, L, d)`, the layer that the head reads.
    labels : `(N, L)`, the original id at masked positions and `IGNORE` elsewhere.

    # Returns

    The three sums over masked tokens, as in `MaskedLMOutput`.
    """
    on_host_labels = on_host(labels).flatten()  # (N * L,)
    places = (on_host_labels != IGNORE).nonzero()[:, 0]  # (M,)
    if not len(places):
        # The head must take part, or DistributedDataParallel would wait for its gradient.
        nothing = masked_lm_logits(transformer, hidden[:1, 0]).sum() * 0
        zero = torch.zeros((), device=nothing.device)
        return nothing.float(), zero, zero
    taken = torch.stack([places, on_host_labels[places]])
    if hidden.device.type == "cpu":
        words = getattr(transformer.config, "vocab_size", 0)
        more = quick_rows(len(places), words * hidden.size(-1)) - len(places)
        taken = torch.cat([taken, torch.tensor([[0], [IGNORE]]).expand(-1, more)], dim=1)
    positions, targets = to_device(taken, hidden.device).unbind()
    masked = hidden.flatten(0, 1).index_select(0, positions)  # (M, d)
    with quick_products(transformer, masked.device):
        logits = masked_lm_logits(transformer, masked)  # (M, V)
    return (
        cross_entropy(logits.float(), targets, ignore_index=IGNORE, reduction="sum"),
        (logits.detach().argmax(dim=-1) == targets).sum().float(),
        torch.full((), len(places), dtype=torch.float32, device=hidden.device),
    )
