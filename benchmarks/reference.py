"""A training step of the original recipe, written plainly: what our step is measured against.

The published code (JohnGiorgi/DeCLUTR) trains Hugging Face's masked language model as it is:

- anchors are padded to the longest and masked; the head predicts *every* position over the whole
  vocabulary, and the model's own loss leaves out those that were not masked;
- positives go through the same model, head included, for the sake of their hidden states;
- embeddings are means over unpadded positions, positives the mean of their group;
- NT-Xent is `NTXentLoss` of pytorch-metric-learning on labelled rows, added to the masked
  language modelling loss;
- AdamW, with gradients clipped to norm 1.

What it costs there it costs here. Attention is what transformers chooses today (the original had
no other than the eager one, which is slower), so the comparison is with the recipe, not with 2020.
"""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.losses import NTXentLoss

TEMPERATURE = 0.05
GRADIENT_NORM = 1.0
IGNORE = -100
"""The label of positions that are not predicted, in transformers and in torch."""


def reference_loss(
    model: Any,
    anchors_masked: torch.Tensor,
    labels: torch.Tensor,
    anchors_mask: torch.Tensor,
    positives: torch.Tensor,
    positives_mask: torch.Tensor,
    *,
    bfloat16: bool = False,
) -> torch.Tensor:
    """The joint loss of one batch, with its graph: NT-Xent plus masked language modelling.

    A pure function of its arguments, but for dropout: `model.eval()` switches that off.

    Args:
        model: of `AutoModelForMaskedLM`.
        anchors_masked: token ids after masking, `(N, L)`, special tokens and padding included.
        labels: original ids at masked positions, `IGNORE` elsewhere, `(N, L)`.
        anchors_mask: true where there is no padding, `(N, L)`.
        positives: token ids `(N * P, M)`, those of the first anchor first.
        positives_mask: `(N * P, M)`.
        bfloat16: compute in bfloat16 where autocast does; losses are in float32 either way.
    """
    with torch.autocast(anchors_masked.device.type, torch.bfloat16, enabled=bfloat16):
        output = model(
            input_ids=anchors_masked,
            attention_mask=anchors_mask.long(),
            labels=labels,
            output_hidden_states=True,
        )
        embedded = mean_over_tokens(output.hidden_states[-1], anchors_mask)  # (N, d)
        embedded_positives = _embedded(model, positives, positives_mask)  # (N * P, d)
    positive_means = embedded_positives.view(len(embedded), -1, embedded.size(1)).mean(dim=1)
    rows = torch.arange(len(embedded), device=embedded.device)
    contrast = NTXentLoss(temperature=TEMPERATURE)
    pairs = torch.cat([embedded, positive_means])  # (2N, d)
    return contrast(pairs, torch.cat([rows, rows])) + output.loss


def mean_over_tokens(token_vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean `(N, d)` of token vectors `(N, L, d)` where `mask` `(N, L)` is true, in float32 at
    least."""
    dtype = torch.promote_types(token_vectors.dtype, torch.float32)
    weights = mask.unsqueeze(-1).to(dtype)
    return (token_vectors.to(dtype) * weights).sum(dim=1) / weights.sum(dim=1)


def _embedded(model: Any, token_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # Its logits, (N, L, V), are computed and go when this returns.
    output = model(input_ids=token_ids, attention_mask=mask.long(), output_hidden_states=True)
    return mean_over_tokens(output.hidden_states[-1], mask)


def reference_mask(
    token_ids: torch.Tensor, tokenizer: Any, probability: float = 0.15
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose tokens for prediction as the original does: on the CPU, row by row for special tokens.

    Args:
        token_ids: `(N, L)`, on any device.
        tokenizer: of transformers, with a mask token.
        probability: share of ordinary tokens that are chosen.

    Returns:
        The ids after masking and the labels, both `(N, L)` and on the device of `token_ids`: of
        those chosen 80 % are hidden, 10 % replaced by a random token, 10 % left as they are.
    """
    ids = token_ids.to("cpu", copy=True)
    labels = ids.clone()
    special = [
        tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True)
        for row in ids.tolist()
    ]
    chance = torch.full(ids.shape, probability)
    chance.masked_fill_(torch.tensor(special, dtype=torch.bool), 0.0)
    chance.masked_fill_(ids == tokenizer.pad_token_id, 0.0)
    chosen = torch.bernoulli(chance).bool()
    labels[~chosen] = IGNORE
    hidden = chosen & torch.bernoulli(torch.full(ids.shape, 0.8)).bool()
    replaced = chosen & ~hidden & torch.bernoulli(torch.full(ids.shape, 0.5)).bool()
    ids[hidden] = tokenizer.mask_token_id
    ids[replaced] = torch.randint(len(tokenizer), ids.shape)[replaced]
    return ids.to(token_ids.device), labels.to(token_ids.device)


def reference_optimizer(model: torch.nn.Module, fused: bool | None = None) -> torch.optim.AdamW:
    """AdamW at 5e-5 with a decay of 0.1, none on biases and layer norms; `fused` is torch's."""
    decayed: list[torch.nn.Parameter] = []
    plain: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (plain if "bias" in name or "norm" in name.lower() else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=5e-5, eps=1e-6, fused=fused)


def reference_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    anchors_masked: torch.Tensor,
    labels: torch.Tensor,
    anchors_mask: torch.Tensor,
    positives: torch.Tensor,
    positives_mask: torch.Tensor,
    *,
    bfloat16: bool = False,
) -> float:
    """One update of the weights; returns the loss. Arguments as in `reference_loss`."""
    optimizer.zero_grad(set_to_none=True)
    loss = reference_loss(
        model, anchors_masked, labels, anchors_mask, positives, positives_mask, bfloat16=bfloat16
    )
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
    optimizer.step()
    return float(loss.detach())
