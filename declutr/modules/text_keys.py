"""Numbers that tell texts apart: equal for the same tokens, whatever the padding around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from declutr.modules.text_field_masks import indexed_ids, mask_of_ids, text_fields

# Odd, so that nothing gets lost modulo 2^64; the powers of the first repeat after 2^62 places.
_OF_PLACES, _OF_FIELDS = 6364136223846793005, 1442695040888963407


def text_keys(batch: Mapping[str, Any]) -> Tensor | None:
    """Keys `(n,)` (int64) of the instances of a batch: polynomials in the ids of all their text
    fields, modulo 2^64. Different texts of some hundred tokens have the same one by chance only.

    # Returns

    The keys; `None` if there are no text fields with ids.
    """
    keys: Tensor | None = None
    fields = text_fields(batch)
    for name in sorted(fields):
        for indexer, ids in indexed_ids(fields[name]):
            powers = torch.full_like(ids[0], _OF_PLACES, dtype=torch.long).cumprod(dim=0)
            tokens = (ids.long() + 1) * mask_of_ids(fields[name][indexer], ids)
            sums = (tokens * powers).sum(dim=1)
            keys = sums if keys is None else keys * _OF_FIELDS + sums
    return keys
