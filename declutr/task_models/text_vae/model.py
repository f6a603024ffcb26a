"""The Model "text_vae", a variational autoencoder of texts."""

from typing import Optional

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import END_SYMBOL, START_SYMBOL
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import get_text_field_mask, get_token_ids_from_text_field_tensors
from torch.nn.functional import cross_entropy

from declutr.system.distributed import gather_rows, world_size
from declutr.task_models.text_vae.layers import CodeDecoder, KlWeight
from declutr.task_models.text_vae.measures import VaeMeasures, importance_weighted_nll
from declutr.task_models.text_vae.posterior import Code, LatentCode, Posterior
from declutr.task_models.text_vae.writing import Writing, embedding_of, written_ids


@Model.register("text_vae")
class TextVae(Model):
    """A variational autoencoder of texts with a normal prior (Bowman et al., 2016).

    In training, `loss` is the mean over texts of `reconstruction + weight * KL`, which are sums
    over the tokens and over the dimensions of the code, in nats. Outside training it is the mean of
    the negative ELBO. `VaeMeasures` describes the metrics. The Predictor "text_vae" writes texts.

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
    annealing_steps, initial_kl_weight, kl_weight, cycle_steps : the parameters `steps`, `initial`,
        `final` and `cycle` of `KlWeight`.
    free_bits : nats of each dimension's mean KL over the batch that are not penalized (Kingma et
        al., 2016); for a posterior whose KL is known for each dimension.
    posterior : q(z|x): `"gaussian"`, or `"implicit"` for iVAE and iVAE-MI.
    decoder_embedder : embeds words for the decoder; by default `text_field_embedder` does.
    importance_samples : the number of samples of the importance-weighted bound of each text outside
        training, which decodes each text as many times; with 0 it is not computed.
    namespace : the namespace of the tokens in the vocabulary.
    initializer, regularizer, serialization_dir, ddp_accelerator : as of AllenNLP's models.

    # Raises

    `ConfigurationError` : a parameter is out of range; in `forward`, texts have no start and end.
    """

    default_predictor = "declutr-text_vae"

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
        kl_weight: float = 1.0,
        cycle_steps: Optional[int] = None,
        posterior: Optional[Lazy[Posterior]] = None,
        decoder_embedder: Optional[TextFieldEmbedder] = None,
        importance_samples: int = 0,
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
        if importance_samples < 0:
            raise ConfigurationError(
                f"importance_samples must be 0 or more, got {importance_samples}."
            )
        self.word_embeddings = text_field_embedder
        self._seq2vec_encoder = seq2vec_encoder
        features = seq2vec_encoder.get_output_dim()
        kind = Lazy(LatentCode) if posterior is None else posterior
        self.latent: Posterior = kind.construct(input_size=features, latent_size=latent_size)
        if free_bits and not self.latent.per_dimension:
            raise ConfigurationError(
                f"free_bits of {free_bits} are bits of each dimension of the code, whose KL is not "
                'known for this posterior. Set free_bits to 0, or the posterior to "gaussian".'
            )
        self._decoder_embedder = decoder_embedder
        width, tokens = self._decoder_words.get_output_dim(), vocab.get_vocab_size(namespace)
        self._decoder = CodeDecoder(decoder_cell, width, latent_size, decoder_size, tokens, dropout)
        self._kl_weight = KlWeight(annealing_steps, initial_kl_weight, kl_weight, cycle_steps)
        self._word_dropout, self._free_bits = word_dropout, free_bits
        self._importance_samples, self._namespace = importance_samples, namespace
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
        features = self._seq2vec_encoder(vectors, mask)
        code = self.latent(features)
        if self._decoder_embedder is not None:
            vectors = self._decoder_embedder(tokens)
        inputs = self._decoder_inputs(vectors)
        reconstruction = self._reconstruction(inputs, code.sample, ids, mask)
        divergence = self.latent.divergence(code, features)
        kl, lengths = divergence.kl.sum(dim=1), mask[:, 1:].sum(dim=1)
        weighted = self._importance_weighted(inputs, code, ids, mask)
        self._measures(code, reconstruction, kl, lengths, divergence.information, weighted)
        term = kl.mean()
        if self.training:
            term = self._kl_weight() * self._costing(divergence.penalty) + divergence.learning
        return {
            "loss": reconstruction.mean() + term,
            "latent": code.mean,
            "reconstruction": reconstruction,
            "kl": kl,
        }

    @property
    def _decoder_words(self) -> TextFieldEmbedder:
        own = self._decoder_embedder
        return self.word_embeddings if own is None else own

    def _reconstruction(
        self, inputs: torch.Tensor, code: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the negative log-likelihood of each text given its code, in nats, `(n,)`."""
        logits = self._decoder(inputs, code)  # (n, L - 1, tokens)
        terms = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return (terms * mask[:, 1:]).sum(dim=1)

    def _importance_weighted(
        self, inputs: torch.Tensor, code: Code, ids: torch.Tensor, mask: torch.Tensor
    ) -> Optional[torch.Tensor]:
        """Return the importance-weighted bound of each text, `(n,)`, if it is asked for."""
        if self.training or not self._importance_samples:
            return None
        noise = self.latent.noise(code.mean, self._importance_samples, *code.mean.shape, stream=2)

        def score(codes: torch.Tensor) -> torch.Tensor:
            return -self._reconstruction(inputs, codes, ids, mask)

        return importance_weighted_nll(score, code.mean, self.latent.scale(code), noise)

    def _decoder_inputs(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of all tokens but the last, `(n, L - 1, d)`, with word dropout."""
        inputs = vectors[:, :-1]
        if not self.training or not self._word_dropout:
            return inputs
        dropped = torch.rand(inputs.shape[:2], device=inputs.device) < self._word_dropout
        dropped[:, 0] = False
        return torch.where(dropped.unsqueeze(-1), self._dropped_word, inputs)

    def _costing(self, kl: torch.Tensor) -> torch.Tensor:
        """Return the KL term of the loss, given the penalty of each text, `(n, j)`."""
        if not self._free_bits:
            return kl.sum(dim=1).mean()
        # The free bits apply to the mean over the texts of all processes, so that several processes
        # give the same loss as one.
        return gather_rows(kl, world_size()).mean(dim=0).clamp_min(self._free_bits).sum()

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Return the metrics since the last `reset`; with `reset`, those of all processes."""
        return self._measures.get_metric(reset, self.training)

    def write(self, codes: torch.Tensor, writing: Writing) -> list[str]:
        """Return a text for each code, of tokens with a space between them.

        # Parameters

        codes : `(n, k)`.
        writing : how tokens are chosen, and how many there are at most.

        # Raises

        `ConfigurationError` : words are not given by single ids of this model's namespace, or its
            vocabulary has no start and end.
        """
        words = self.vocab.get_token_to_index_vocabulary(self._namespace)
        if START_SYMBOL not in words or END_SYMBOL not in words:
            raise ConfigurationError(
                f"The namespace '{self._namespace}' has no {START_SYMBOL} and {END_SYMBOL}: train "
                'with the dataset reader "text_lines".'
            )
        special = (self.vocab._padding_token, self.vocab._oov_token, START_SYMBOL)
        never = [words[token] for token in special if token in words]
        training = self.training
        self.eval()
        rows = written_ids(
            self._decoder,
            embedding_of(self._decoder_words),
            codes.to(next(self._decoder.parameters())),
            words[START_SYMBOL],
            words[END_SYMBOL],
            never,
            writing,
        )
        self.train(training)
        tokens = self.vocab.get_index_to_token_vocabulary(self._namespace)
        return [" ".join(tokens[index] for index in row) for row in rows]
