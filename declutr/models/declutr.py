"""The Model "declutr": a text encoder trained by contrast, masked language modelling, or both."""

from functools import cached_property
from typing import Any, Optional

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator

from declutr.models import fit
from declutr.models.encoding import Encoders, Encoding
from declutr.models.recorded_model import NonFiniteLoss, RecordedModel
from declutr.models.views import SpanViews, Views
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.heads import Head
from declutr.modules.momentum import MomentumEncoder
from declutr.modules.text_batches import device_of, flat
from declutr.objectives import Miner, Objective
from declutr.objectives.objective import PAIRS
from declutr.system.distributed import is_sharded

__all__ = ["DeCLUTR", "NonFiniteLoss"]


@Model.register("declutr")
class DeCLUTR(RecordedModel):
    """Text to vectors, trained without labels (Giorgi et al., 2021).

    Token vectors are pooled to an embedding. In training, anchors and the mean of their positives
    are contrasted by `loss`, and anchors are also masked and predicted:
    `loss = contrastive_weight * contrastive + mlm_weight * mlm` (spec of the joint objective:
    section 3.2 of the paper).

    # Parameters

    vocab : of AllenNLP.
    text_field_embedder : of type "mlm" for masked language modelling, any other without it.
    seq2vec_encoder : pools token vectors; the mean over all tokens, special ones included, by
        default. `cls_pooler` takes the first token. Its `embedding_dim` is filled in.
    feedforward : a projection between embedding and loss. Embeddings do not go through it.
    head : the same with statistics of the whole batch, such as a `projector` with batch
        normalisation; its `input_dim` is filled in.
    predictor : a head on the head of BYOL and its kin: it predicts what the target's head gives.
    momentum_encoder : a slowly following copy of encoder and head, for objectives that compare with
        targets (`moco`, `mochi`, `byol`). Without one, `byol` takes its own projections, without
        their gradient (SimSiam; Chen & He, 2021).
    two_encoders : embed positives (and negatives) by an encoder of their own, equal at the start
        and without shared weights afterwards (Logeswaran & Lee, 2018). The embedding of a text is
        then both, concatenated.
    views : how the two views come about: `spans` of the reader (the default), `dropout`, `levels`,
        `dropout_rates`, `cutoff`.
    miner : selects pairs for a metric-learning objective.
    loss : the contrastive objective; `None` trains by masked language modelling alone.
    initializer : applied to the parameters at the end of construction.
    contrastive_weight, mlm_weight : of the two terms.
    scale_fix : multiply the gradient of the contrastive loss by the number of processes, which is
        what one process with the whole batch would give. False reproduces the released
        configurations of the original, where each of W processes saw 1/W of it.
    mlm_probability : share of tokens chosen for prediction.
    mask_contrastive_anchor : contrast anchors as they are after masking, in one pass with masked
        language modelling, as the original code does. False embeds clean anchors in a second pass.
    precision : `"auto"` trains in bfloat16 where the device computes in it (float32 elsewhere),
        `"bfloat16"` and `"float32"` as they say. Embeddings for use are always float32. With the
        trainer's `use_amp` its float16 takes precedence.
    chunk_size : documents that go through the encoder at a time (gradient caching, Gao et al.,
        2021). Memory then depends on it and not on the batch, for a forward pass more; loss and
        gradients stay those of the whole batch. `None` takes the batch at once.
    regularizer, serialization_dir, ddp_accelerator : of AllenNLP.

    # Raises

    `ConfigurationError` : nothing to train by; a miner without a metric-learning objective; widths
        that do not fit; a batch without negatives.
    """

    default_predictor = "declutr"

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        seq2vec_encoder: Optional[Lazy[Seq2VecEncoder]] = None,
        feedforward: Optional[FeedForward] = None,
        head: Optional[Lazy[Head]] = None,
        predictor: Optional[Lazy[Head]] = None,
        momentum_encoder: Optional[MomentumEncoder] = None,
        two_encoders: bool = False,
        views: Optional[Views] = None,
        miner: Optional[Miner] = None,
        loss: Optional[Objective] = None,
        initializer: Optional[InitializerApplicator] = None,
        contrastive_weight: float = 1.0,
        mlm_weight: float = 1.0,
        scale_fix: bool = True,
        mlm_probability: float = 0.15,
        mask_contrastive_anchor: bool = True,
        precision: str = "auto",
        chunk_size: Optional[int] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir, ddp_accelerator)  # type: ignore[arg-type]
        # The parts, in the order of weights in archives.
        self._text_field_embedder = text_field_embedder
        self._seq2vec_encoder = fit.pooler_of(seq2vec_encoder, text_field_embedder)
        self._feedforward = feedforward
        width = self._seq2vec_encoder.get_output_dim()
        fit.require_feedforward(feedforward, width, loss)
        self._head = fit.head_of(head, width, feedforward)
        self._make_views = views or SpanViews()
        projection = self._head or feedforward
        fit.require_objective(loss, projection, self._seq2vec_encoder, self._make_views, chunk_size)
        self._predictor = fit.predictor_of(predictor, self._head, loss)
        self._momentum_encoder = momentum_encoder
        fit.require_other_encoders(
            loss, momentum_encoder, two_encoders, feedforward, self._make_views
        )
        self._loss = loss
        self._miner = miner
        if miner is not None:
            if loss is None:
                raise ConfigurationError("A miner needs a contrastive loss: set 'loss'.")
            loss.attach_miner(miner)
        self.contrastive = loss is not None and contrastive_weight > 0
        self.masked_language_modeling = (
            getattr(text_field_embedder, "masked_language_modeling", False) and mlm_weight > 0
        )
        fit.require_a_term(self.contrastive, self.masked_language_modeling)
        fit.require_settings(mlm_probability, precision, chunk_size)
        if not self.masked_language_modeling and isinstance(
            text_field_embedder, MLMTextFieldEmbedder
        ):
            text_field_embedder.freeze_head()
        self._contrastive_weight, self._mlm_weight = contrastive_weight, mlm_weight
        self._scale_fix, self._mask_contrastive_anchor = scale_fix, mask_contrastive_anchor
        self._mlm_probability, self._chunk_size = mlm_probability, chunk_size
        self._precision = precision
        (initializer or InitializerApplicator())(self)
        own: dict[str, Any] = {
            "embedder": text_field_embedder,
            "pooler": self._seq2vec_encoder,
            "head": self._head,
        }
        if momentum_encoder is not None:
            momentum_encoder.follow(own)
        self._second_encoder = fit.second_encoder(own) if two_encoders else None
        self._encoders = Encoders(own, self._second_encoder, momentum_encoder)
        self._wanted = loss.inputs if loss is not None and self.contrastive else {}

    @cached_property
    def _step(self) -> Any:
        """What a step goes through, from the texts of a batch to its loss; for training alone."""
        from declutr.models.contrastive_term import ContrastiveTerm
        from declutr.models.training_step import BatchViews, TrainingStep

        batch_views = BatchViews(
            self._wanted,
            type(self._loss).__name__,
            self._make_views,
            self._text_field_embedder,
            has_target=self._momentum_encoder is not None,
            mlm_probability=self._mlm_probability if self.masked_language_modeling else 0.0,
            mask_contrastive_anchor=self._mask_contrastive_anchor,
        )
        encoding = Encoding(self._encoders, self._make_views, self._chunk_size)
        heads = self._feedforward, self._predictor
        contrastive = None
        if self._loss is not None and self.contrastive:
            contrastive = ContrastiveTerm(
                self._loss, self._encoders, *heads, self._scale_fix, self.record
            )
        weights = self._contrastive_weight, self._mlm_weight
        return TrainingStep(batch_views, encoding, contrastive, *weights, self.record)

    def attach(self, trainer: Any) -> None:
        """Let the momentum encoder follow the optimizer of a trainer, and look whether its data can
        serve; the bridge calls this.

        # Raises

        `ConfigurationError` : validation by a loss that there will not be; more instances than an
            objective has places for.
        """
        fit.require_room(self._loss, trainer.data_loader)
        if self.contrastive:
            fit.require_validation_loss(trainer)
        if self._momentum_encoder is None:
            return
        if is_sharded(self) or getattr(trainer._ddp_wrapped_model, "attach", None) is not None:
            raise ConfigurationError(
                'A momentum_encoder does not work with the accelerator "fsdp": remove one of them.'
            )
        self._momentum_encoder.follow_trainer(trainer)

    def embed(self, texts: TextFieldTensors) -> torch.Tensor:
        """The embeddings `(B, d)` of texts `(B, L)`, in float32; the LM head is not run."""
        return self._encoders.embed(texts)

    @property
    def embedding_dim(self) -> int:
        """d, the width of embeddings."""
        return self._seq2vec_encoder.get_output_dim() * len(self.embedders)

    @property
    def two_encoders(self) -> bool:
        return self._second_encoder is not None

    @property
    def embedders(self) -> list[torch.nn.Module]:
        """What makes token vectors: one, or with two encoders two."""
        second = [] if self._second_encoder is None else [self._second_encoder["embedder"]]
        return [self._text_field_embedder, *second]

    def forward(  # type: ignore[override]
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None = None,
        negatives: TextFieldTensors | None = None,
        labels: torch.Tensor | None = None,
        ids: torch.Tensor | None = None,
        documents: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Embed texts, or compute the loss of spans.

        # Parameters

        anchors : texts `(B, L)`, or A spans a document `(B, A, L)`.
        positives : `(B, A * P, L)`, those of the first anchor of a document first. Without them,
            and outside training, texts are embedded and nothing else.
        negatives : `(B, K, L)`, hard negatives that come with the data.
        labels, ids, documents : `(B,)`, for objectives that name them: classes or scores of pairs,
            rows of the corpus, documents they belong to.

        # Returns

        `embeddings` `(B, d)` and, with a feed-forward layer, `projections` `(B, m)`; or `loss`.
        """
        if positives is None and not self.training:
            embeddings = self.embed(flat(anchors))
            if self._feedforward is None:
                return {"embeddings": embeddings}
            return {"embeddings": embeddings, "projections": self._feedforward(embeddings)}
        from declutr.modules.precision import training_precision  # which embedding does without

        beside = {"labels": labels, "ids": ids, "documents": documents}
        with training_precision(self._precision, device_of(anchors)):
            loss = self._step(anchors, positives, negatives, beside, self.training)
        if self.training and loss is not None and self.record.losses.add(loss):
            self.require_finite()
        return {} if loss is None else {"loss": loss}

    def describe_objective(self) -> dict[str, Any]:
        """What a run record must say so that losses of different runs can be compared."""
        return {
            "objective": type(self._loss).__name__ if self._loss is not None else None,
            "views": type(self._make_views).__name__ if self._wanted.keys() & set(PAIRS) else None,
            "two_encoders": self.two_encoders,
            "momentum": getattr(self._momentum_encoder, "momentum", None),
            "head": type(self._head).__name__ if self._head is not None else None,
            "reduction": getattr(self._loss, "reduction", None),
            "temperature": getattr(self._loss, "temperature", None),
            "contrastive_weight": self._contrastive_weight if self.contrastive else 0.0,
            "mlm_weight": self._mlm_weight if self.masked_language_modeling else 0.0,
            "mlm_head_reads": self._mlm_head_reads,
            "mask_contrastive_anchor": self._mask_contrastive_anchor,
            "scale_fix": self._scale_fix,
            "precision": self._precision,
        }

    @property
    def _mlm_head_reads(self) -> str | None:
        """Which layer the head of masked language modelling reads, if there is one."""
        if not self.masked_language_modeling:
            return None
        embedder: Any = self._text_field_embedder.token_embedder
        return "mix of layers" if embedder.head_reads_mix else "last layer"
