"""The Seq2VecEncoder "token_pooling": any pooling of tokens, as they are or encoded in context."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2SeqEncoder, Seq2VecEncoder
from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder, ClsPooler

from declutr.transformer.pooling import LAYERS, TOKEN_POOLINGS, pooled


@Seq2VecEncoder.register("token_pooling")
class TokenPooling(Seq2VecEncoder):
    """A pooler of token embeddings, which a Seq2SeqEncoder may encode before.

    With a bidirectional LSTM and the maximum it is the encoder of InferSent (Conneau et al., 2017,
    section 3.2).

    # Parameters

    embedding_dim : d, the width of token embeddings; the model sets it.
    pooling : one of `declutr.transformer.pooling.TOKEN_POOLINGS`. Poolings of several layers of a
        transformer are the mean of what its embedder gives with the key `layers`.
    encoder : any encoder of AllenNLP for sequences `(N, L, d)`, such as "lstm".

    # Raises

    `ConfigurationError` : the pooling is unknown, or the encoder takes another width than d.
    """

    def __init__(
        self,
        embedding_dim: int,
        pooling: str = "mean",
        encoder: Optional[Seq2SeqEncoder] = None,
    ) -> None:
        super().__init__()
        if pooling not in TOKEN_POOLINGS:
            told = (
                f'It is "layers": "{pooling}" of the token embedder, with the pooling mean.'
                if pooling in LAYERS
                else f"Expected one of {', '.join(TOKEN_POOLINGS)}."
            )
            raise ConfigurationError(f"No pooling of tokens is called '{pooling}'. {told}")
        if encoder is not None and encoder.get_input_dim() != embedding_dim:
            raise ConfigurationError(
                f"The encoder of the pooler takes vectors of width {encoder.get_input_dim()}, but "
                f"token embeddings are {embedding_dim} wide. Set its input size to that."
            )
        self.pooling, self.encoder = pooling, encoder
        self._input_dim = embedding_dim

    def get_input_dim(self) -> int:
        return self._input_dim

    def get_output_dim(self) -> int:
        return self._input_dim if self.encoder is None else self.encoder.get_output_dim()

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the embeddings `(N, d)` of texts, float32; 0 for a text without tokens.

        # Parameters

        tokens : `(N, L, d)`, the token embeddings.
        mask : `(N, L)`, zero or False at padding.
        """
        mask = mask.bool()
        vectors = tokens if self.encoder is None else self.encoder(tokens, mask)
        empty = ~mask.any(dim=1, keepdim=True)
        return pooled(vectors, mask, self.pooling).masked_fill(empty, 0.0)


def pooling_of(pooler: Any) -> str | None:
    """Return which of `TOKEN_POOLINGS` a pooler is, or `None`.

    A subclass is none of them, because it may pool in any other way.
    """
    if type(pooler) is BagOfEmbeddingsEncoder and pooler._averaged:
        return "mean"
    if type(pooler) is ClsPooler and not pooler._cls_is_last_token:
        return "cls"
    if type(pooler) is TokenPooling and pooler.encoder is None:
        return pooler.pooling
    return None
