"""The Seq2VecEncoder "ngram_convolutions": convolutions over the tokens, averaged (IS-BERT)."""

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2VecEncoder

from declutr.objectives.numerics import above_zero


@Seq2VecEncoder.register("ngram_convolutions")
class NGramConvolutions(Seq2VecEncoder):
    """A pooler that averages the outputs of convolutions over the tokens of a text.

    Convolutions of several widths run over the token embeddings. Their concatenated outputs are a
    local vector for each token, and the mean of the local vectors is the embedding of the text
    (IS-BERT; Zhang et al., 2020, section 3.1). Padding is set to zero before the convolutions, so
    that it does not reach any token, and after them.

    # Parameters

    embedding_dim : d, the width of token embeddings; the model sets it.
    channels : the output channels of each convolution.
    kernels : the widths of the convolutions in tokens, which must be odd.
    relu : True applies ReLU to the local vectors, as printed in the paper. The code that its
        authors published does not.

    # Raises

    `ConfigurationError` : there are no kernels, or one is even.
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
        """Return the embeddings `(N, c)` of texts; 0 for a text without tokens.

        # Parameters

        tokens : `(N, T, d)`, the token embeddings.
        mask : `(N, T)`, zero or False at padding.
        """
        return self.mean(self.local_vectors(tokens, mask), mask)

    def local_vectors(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the local vectors `(N, T, c)`, with c = channels * len(kernels); 0 at padding."""
        padding = ~mask.bool().unsqueeze(-1)  # (N, T, 1)
        channels_first = tokens.masked_fill(padding, 0).transpose(1, 2)  # (N, d, T)
        local = torch.cat([layer(channels_first) for layer in self.convolutions], dim=1)
        local = torch.relu(local) if self.relu else local
        return local.transpose(1, 2).masked_fill(padding, 0)

    @staticmethod
    def mean(local_vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the mean `(N, c)` of the local vectors of each text, in at least float32."""
        counts = mask.bool().sum(dim=1, keepdim=True).clamp_min(1)
        with torch.autocast(mask.device.type, enabled=False):
            wide = local_vectors.to(torch.promote_types(local_vectors.dtype, torch.float32))
            return wide.sum(dim=1) / counts
