"""Corrupts tokens for masked language modelling (BERT, NAACL 2019, section 3.1, task 1).

Of all tokens that may be masked, a share (15 % by default) is selected, each independently. Of
those, 80 % become the mask token, 10 % a random token and 10 % stay as they are; the model is to
predict all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

IGNORE = -100
"""The label of a token that is not to be predicted; torch's cross-entropy leaves it out."""

MASKED_SHARE = 0.8
RANDOM_SHARE = 0.1


def mask_tokens(
    token_ids: Tensor,
    maskable: Tensor,
    *,
    mask_id: int,
    vocab_size: int,
    probability: float = 0.15,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Select tokens at random and hide 80 % of them, replace 10 % and keep 10 %.

    Nothing is read back from the device, and `token_ids` is not modified.

    Args:
        token_ids: ``(N, L)`` int64.
        maskable: ``(N, L)`` bool, true for tokens that may be selected: neither special nor
            padding. A boolean mask only; nothing is selected where it is false.
        mask_id: id of the mask token.
        vocab_size: random tokens are drawn uniformly from ``{0 .. vocab_size - 1}``, special
            tokens included, as in the published code.
        probability: chance of a maskable token to be selected, in [0, 1].
        generator: source of the random numbers, on the device of `token_ids`; by default torch's
            global one for that device.

    Returns:
        The corrupted ids ``(N, L)``, and the labels ``(N, L)``: the original ids where a token
        was selected, `IGNORE` elsewhere. All labels may be `IGNORE`.

    Raises:
        ValueError: for a probability outside [0, 1], an empty vocabulary or arguments of
            different shapes.
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
