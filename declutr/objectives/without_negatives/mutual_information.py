"""Mutual information between a sentence and its tokens (IS-BERT; Zhang et al., 2020)."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from declutr.objectives.numerics import full_precision
from declutr.objectives.objective import Objective


@full_precision
def jsd_mutual_information_loss(
    local_vectors: Tensor, mask: Tensor, global_vectors: Tensor, offsets: bool = True
) -> Tensor:
    """Compute minus the Jensen-Shannon estimate of mutual information of sentences and tokens.

    The loss is `E- - E+`. Let T be the dot product of a token embedding and a sentence embedding.
    `E+` is the mean of `log 2 - softplus(-T)` over tokens with their own sentence, and `E-` is the
    mean of `softplus(T) - log 2` over all pairs of a token and another sentence (Zhang et al.,
    2020, equation 3, with the dot product of the public code as the network T). A loss below 0 is
    better than chance. Both terms are means by definition, so there is no `reduction`.

    # Parameters

    local_vectors : token embeddings `(N, T, c)`.
    mask : a mask `(N, T)` that is true for tokens. Padding does not count, and neither do sentences
        without tokens.
    global_vectors : sentence embeddings `(N, c)`.
    offsets : whether to include both `log 2`. Without them the loss is larger by 2 log 2.

    # Raises

    `ValueError` : if shapes do not fit, or if there are fewer than two sentences.
    """
    _check_shapes(local_vectors, mask, global_vectors)
    mask = mask.bool()
    used = mask.any(dim=1)  # (N,)
    tokens, sentences = mask.sum(), used.sum()
    # Values at padding may be infinite or not a number, and 0 times such a value would still spoil
    # the gradients. So they are replaced before anything is computed.
    local_vectors = local_vectors.masked_fill(~mask.unsqueeze(-1), 0)
    global_vectors = global_vectors.masked_fill(~used.unsqueeze(-1), 0)
    scores = local_vectors @ global_vectors.T  # (N, T, N)
    other = used & ~torch.eye(len(used), dtype=torch.bool, device=used.device)  # (N, N)
    pairs = mask.unsqueeze(-1) & other.unsqueeze(1)  # (N, T, N)
    positive = softplus(-scores.diagonal(dim1=0, dim2=2)).where(mask.T, 0).sum()
    negative = softplus(scores).where(pairs, 0).sum()
    apart = positive / tokens.clamp_min(1) + negative / (tokens * (sentences - 1)).clamp_min(1)
    return (apart - (2 * math.log(2) if offsets else 0)).where(sentences > 1, 0)


def _check_shapes(local: Tensor, mask: Tensor, global_vectors: Tensor) -> None:
    if local.dim() != 3 or mask.shape != local.shape[:2]:
        raise ValueError(
            "Expected local vectors (N, T, c) and a mask (N, T), got "
            f"{tuple(local.shape)} and {tuple(mask.shape)}."
        )
    if global_vectors.shape != (local.size(0), local.size(2)):
        raise ValueError(
            f"Expected global vectors {(local.size(0), local.size(2))}, as many and as wide as the "
            f"local ones, got {tuple(global_vectors.shape)}."
        )
    if local.size(0) < 2:
        raise ValueError(
            f"Mutual information needs at least two sentences, got {local.size(0)}. "
            "Raise batch_size."
        )


@Objective.register("is_bert")
class ISBert(Objective):
    """The negative mutual information of sentences and tokens; see `jsd_mutual_information_loss`.

    `forward(token_vectors (N, T, c), token_mask (N, T), anchors (N, c))` takes what the pooler
    `ngram_convolutions` returns: token embeddings, and as `anchors` the sentence embeddings, which
    are their means.
    """

    def forward(  # type: ignore[override]
        self, token_vectors: Tensor, token_mask: Tensor, anchors: Tensor
    ) -> Tensor:
        return jsd_mutual_information_loss(token_vectors, token_mask, anchors)
