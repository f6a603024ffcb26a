"""A text field embedder without a transformer: a table of token vectors, averaged over a text."""

from pathlib import Path
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn.util import get_text_field_mask
from torch.nn.functional import embedding_bag

from declutr.archives.static_folder import StaticFolderError, read_static, stored_shape
from declutr.modules.text_batches import indexed_ids, mean_of_texts
from declutr.system import raised_as
from declutr.system.distributed import is_distributed


@TextFieldEmbedder.register("token_embedding_bag")
class TokenEmbeddingBag(TextFieldEmbedder):
    """A table of token vectors, whose mean over the tokens of a text is its embedding.

    `forward` returns the vectors of tokens `(N, L, d)`, for any pooler. The Model "declutr" pools
    by `bag`, which computes the mean in one pass over the table, unless it is given a pooler.

    # Parameters

    model_name : a folder that `declutr static-vectors`, sentence-transformers (`StaticEmbedding`)
        or model2vec wrote. The tokenizer and the indexer of the reader, of type
        "pretrained_transformer", take the same folder.
    token_dropout : the probability that a token is left out of its text in training, which makes
        two different views of the same text. If all are left out, its embedding is 0.
    token_weights : True learns a factor for each token beside its vector. It starts at 1 and is the
        exponential of a trained number.
    sparse : True gives gradients of the rows that a batch uses only. This needs an optimizer for
        sparse gradients (`sparse_adam`; `dense_sparse_adam` where a head is trained too), and one
        process.
    trainable : False freezes the table.
    load_weights : False leaves the vectors 0, to open an archive, which has them.

    # Raises

    `ConfigurationError` : the folder holds no static encoder, or the rate is out of range.
    """

    unpads = True
    """Whether both views take one pass, which makes one gradient of the table and not two."""

    def __init__(
        self,
        model_name: str,
        token_dropout: float = 0.0,
        token_weights: bool = False,
        sparse: bool = False,
        trainable: bool = True,
        load_weights: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= token_dropout < 1:
            raise ConfigurationError(f"token_dropout must lie in [0, 1), got {token_dropout}.")
        with raised_as(ConfigurationError, StaticFolderError):
            if load_weights:
                vectors = torch.from_numpy(read_static(Path(model_name)).vectors)
            else:
                vectors = torch.zeros(stored_shape(Path(model_name)))
        self.weight = torch.nn.Parameter(vectors, requires_grad=trainable)
        """The vectors of all tokens, `(V, d)`."""
        self.log_weights: Optional[torch.nn.Parameter] = None
        """The logarithms of the factors of all tokens, `(V, 1)`."""
        if token_weights:
            self.log_weights = torch.nn.Parameter(torch.zeros(len(vectors), 1))
        self.token_dropout, self.sparse = token_dropout, sparse

    def get_output_dim(self) -> int:
        return self.weight.size(1)

    def folded(self) -> torch.Tensor:
        """Return the table `(V, d)` with the factors of tokens multiplied into the vectors."""
        if self.log_weights is None:
            return self.weight
        return self.weight * self.log_weights.exp()

    def forward(self, texts: TextFieldTensors) -> torch.Tensor:  # type: ignore[override]
        """Return the vectors `(N, L, d)` of the tokens of texts `(N, L)`."""
        ids, kept, mask = self._tokens(texts)
        vectors = torch.nn.functional.embedding(ids, self.weight, sparse=self.sparse)
        factors = kept.to(vectors.dtype) if self.log_weights is None else self._factors(ids) * kept
        if kept is not mask:  # so that a mean over all tokens is that over those that are kept
            lengths = mask.sum(dim=1, keepdim=True) / kept.sum(dim=1, keepdim=True).clamp_min(1)
            factors = factors * lengths
        return vectors * factors.unsqueeze(-1)

    def bag(self, texts: TextFieldTensors) -> torch.Tensor:
        """Return the embeddings `(N, d)` of texts `(N, L)`; that of a text without tokens is 0."""
        ids, kept, _ = self._tokens(texts)
        lengths = kept.sum(dim=1)
        flat = ids[kept]
        sums = embedding_bag(
            flat,
            self.weight,
            lengths.cumsum(0) - lengths,
            mode="sum",
            sparse=self.sparse,
            per_sample_weights=None if self.log_weights is None else self._factors(flat),
        )
        return sums / lengths.clamp_min(1).unsqueeze(1)

    def _tokens(self, texts: TextFieldTensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the ids of texts, which of them count, and which are no padding: `(N, L)` each."""
        mask: torch.Tensor = get_text_field_mask(texts)
        found = [ids for _, ids in indexed_ids(texts)]
        if len(found) != 1 or found[0].shape != mask.shape:
            raise ConfigurationError(
                f"Expected texts with one indexer of type pretrained_transformer, got "
                f"{sorted(texts)}. Give it the folder of the token_embedding_bag."
            )
        kept = mask
        if self.training and self.sparse and is_distributed():
            raise ConfigurationError(
                "torch adds no sparse gradients of several processes. Set model."
                "text_field_embedder.sparse to false and take a dense optimizer, or one process."
            )
        if self.training and self.token_dropout:
            kept = mask & (torch.rand(mask.shape, device=mask.device) >= self.token_dropout)
        return found[0], kept, mask

    def _factors(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the factors of tokens, in the shape of their ids."""
        assert self.log_weights is not None
        logs = torch.nn.functional.embedding(ids, self.log_weights, sparse=self.sparse)
        return logs.squeeze(-1).exp()


@Seq2VecEncoder.register("token_embedding_bag")
class MeanOfBag(Seq2VecEncoder):
    """The mean over the tokens of a text, computed by a `TokenEmbeddingBag` without their vectors.

    # Parameters

    embedding_dim : the width of the vectors.
    """

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self._width = embedding_dim

    def get_input_dim(self) -> int:
        return self._width

    def get_output_dim(self) -> int:
        return self._width

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the means `(N, d)` of token vectors `(N, L, d)`."""
        return mean_of_texts(tokens, mask)
