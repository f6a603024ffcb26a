"""The Model "text_vae", a variational autoencoder of texts."""

from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import get_text_field_mask, get_token_ids_from_text_field_tensors
from torch.nn.functional import cross_entropy

from declutr.system.distributed import gather_rows, world_size
from declutr.task_models.text_vae.layers import CodeDecoder, KlWeight, LatentCode, kl_to_prior
from declutr.task_models.text_vae.measures import VaeMeasures, mutual_information


@Model.register("text_vae")
class TextVae(Model):
    """A variational autoencoder of texts with a normal prior (Bowman et al., 2016).

    In training, `loss` is the mean over texts of `reconstruction + weight * KL`, which are sums
    over the tokens and over the dimensions of the code, in nats. Outside training it is the mean of
    the negative ELBO. `VaeMeasures` describes the metrics.

    For the model "reclaim", u is the output of `latent`, the sampled code, and v is the masked mean
    of the output of `word_embeddings`.

    # Parameters

    vocab : the vocabulary.
    text_field_embedder : embeds words, given by single ids.
    seq2vec_encoder : the encoder, such as `{"type": "lstm", ...}`.
    latent_size : k, the number of dimensions of the code.
    decoder_size : the size of the decoder's states.
    decoder_cell : `"lstm"` or `"gru"`.
    word_dropout : the share of the decoder's inputs that are replaced by a learned vector in
        training. The start token is never replaced.
    dropout : the rate of dropout on the decoder's inputs and states.
    annealing_steps, initial_kl_weight : the parameters `steps` and `initial` of `KlWeight`.
    free_bits : nats of each dimension's mean KL over the batch that are not penalized (Kingma et
        al., 2016).
    namespace : the namespace of the tokens in the vocabulary.
    initializer, regularizer, serialization_dir, ddp_accelerator : as of AllenNLP's models.

    # Raises

    `ConfigurationError` : a parameter is out of range; in `forward`, texts have no start and end.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        seq2vec_encoder: Seq2VecEncoder,
        latent_size: int = 32,
        decoder_size: int = 512,
        decoder_cell: str = "lstm",
        word_dropout: float = 0.0,
        dropout: float = 0.0,
        annealing_steps: int = 0,
        initial_kl_weight: float = 0.0,
        free_bits: float = 0.0,
        namespace: str = "tokens",
        initializer: Optional[InitializerApplicator] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir, ddp_accelerator)  # type: ignore[arg-type]
        if latent_size < 1 or decoder_size < 1:
            raise ConfigurationError(
                "latent_size and decoder_size must be at least 1, got "
                f"{latent_size} and {decoder_size}."
            )
        if not 0 <= word_dropout <= 1 or free_bits < 0:
            raise ConfigurationError(
                "Expected word_dropout in [0, 1] and free_bits of 0 or more, got "
                f"{word_dropout} and {free_bits}."
            )
        self.word_embeddings = text_field_embedder
        self._seq2vec_encoder = seq2vec_encoder
        self.latent = LatentCode(seq2vec_encoder.get_output_dim(), latent_size)
        width, tokens = text_field_embedder.get_output_dim(), vocab.get_vocab_size(namespace)
        self._decoder = CodeDecoder(decoder_cell, width, latent_size, decoder_size, tokens, dropout)
        self._kl_weight = KlWeight(annealing_steps, initial_kl_weight)
        self._word_dropout, self._free_bits = word_dropout, free_bits
        if word_dropout:
            self._dropped_word = torch.nn.Parameter(torch.zeros(width))
        self._measures = VaeMeasures()
        (initializer or InitializerApplicator())(self)

    def forward(self, tokens: TextFieldTensors) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Encode texts, sample their codes, and score the texts by the decoder.

        # Parameters

        tokens : texts `(n, L)` with their start and end tokens.

        # Returns

        `loss`, a scalar; `latent` `(n, k)`, the means of the codes; and `reconstruction` and `kl`
        of each text, `(n,)`.
        """
        ids, mask = get_token_ids_from_text_field_tensors(tokens), get_text_field_mask(tokens)
        if ids.dim() != 2 or ids.size(1) < 2:
            raise ConfigurationError(
                f"Got ids of tokens {tuple(ids.shape)}, expected (n, L) with L of 2 or more: a "
                'start, a text and an end. The dataset reader "text_lines" makes them.'
            )
        vectors = self.word_embeddings(tokens)  # (n, L, d)
        code = self.latent(self._seq2vec_encoder(vectors, mask))
        logits = self._decoder(self._decoder_inputs(vectors), code.sample)  # (n, L - 1, tokens)
        terms = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none") * mask[:, 1:]
        reconstruction = terms.sum(dim=1)
        kl = kl_to_prior(code.mean, code.log_variance)  # (n, k)
        information = None if self.training else mutual_information(code)
        lengths, of_texts = mask[:, 1:].sum(dim=1), kl.sum(dim=1)
        self._measures(code, reconstruction, of_texts, lengths, information)
        term = of_texts.mean()
        if self.training:
            term = self._kl_weight() * self._costing(kl)
        return {
            "loss": reconstruction.mean() + term,
            "latent": code.mean,
            "reconstruction": reconstruction,
            "kl": of_texts,
        }

    def _decoder_inputs(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of all tokens but the last, `(n, L - 1, d)`, with word dropout."""
        inputs = vectors[:, :-1]
        if not self.training or not self._word_dropout:
            return inputs
        dropped = torch.rand(inputs.shape[:2], device=inputs.device) < self._word_dropout
        dropped[:, 0] = False
        return torch.where(dropped.unsqueeze(-1), self._dropped_word, inputs)

    def _costing(self, kl: torch.Tensor) -> torch.Tensor:
        """Return the KL term of the loss, given the KL of each text and dimension, `(n, k)`."""
        if not self._free_bits:
            return kl.sum(dim=1).mean()
        # The free bits apply to the mean over the texts of all processes, so that several processes
        # give the same loss as one.
        return gather_rows(kl, world_size()).mean(dim=0).clamp_min(self._free_bits).sum()

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Return the metrics since the last `reset`; with `reset`, those of all processes."""
        return self._measures.get_metric(reset, self.training)
