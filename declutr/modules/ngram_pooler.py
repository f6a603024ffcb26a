"""The Seq2VecEncoder "ngram_convolutions": the mean of local vectors of a text (IS-BERT)."""

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2VecEncoder

from declutr.objectives.checks import above_zero


@Seq2VecEncoder.register("ngram_convolutions")
class NGramConvolutions(Seq2VecEncoder):
    """Convolutions of several widths over the tokens, concatenated: a local vector a token. A text
    is their mean (Zhang et al., 2020, section 3.1).

    Padding is zeroed before (what stands there reaches no token) and after.

    # Parameters

    embedding_dim : d, the width of token vectors; the model fills it in.
    channels : of each convolution.
    kernels : their widths in tokens, odd.
    relu : as printed in the paper; the public code has none.

    # Raises

    `ConfigurationError` : kernels that are even or none.
    """

    def __init__(
        self,
        embedding_dim: int,
        channels: int = 256,
        kernels: tuple[int, ...] = (1, 3, 5),
        relu: bool = True,
    ) -> None:
        super().__init__()
        above_zero("embedding_dim", embedding_dim)
        above_zero("channels", channels)
        if not kernels or any(kernel < 1 or kernel % 2 == 0 for kernel in kernels):
            raise ConfigurationError(
                f"kernels must be odd numbers of tokens, at least one, got {list(kernels)}."
            )
        self.relu = relu
        self._widths = embedding_dim, channels * len(kernels)
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv1d(embedding_dim, channels, kernel, padding=kernel // 2)
            for kernel in kernels
        )

    def get_input_dim(self) -> int:
        return self._widths[0]

    def get_output_dim(self) -> int:
        return self._widths[1]

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """`(N, T, d)` and the mask `(N, T)` to `(N, c)`; 0 for a text without tokens."""
        return self.mean(self.local_vectors(tokens, mask), mask)

    def local_vectors(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """`(N, T, c)`, c = channels * len(kernels); 0 at padding."""
        padding = ~mask.bool().unsqueeze(-1)  # (N, T, 1)
        channels_first = tokens.masked_fill(padding, 0).transpose(1, 2)  # (N, d, T)
        local = torch.cat([layer(channels_first) for layer in self.convolutions], dim=1)
        local = torch.relu(local) if self.relu else local
        return local.transpose(1, 2).masked_fill(padding, 0)

    @staticmethod
    def mean(local_vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """`(N, c)` of local vectors, in float32 at least."""
        counts = mask.bool().sum(dim=1, keepdim=True).clamp_min(1)
        with torch.autocast(mask.device.type, enabled=False):
            return (
                local_vectors.to(torch.promote_types(local_vectors.dtype, torch.float32)).sum(dim=1)
                / counts
            )
