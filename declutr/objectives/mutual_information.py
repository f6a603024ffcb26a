"""Mutual information of a sentence and its parts (IS-BERT; Zhang et al., 2020)."""

import math
from collections.abc import Sequence

import torch
from allennlp.common.checks import ConfigurationError
from torch.nn.functional import softplus

from declutr.objectives.full_precision import full_precision
from declutr.objectives.objective import Objective
from declutr.objectives.reductions import nothing
from declutr.objectives.settings import above_zero


@full_precision
def jsd_mutual_information_loss(
    local_vectors: torch.Tensor,
    mask: torch.Tensor,
    global_vectors: torch.Tensor,
    offsets: bool = True,
) -> torch.Tensor:
    """`E- - E+`, minus the Jensen-Shannon estimate of mutual information (Zhang et al., 2020).

    With T = local . global, `E+` is the mean over tokens of `log 2 - softplus(-T)` with their own
    sentence, `E-` the mean over pairs of a token and another sentence of `softplus(T) - log 2`
    (equation 3, with the dot product of the public code as the network T). Below 0 is better than
    chance. Both are means by definition, so there is no `reduction`.

    # Parameters

    local_vectors : `(N, T, c)`, one a token.
    mask : `(N, T)`, true for tokens; others do not count, and neither do sentences without tokens.
    global_vectors : `(N, c)`.
    offsets : `False` leaves both `log 2` out, which adds 2 log 2.

    # Raises

    `ValueError` : one sentence, which has no other to be told from; shapes that do not fit.
    """
    _check_shapes(local_vectors, mask, global_vectors)
    mask = mask.bool()
    used = mask.any(dim=1)  # (N,)
    sentence, _ = mask.nonzero(as_tuple=True)  # (n,): of each token
    sentences = int(used.sum())
    if sentences < 2:
        return nothing(local_vectors.masked_fill(~mask.unsqueeze(-1), 0), global_vectors)
    scores = local_vectors[mask] @ global_vectors[used].T  # (n, B)
    own = sentence.unsqueeze(1) == used.nonzero().squeeze(1)  # (n, B)
    positive = softplus(-scores[own]).mean()
    negative = softplus(scores[~own]).mean()
    return positive + negative - (2 * math.log(2) if offsets else 0)


def _check_shapes(local: torch.Tensor, mask: torch.Tensor, global_vectors: torch.Tensor) -> None:
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


class NGramConvolutions(torch.nn.Module):
    """Local vectors: convolutions of several widths over the tokens, concatenated.

    `forward(tokens (N, T, d), mask (N, T)) -> (N, T, channels * len(kernels))`. Padding is zeroed
    before (what stands there reaches no token) and after.

    # Parameters

    width : d.
    channels : of each convolution.
    kernels : their widths in tokens, odd.
    relu : as printed in the paper; the public code has none.
    """

    def __init__(
        self,
        width: int,
        channels: int = 256,
        kernels: Sequence[int] = (1, 3, 5),
        relu: bool = True,
    ) -> None:
        super().__init__()
        above_zero("width", width)
        above_zero("channels", channels)
        if not kernels or any(kernel < 1 or kernel % 2 == 0 for kernel in kernels):
            raise ConfigurationError(
                f"kernels must be odd numbers of tokens, at least one, got {list(kernels)}."
            )
        self.relu = relu
        self.output_width = channels * len(kernels)
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv1d(width, channels, kernel, padding=kernel // 2) for kernel in kernels
        )

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        padding = ~mask.bool().unsqueeze(-1)  # (N, T, 1)
        channels_first = tokens.masked_fill(padding, 0).transpose(1, 2)  # (N, d, T)
        local = torch.cat([layer(channels_first) for layer in self.convolutions], dim=1)
        local = torch.relu(local) if self.relu else local
        return local.transpose(1, 2).masked_fill(padding, 0)


@Objective.register("is_bert")
class ISBert(Objective):
    """`jsd_mutual_information_loss` of the `NGramConvolutions` of tokens and their mean.

    It works on token vectors instead of two views: `forward(tokens (N, T, d), mask (N, T))`. The
    embedding of a sentence is the mean of its local vectors, `embed(tokens, mask)`.

    # Parameters

    width, channels, kernels, relu : see `NGramConvolutions`.
    """

    takes_views = False

    def __init__(
        self,
        width: int,
        channels: int = 256,
        kernels: tuple[int, ...] = (1, 3, 5),
        relu: bool = True,
    ) -> None:
        super().__init__()
        self.local = NGramConvolutions(width, channels, kernels, relu)

    def forward(  # type: ignore[override]
        self, tokens: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        local = self.local(tokens, mask)
        return jsd_mutual_information_loss(local, mask, _masked_mean(local, mask))

    def embed(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Embeddings `(N, channels * len(kernels))`; 0 for a sentence without tokens."""
        return _masked_mean(self.local(tokens, mask), mask)


@full_precision
def _masked_mean(vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`(N, c)` of `(N, T, c)` that is 0 at padding."""
    return vectors.sum(dim=1) / mask.bool().sum(dim=1, keepdim=True).clamp_min(1)
