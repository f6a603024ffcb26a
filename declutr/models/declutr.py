"""The Model "declutr": a text encoder with contrastive and masked language modelling losses."""

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

from declutr.models import NonFiniteLoss, RecordedModel, parts
from declutr.models.encoding import Encoders, Encoding
from declutr.models.views import LevelViews, SpanViews, Views
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.heads import Head, MomentumEncoder
from declutr.modules.text_batches import device_of, flat
from declutr.objectives import Miner, Objective
from declutr.objectives.objective import PAIRS
from declutr.system.distributed import is_distributed
from declutr.system.processors import one_thread_if_forked

__all__ = ["DeCLUTR", "NonFiniteLoss"]


@Model.register("declutr")
class DeCLUTR(RecordedModel):
    """A model that embeds texts and is trained without labels (DeCLUTR, Giorgi et al., 2021).

    The token embeddings of a text are pooled to its embedding. In training, `loss` contrasts each
    anchor with the mean of its positives, and anchors are also masked and predicted. Section 3.2 of
    the paper defines the sum: `contrastive_weight * contrastive + mlm_weight * mlm`.

    # Parameters

    vocab : AllenNLP's vocabulary.
    text_field_embedder : an embedder of type "mlm" if there is masked language modelling, or else
        any embedder.
    seq2vec_encoder : the pooler of token embeddings, whose `embedding_dim` the model sets. By
        default it is the mean over all tokens, special tokens included; `cls_pooler` takes the
        first token, and `token_pooling` has other poolings.
    feedforward : a projection between the embeddings and the loss, in training only.
    head : the same, with statistics of the whole batch, such as a `projector` with batch
        normalisation. The model sets its `input_dim`.
    predictor : a second head, on the first one, that predicts the projections of the target (BYOL).
    momentum_encoder : a moving average of encoder and head, for objectives that compare with a
        target (`moco`, `mochi`, `byol`). Without one, the target of `byol` is the model's own
        projections without their gradient (SimSiam; Chen & He, 2021).
    two_encoders : True embeds positives and negatives with a second encoder, which starts as a copy
        of the first and shares no weights with it (Logeswaran & Lee, 2018). The embedding of a text
        is then the concatenation of both, or, with `embed_with_first`, that of the first encoder.
    views : the way to make the two views: `spans` of the reader (the default), `dropout`,
        `dropout_rates`, `levels`, `tension` or `cutoff`; see `declutr.models.views`.
    miner : the selection of pairs for a metric-learning objective.
    loss : the contrastive objective; `None` trains by masked language modelling only.
    initializer : applied to the parameters at the end of construction.
    contrastive_weight, mlm_weight : the weights of the two terms.
    scale_fix : True multiplies the gradient of the contrastive loss by the number of processes,
        which gives the gradient that one process with the whole batch would have. False reproduces
        the released configurations of the original, where W processes gave 1/W of it.
    mlm_probability : the share of tokens that are masked, in (0, 1].
    reconstruct : True predicts the tokens of each anchor from the embedding of its positive, by a
        decoder (TSDAE; Wang et al., 2021), in place of masked tokens: `mlm_weight` is its weight.
        The reader makes positives by noise (`augmented`). The decoder is left out of exports.
    mask_contrastive_anchor : True contrasts the masked anchors, which takes one pass for both
        terms, as in the original code. False embeds the anchors without masks in a second pass.
    precision : the dtype of training: `"bfloat16"`, `"float32"`, or `"auto"`, which is bfloat16 on
        GPUs that support it and float32 elsewhere. Outside training, embeddings are float32. An
        autocast of the trainer (`use_amp`) takes precedence.
    chunk_size : the number of documents that go through the encoder at a time (gradient caching;
        Gao et al., 2021). It bounds the memory of activations at the cost of a second forward pass;
        loss and gradients are those of the whole batch. `None` encodes the whole batch at once.
    regularizer, serialization_dir, ddp_accelerator : arguments of every AllenNLP model.

    # Raises

    `ConfigurationError` : there is neither a loss nor masked language modelling, there is a miner
        without a metric-learning objective, parts do not fit together, or, in training, a batch has
        no negatives.
    """

    default_predictor = "declutr-declutr"

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
        reconstruct: bool = False,
        mask_contrastive_anchor: bool = True,
        precision: str = "auto",
        chunk_size: Optional[int] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
        embed_with_first: bool = False,
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir, ddp_accelerator)  # type: ignore[arg-type]
        # Archives hold the weights in the order in which these modules are assigned.
        self._text_field_embedder = text_field_embedder
        self._seq2vec_encoder = parts.pooler_of(seq2vec_encoder, text_field_embedder)
        self._feedforward = feedforward
        width = self._seq2vec_encoder.get_output_dim()
        parts.require_feedforward(feedforward, width, loss)
        self._head = parts.head_of(head, width, feedforward)
        self._make_views = views or SpanViews()
        projection = self._head or feedforward
        parts.require_objective(
            loss, projection, self._seq2vec_encoder, self._make_views, chunk_size
        )
        if loss is not None:
            loss.require_embeddings(width, projection is not None, two_encoders)
        self._predictor = parts.predictor_of(predictor, self._head, loss)
        self._momentum_encoder = momentum_encoder
        parts.require_other_encoders(
            loss, momentum_encoder, two_encoders, feedforward, self._make_views
        )
        self._loss = loss
        self._miner = miner
        if miner is not None:
            if loss is None:
                raise ConfigurationError("A miner needs a contrastive loss: set 'loss'.")
            loss.attach_miner(miner)
        self.contrastive = loss is not None and contrastive_weight > 0
        masks = getattr(text_field_embedder, "masked_language_modeling", False)
        self.masked_language_modeling = masks and mlm_weight > 0
        parts.require_a_term(self.contrastive, self.masked_language_modeling)
        if views is not None and self.contrastive:
            parts.warn_of_unused_views(views, loss)
        options = {} if ddp_accelerator is None else getattr(ddp_accelerator, "_ddp_kwargs", None)
        # Parameters without gradients stop distributed training. Where they do not, they stay as
        # they are, since the optimizer of a run that is resumed counts them.
        stops = is_distributed() and not (options or {}).get("find_unused_parameters")
        unused = stops and loss is not None and not self.contrastive
        if unused:
            for part in (feedforward, self._head, self._predictor, loss):
                if part is not None:
                    part.requires_grad_(False)
        if stops and options is not None:  # "fsdp" does not mind these
            parts.freeze_unused(text_field_embedder)
        self._decoder = None
        if reconstruct:
            trained = self.masked_language_modeling and not two_encoders
            self._decoder = parts.decoder_of(text_field_embedder, trained)
        parts.require_settings(mlm_probability, precision, chunk_size)
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
        self._second_encoder = parts.second_encoder(own) if two_encoders else None
        if self._second_encoder is not None and unused:
            self._second_encoder.requires_grad_(False)
        self._encoders = Encoders(own, self._second_encoder, momentum_encoder, embed_with_first)
        self._wanted = loss.inputs if loss is not None and self.contrastive else {}

    @cached_property
    def _step(self) -> Any:
        """The computation of the loss of a batch, built when it is first used."""
        from declutr.models.contrastive_term import ContrastiveTerm
        from declutr.models.training_step import BatchViews, TrainingStep

        batch_views = BatchViews(
            self._wanted,
            type(self._loss).__name__,
            self._make_views,
            self._text_field_embedder,
            has_target=self._momentum_encoder is not None,
            mlm_probability=self._mlm_probability if self._masks else 0.0,
            reconstructs=self._decoder is not None,
            mask_contrastive_anchor=self._mask_contrastive_anchor,
        )
        encoding = Encoding(self._encoders, self._make_views, self._chunk_size)
        heads = self._feedforward, self._predictor
        contrastive = None
        if self._loss is not None and self.contrastive:
            modules = self._loss, self._encoders, *heads
            contrastive = ContrastiveTerm(*modules, self._scale_fix, self.record)
        weights = self._contrastive_weight, self._mlm_weight
        return TrainingStep(
            batch_views, encoding, contrastive, *weights, self.record, self._decoder
        )

    @property
    def _masks(self) -> bool:
        """Whether tokens of anchors are masked and predicted."""
        return self.masked_language_modeling and self._decoder is None

    attached_to_trainers = True

    def attach(self, trainer: Any) -> None:
        """Attach objective and momentum encoder to a trainer's optimizer, and check its data.

        `declutr.bridge` calls this for every trainer that is built.

        # Raises

        `ConfigurationError` : the trainer looks at a validation loss or metric that the data do not
            give, the data have more instances than the memory bank has places for, or too few
            sentences that follow each other, all parameters are frozen, or a momentum encoder, a
            decoder or the views "levels" are combined with a sharded model.
        """
        # needed in training only
        from declutr.models import trainer_data
        from declutr.models.left_modules import warn_of_left_modules

        trainer_data.require_trained(self)
        warn_of_left_modules(self._text_field_embedder, self._seq2vec_encoder)
        parts.warn_of_no_masks(self._text_field_embedder)
        parts.warn_of_unused_settings(
            self._loss,
            self._masks,
            self.masked_language_modeling,
            self.two_encoders,
            contrastive_weight=self._contrastive_weight,
            mlm_weight=self._mlm_weight,
            mlm_probability=self._mlm_probability,
            embed_with_first=self._encoders.embed_with_first,
        )
        self.require_data(trainer.data_loader)
        if self.contrastive:
            trainer_data.warn_of_missing_negatives(self._loss, trainer.data_loader)
        trainer_data.require_clusters(self._loss, trainer)
        trainer_data.require_validation_data(trainer)
        objective = self._loss if self.contrastive else None
        alone = not self.masked_language_modeling
        trainer_data.require_validation_loss(trainer, objective, alone)
        if self._loss is not None:
            self._loss.follow_optimizer(trainer.optimizer)
        trainer_data.require_whole(self, trainer, momentum_encoder=self._momentum_encoder)
        trainer_data.require_whole(self, trainer, reconstruct=self._decoder)
        levels = self._make_views if isinstance(self._make_views, LevelViews) else None
        trainer_data.require_whole(self, trainer, levels=levels)
        if self._momentum_encoder is not None:
            self._momentum_encoder.follow_trainer(trainer)

    def require_data(self, loader: Any) -> None:
        """Raise `ConfigurationError` if the objective cannot be trained on the data of a loader."""
        from declutr.models import trainer_data  # needed in training only

        trainer_data.require_room(self._loss, loader)
        if (documents := getattr(loader, "documents", None)) is not None:
            trainer_data.require_enough_texts(self._loss, len(documents))
        trainer_data.require_whole_groups(self._make_views.group, loader)
        if self.contrastive:
            trainer_data.require_consecutive(self._loss, loader)

    def embed(self, texts: TextFieldTensors) -> torch.Tensor:
        """Return the embeddings `(B, d)` of texts `(B, L)`, in float32.

        With two encoders, these are the embeddings of both, concatenated.
        """
        return self._encoders.embed(texts)

    @property
    def embedding_dim(self) -> int:
        """The width of embeddings; with two encoders that embed, of both together."""
        return self._seq2vec_encoder.get_output_dim() * len(self.embedders)

    @property
    def two_encoders(self) -> bool:
        """Whether positives are embedded by an encoder of their own."""
        return self._second_encoder is not None

    @property
    def embedders(self) -> list[torch.nn.Module]:
        """The text field embedders that embed texts: one, or with two encoders two."""
        return [encoder["embedder"] for encoder in self._encoders.embedding]

    def forward(  # type: ignore[override]
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None = None,
        negatives: TextFieldTensors | None = None,
        labels: torch.Tensor | None = None,
        ids: torch.Tensor | None = None,
        documents: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return the embeddings of texts, or the loss of spans.

        # Parameters

        anchors : texts `(B, L)`, or A spans of each document `(B, A, L)`.
        positives : `(B, A * P, L)`, ordered by anchor. Without positives, a model in evaluation
            mode returns embeddings and no loss.
        negatives : `(B, K, L)`, hard negatives from the data.
        labels : `(B,)`, classes or scores of pairs, for objectives that take them.
        ids : `(B,)`, the row of each instance in the corpus, for objectives that take them.
        documents : `(B,)`, the document of each instance, for objectives that take them.

        # Returns

        `embeddings` `(B, d)` and, with a feedforward layer, `projections` `(B, m)`; or `loss`, a
        scalar; or nothing, if a validation batch has too few pairs for a loss.

        # Raises

        `ConfigurationError` : the batch lacks what the objective needs, or has what it cannot use.
        `NonFiniteLoss` : the loss of a training step is not a finite number.
        """
        if device_of(anchors).type == "cpu":
            one_thread_if_forked()  # as a Predictor that a server opens before it forks
        if positives is None and not self.training:
            embeddings = self.embed(flat(anchors))
            if self._feedforward is None:
                return {"embeddings": embeddings}
            return {"embeddings": embeddings, "projections": self._feedforward(embeddings)}
        from declutr.modules.precision import training_precision  # needed in training only

        beside = {"labels": labels, "ids": ids, "documents": documents}
        with training_precision(self._precision, device_of(anchors)):
            loss = self._step(anchors, positives, negatives, beside, self.training)
        if self.training and loss is not None and self.record.losses.add(loss):
            self.require_finite()
        return {} if loss is None else {"loss": loss}

    def describe_objective(self) -> dict[str, Any]:
        """Return the settings that must be equal for the losses of two runs to be comparable."""
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
            **({} if self._decoder is None else {"reconstruct": True}),
            "mask_contrastive_anchor": self._mask_contrastive_anchor,
            "scale_fix": self._scale_fix,
            "precision": self._precision,
        }

    @property
    def _mlm_head_reads(self) -> str | None:
        """The layer that the language modelling head reads, or `None` if there is no such head."""
        if not self.masked_language_modeling:
            return None
        embedder: Any = self._text_field_embedder.token_embedder
        return "mix of layers" if embedder.head_reads_mix else "last layer"
