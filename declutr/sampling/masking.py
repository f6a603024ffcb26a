"""Corruption of tokens for masked language modelling (BERT, NAACL 2019, section 3.1, task 1).

Each token that may be masked is selected independently with the same probability, 15 % by default.
Of the selected tokens 80 % become the mask token, 10 % become a random token and 10 % stay as they
are. The model is trained to predict all selected tokens.
"""

import torch
from torch import Tensor

IGNORE = -100
"""The label of a token that is not to be predicted, which torch's cross entropy leaves out."""

MASKED_SHARE = 0.8
"""The share of selected tokens that become the mask token."""

RANDOM_SHARE = 0.1
"""The share of selected tokens that become a random token."""


def mask_tokens(
    token_ids: Tensor,
    maskable: Tensor,
    *,
    mask_id: int,
    vocab_size: int,
    probability: float = 0.15,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Select tokens at random, and of these mask 80 %, replace 10 % and keep 10 %.

    No value is read back from the device, and `token_ids` is not modified.

    Args:
        token_ids: token ids ``(N, L)``, int64.
        maskable: a boolean mask ``(N, L)`` of the tokens that may be selected: those that are
            neither special tokens nor padding.
        mask_id: the id of the mask token.
        vocab_size: the size of the vocabulary. Random tokens are drawn uniformly from
            ``{0 .. vocab_size - 1}``, special tokens included, as in the published code.
        probability: the probability with which a maskable token is selected, in [0, 1].
        generator: the source of random numbers, on the device of `token_ids`; by default torch's
            global generator for that device.

    Returns:
        The corrupted ids ``(N, L)``, and the labels ``(N, L)``: the original ids where a token
        was selected, `IGNORE` elsewhere. All labels may be `IGNORE`.

    Raises:
        ValueError: if the probability is outside [0, 1], the vocabulary is empty, or the arguments
            differ in shape.
        TypeError: if `maskable` is not boolean.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must lie between 0 and 1, not {probability}.")
    if vocab_size < 1:
        raise ValueError(f"vocab_size must be at least 1, not {vocab_size}.")
    if token_ids.shape != maskable.shape:
        raise ValueError(
            f"token_ids {tuple(token_ids.shape)} and maskable {tuple(maskable.shape)} differ in "
            "shape; both must be (N, L)."
        )
    if maskable.dtype != torch.bool:
        raise TypeError(f"maskable must be a bool tensor, not {maskable.dtype}.")
    shape, device = token_ids.shape, token_ids.device
    drawn = torch.rand(shape, device=device, generator=generator)  # (N, L), in [0, 1)
    fate = torch.rand(shape, device=device, generator=generator)  # (N, L), in [0, 1)
    random_ids = torch.randint(
        vocab_size, shape, device=device, dtype=token_ids.dtype, generator=generator
    )  # (N, L)

    selected = maskable & (drawn < probability)  # (N, L)
    hidden = selected & (fate < MASKED_SHARE)
    replaced = selected & (fate >= MASKED_SHARE) & (fate < MASKED_SHARE + RANDOM_SHARE)
    masked_ids = token_ids.masked_fill(hidden, mask_id)
    masked_ids = torch.where(replaced, random_ids, masked_ids)
    labels = token_ids.masked_fill(~selected, IGNORE)
    return masked_ids, labels
