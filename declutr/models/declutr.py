"""The Model "declutr": a text encoder trained by contrast, masked language modelling, or both."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Optional

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import get_text_field_mask
from torch.nn.functional import pad

from declutr.models.fit import (
    head_of,
    pooler_of,
    predictor_of,
    require_fit,
    require_objective,
    require_one_encoder,
    require_targets,
    require_two_encoders,
    require_width,
    second_encoder,
)
from declutr.models.views import SpanViews, Views
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.gradient_caching import Encoded, encode_in_chunks
from declutr.modules.heads import Head
from declutr.modules.metrics import RunningMeans, UnreadLosses, retrieval_accuracy
from declutr.modules.momentum import MomentumEncoder
from declutr.modules.precision import require_precision, training_precision
from declutr.modules.text_batches import count, device_of, flat, joined
from declutr.modules.text_keys import text_keys
from declutr.objectives import Miner, Objective, alignment, uniformity
from declutr.objectives.objective import TEXTS, TOKENS, VIEWS
from declutr.sampling.masking import IGNORE, mask_tokens
from declutr.system.cpu_memory import HEAP
from declutr.system.distributed import (
    all_reduced,
    gather_numbers,
    gather_rows,
    gather_tokens,
    is_sharded,
    with_value,
    world_size,
)
from declutr.system.host_copies import carried, on_host, to_device

logger = logging.getLogger(__name__)

_WHERE_FROM = {
    "labels": 'the reader "text_pairs" does, classes with labels "class" or "nli", scores with '
    'labels "score"',
    "ids": "its key 'with_ids' makes it",
    "documents": "the reader \"sentences\" does, with its key 'with_ids'",
    "negatives": 'the reader "text_pairs" does, with negative columns or format "nli"',
}
_VALIDATION_MASKS = 13370  # seeds the masks of validation, so that its loss compares over epochs


class NonFiniteLoss(ValueError):
    """The loss of a training step is not a number."""


@Model.register("declutr")
class DeCLUTR(Model):
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

    asked_rarely: bool = False
    """Whether metrics of training are read whenever they are asked for. The trainer "declutr" sets
    this, as it asks only when it wants them; otherwise `get_metrics` reads every tenth time."""

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
        self._text_field_embedder = text_field_embedder
        width = text_field_embedder.get_output_dim()
        self._seq2vec_encoder = pooler_of(seq2vec_encoder, width)
        self._feedforward = feedforward
        require_fit("seq2vec_encoder", self._seq2vec_encoder.get_input_dim(), width)
        if feedforward is not None:
            pooled = self._seq2vec_encoder.get_output_dim()
            require_fit("feedforward", feedforward.get_input_dim(), pooled)
            if loss is None:
                raise ConfigurationError(
                    "A feedforward layer projects for a contrastive loss: set 'loss', or remove it."
                )
        self._head = head_of(head, self._seq2vec_encoder.get_output_dim(), feedforward)
        projects = self._head is not None or feedforward is not None
        self._make_views = views or SpanViews()
        require_objective(loss, projects, self._seq2vec_encoder, self._make_views, chunk_size)
        require_width(loss, self._seq2vec_encoder, self._head or feedforward)
        self._predictor = predictor_of(predictor, self._head, loss)
        self._momentum_encoder = momentum_encoder
        require_targets(loss, momentum_encoder, feedforward)
        if two_encoders:
            require_two_encoders(loss, momentum_encoder, feedforward)
        require_one_encoder(self._make_views, momentum_encoder, two_encoders)
        self._loss = loss
        self._miner = miner
        if miner is not None:
            if loss is None:
                raise ConfigurationError("A miner needs a contrastive loss: set 'loss'.")
            loss.attach_miner(miner)
        self.masked_language_modeling = (
            getattr(text_field_embedder, "masked_language_modeling", False) and mlm_weight > 0
        )
        self.contrastive = loss is not None and contrastive_weight > 0
        if not self.contrastive and not self.masked_language_modeling:
            raise ConfigurationError(
                "Nothing to train by: give the model a contrastive 'loss', or a text field "
                'embedder of type "mlm" with masked_language_modeling, or both (weights above 0).'
            )
        if not 0 < mlm_probability <= 1:
            raise ConfigurationError(f"mlm_probability must lie in (0, 1], got {mlm_probability}.")
        if not self.masked_language_modeling and isinstance(
            text_field_embedder, MLMTextFieldEmbedder
        ):
            text_field_embedder.freeze_head()
        self._contrastive_weight = contrastive_weight
        self._mlm_weight = mlm_weight
        self._scale_fix = scale_fix
        self._mlm_probability = mlm_probability
        self._mask_contrastive_anchor = mask_contrastive_anchor
        self._precision = precision
        require_precision(precision)
        if chunk_size is not None and chunk_size < 1:
            raise ConfigurationError(f"chunk_size must be at least 1, got {chunk_size}.")
        self._chunk_size = chunk_size
        # Where padding costs, anchors and positives are padded apart, each to its longest.
        self._joins_views = any(getattr(m, "unpads", False) for m in text_field_embedder.modules())
        self._metrics = {True: RunningMeans(), False: RunningMeans()}  # training, validation
        self._losses = UnreadLosses()  # of training
        (initializer or InitializerApplicator())(self)
        if momentum_encoder is not None:
            momentum_encoder.follow(
                {
                    "embedder": text_field_embedder,
                    "pooler": self._seq2vec_encoder,
                    "head": self._head,
                }
            )
        self._second_encoder: torch.nn.ModuleDict | None = None
        if two_encoders:
            self._second_encoder = second_encoder(
                text_field_embedder, self._seq2vec_encoder, self._head
            )

    def attach(self, trainer: Any) -> None:
        """Let the momentum encoder follow the optimizer of a trainer, and look whether its data can
        serve; the bridge calls this.

        # Raises

        `ConfigurationError` : validation by a loss that there will not be; more instances than an
            objective has places for.
        """
        self._require_room(trainer)
        self._require_validation(trainer)
        if self._momentum_encoder is None:
            return
        if is_sharded(self) or getattr(trainer._ddp_wrapped_model, "attach", None) is not None:
            raise ConfigurationError(
                'A momentum_encoder does not work with the accelerator "fsdp": remove one of them.'
            )
        try:
            batches = len(trainer.data_loader)
        except TypeError:  # a loader that does not know
            steps = None
        else:
            groups = -(-batches // trainer._num_gradient_accumulation_steps)
            steps = groups * trainer._num_epochs
        self._momentum_encoder.follow_optimizer(trainer.optimizer, steps)

    def _require_room(self, trainer: Any) -> None:
        room = getattr(self._loss, "instances", None)
        rows = getattr(trainer.data_loader, "documents", None)
        if room is not None and rows is not None and len(rows) and int(rows.max()) >= room:
            raise ConfigurationError(
                f"{type(self._loss).__name__} has places for {room} instances, but ids go up to "
                f"{int(rows.max())}. Set model.loss.instances to the rows of train_data_path, "
                f"blank ones included: at least {int(rows.max()) + 1}."
            )

    def _require_validation(self, trainer: Any) -> None:
        """Without positives, a model that does not train only embeds: AllenNLP would take its loss
        for 0, and the first epoch for the best."""
        loader: Any = getattr(trainer, "_validation_data_loader", None)
        reader = getattr(loader, "reader", None)
        tracked = {name for _, name in trainer._metric_tracker.tracked_metrics}
        if reader is None or "loss" not in tracked or not self.contrastive:
            return
        path, documents = loader.data_path, getattr(loader, "documents", None)
        if documents is None:  # of AllenNLP's own loader
            documents = reader.documents(path) if hasattr(reader, "documents") else []
        if not len(documents):
            return
        instance = reader.instance(path, int(documents[0]))
        if "positives" not in instance.fields:
            raise ConfigurationError(
                "There is no validation loss where the dataset reader brings no positives: both "
                "views are the same text, and they differ in training alone. Remove "
                "validation_data_path; to choose among epochs, use the callback "
                "evaluate_embeddings (select_by)."
            )

    # --------------------------------------------------------------------------------- forward

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
            return self._embed_texts(anchors)
        with training_precision(self._precision, device_of(anchors)):
            beside = {"labels": labels, "ids": ids, "documents": documents}
            given = {name: values for name, values in beside.items() if values is not None}
            if self._loss is not None and "texts" in self._loss.wants:
                keys = text_keys({"anchors": flat(anchors, positives is not None)})
                if keys is not None:
                    given["texts"] = keys
            loss = self._training_loss(anchors, positives, negatives, given)
        if self.training and loss is not None and self._losses.add(loss):
            self.require_finite()
        return {} if loss is None else {"loss": loss}

    def _embed_texts(self, texts: TextFieldTensors) -> dict[str, torch.Tensor]:
        embeddings = self.embed(flat(texts))
        output = {"embeddings": embeddings}
        if self._feedforward is not None:
            output["projections"] = self._feedforward(embeddings)
        return output

    def embed(self, texts: TextFieldTensors) -> torch.Tensor:
        """The embeddings `(B, d)` of texts `(B, L)`, in float32; the LM head is not run."""
        embeddings = _pooled(self._seq2vec_encoder, self._text_field_embedder(texts), texts)
        if self._second_encoder is None:
            return embeddings
        second = self._second_encoder["pooler"], self._second_encoder["embedder"](texts)
        return torch.cat([embeddings, _pooled(*second, texts)], dim=-1)

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

    def _training_loss(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        negatives: TextFieldTensors | None,
        beside: dict[str, torch.Tensor],
    ) -> torch.Tensor | None:
        views, labels = self._views(anchors, positives, negatives)
        documents, chunk = count(anchors), self._chunk_size
        if not views:
            encoded = Encoded({}, None)
        elif chunk is None or documents <= chunk:
            encoded = self._encode(views, labels)
        else:
            encoded = encode_in_chunks(self._encode, views, labels, documents, chunk)
        terms: list[torch.Tensor] = []
        if encoded.mlm_sums is not None:
            terms.append(self._mlm_weight * self._mlm_loss(encoded.mlm_sums))
        if self._compares == TOKENS:
            contrastive = self._token_loss(flat(anchors))
            if contrastive is not None:
                terms.append(self._contrastive_weight * contrastive)
        elif self._compares is not None:
            embeddings = encoded.embeddings
            embeddings.setdefault("anchors", embeddings.get("masked"))  # type: ignore[arg-type]
            contrastive = self._contrastive_loss(embeddings, beside)
            if contrastive is not None:
                terms.append(self._contrastive_weight * contrastive)
        return torch.stack(terms).sum() if terms else None

    def _views(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        negatives: TextFieldTensors | None,
    ) -> tuple[dict[str, TextFieldTensors], torch.Tensor | None]:
        """The texts to encode: masked anchors (then first, with labels), anchors, positives and
        negatives."""
        anchors = flat(anchors, positives is not None)
        views: dict[str, TextFieldTensors] = {}
        labels = None
        if self.masked_language_modeling:
            views["masked"], labels = self._masked(anchors)
        if self._compares == TEXTS:
            views["anchors"] = anchors
        if self._compares == VIEWS:
            assert self._loss is not None
            clean, positives = self._make_views(
                anchors, positives and flat(positives, True), self._text_field_embedder
            )
            # In validation, what is contrasted must not depend on masks; and views of the same text
            # differ by what makes them, not by masks as well.
            masked = self.training and self._mask_contrastive_anchor
            if labels is None or not (masked and self._make_views.needs_positives):
                views["anchors"] = clean
            views["positives"] = positives
            if negatives is not None:
                if "negatives" not in self._loss.wants:
                    raise ConfigurationError(
                        "The data has hard negatives, of which "
                        f"{type(self._loss).__name__} makes no use. Take info_nce or triplet, or "
                        "remove them from the dataset reader (negative; format)."
                    )
                views["negatives"] = flat(negatives, True)
            if self._momentum_encoder is not None and self._loss.uses_targets == "both":
                views |= {"target_anchors": clean, "target_positives": positives}
        return views, labels

    @property
    def _compares(self) -> str | None:
        return self._loss.compares if self._loss is not None and self.contrastive else None

    # ------------------------------------------------------------------------------ the encoder

    def _encode(self, views: dict[str, TextFieldTensors], labels: torch.Tensor | None) -> Encoded:
        """Every view by the encoder that is to embed it."""
        targets = [name for name in views if self._is_of_target(name)]
        seconds = [name for name in views if self._is_of_second(name)]
        made = ["positives"] if "positives" in views and self._make_views.embeds_positives else []
        others = targets + seconds + made
        own = {name: texts for name, texts in views.items() if name not in others}
        encoded = self._encode_own(own, labels)
        for name in made:
            encoded.embeddings[name] = self._make_views.embed_positives(
                views[name], self._text_field_embedder
            )
        for name in targets:
            encoded.embeddings[name] = self._embed_by_target(name, views[name])
        for name in seconds:
            encoded.embeddings[name] = self._embed_by(self._second_encoder, name, views[name])
        return encoded

    def _is_of_target(self, name: str) -> bool:
        if self._momentum_encoder is None or self._loss is None:
            return False
        keys = self._loss.uses_targets == "keys" and name == "positives"
        return keys or name.startswith("target_")

    def _is_of_second(self, name: str) -> bool:
        return self._second_encoder is not None and name in ("positives", "negatives")

    @torch.no_grad()
    def _embed_by_target(self, name: str, texts: TextFieldTensors) -> torch.Tensor:
        return self._embed_by(self._momentum_encoder, name.removeprefix("target_"), texts)

    def _embed_by(self, encoder: Any, name: str, texts: TextFieldTensors) -> torch.Tensor:
        """One view by another encoder, `{"embedder": ..., "pooler": ...}`."""
        with self._make_views.within(name, encoder["embedder"]):
            return _pooled(encoder["pooler"], encoder["embedder"](texts), texts)

    def _encode_own(
        self, views: dict[str, TextFieldTensors], labels: torch.Tensor | None
    ) -> Encoded:
        if self.training and device_of(next(iter(views.values()))).type == "cpu":
            HEAP.settle()
        alone = len(views) == 1
        joins = self._joins_views and not self._make_views.changes_passes
        together = joined(list(views.values())) if alone or joins else None
        if together is None:
            return self._encode_apart(views, labels)
        embedder, mlm_sums = self._text_field_embedder, None
        if labels is None:
            vectors = embedder(together)
        else:
            assert isinstance(embedder, MLMTextFieldEmbedder)
            ((_, tensors),) = together.items()
            rows, width = tensors["mask"].shape
            missing = (0, width - labels.size(1), 0, rows - labels.size(0))
            labels = carried(lambda own: pad(own, missing, value=IGNORE), labels)
            output = embedder.masked_lm(together, labels)
            vectors = output.embeddings
            mlm_sums = torch.stack([output.loss_sum, output.num_correct, output.num_masked])
        sizes = [count(texts) for texts in views.values()]
        embeddings = _pooled(self._seq2vec_encoder, vectors, together).split(sizes)
        return Encoded(dict(zip(views, embeddings, strict=True)), mlm_sums)

    def _encode_apart(
        self, views: dict[str, TextFieldTensors], labels: torch.Tensor | None
    ) -> Encoded:
        """A pass for each view."""
        each = []
        for name in views:
            made = name in ("anchors", "positives")
            with (
                self._make_views.within(name, self._text_field_embedder) if made else nullcontext()
            ):
                each.append(
                    self._encode_own({name: views[name]}, labels if name == "masked" else None)
                )
        embeddings = {name: vectors for one in each for name, vectors in one.embeddings.items()}
        return Encoded(embeddings, each[0].mlm_sums)

    # ------------------------------------------------------------------------------- the terms

    def _masked(self, anchors: TextFieldTensors) -> tuple[TextFieldTensors, torch.Tensor]:
        """Anchors with tokens masked, and the labels `(N, L)`."""
        embedder = self._text_field_embedder
        assert isinstance(embedder, MLMTextFieldEmbedder)
        ((name, tensors),) = anchors.items()
        if "token_ids" not in tensors:
            raise ConfigurationError(
                f"Masking needs the ids of word pieces, got {sorted(tensors)}. Give the dataset "
                'reader a tokenizer and a token indexer of type "pretrained_transformer".'
            )
        # Drawn on the host, where it must be known what is masked: the same masks on any device.
        token_ids, device = on_host(tensors["token_ids"]), device_of(anchors)
        generator = None
        if not self.training:
            generator = torch.Generator().manual_seed(_VALIDATION_MASKS)
        masked_ids, labels = mask_tokens(
            token_ids,
            embedder.token_embedder.maskable(token_ids, on_host(tensors["mask"])),
            mask_id=embedder.token_embedder.tokenizer.mask_token_id,
            vocab_size=len(embedder.token_embedder.tokenizer),
            probability=self._mlm_probability,
            generator=generator,
        )
        masked = {**tensors, "token_ids": to_device(masked_ids, device)}
        return {name: masked}, to_device(labels, device)

    def _mlm_loss(self, sums: torch.Tensor) -> torch.Tensor:
        """The mean over the masked tokens of all processes (not a mean of their means)."""
        loss_sum, correct, masked = all_reduced(sums)
        predicted = masked.clamp_min(1)
        self._record("mlm_loss", loss_sum / predicted, masked)
        self._record("mlm_accuracy", correct / predicted, masked)
        return with_value(sums[0] * world_size() / predicted, loss_sum / predicted)

    def _contrastive_loss(
        self, embeddings: dict[str, torch.Tensor], beside: dict[str, torch.Tensor]
    ) -> torch.Tensor | None:
        """The objective over the pairs of all processes; `None` if validation has too few pairs.

        Of this process: `anchors` `(B * A, d)`, `positives` `(B * A * P, d)`, `negatives`
        `(B * K, d)`, and what the target makes of the views; and what comes beside texts, `(B,)`.
        """
        assert self._loss is not None
        anchors = embeddings["anchors"]
        views: dict[str, torch.Tensor] = {
            name: _mean_of_groups(embeddings[name], anchors.size(0))
            for name in ("anchors", "positives", "target_anchors", "target_positives")
            if name in embeddings
        }
        if self._feedforward is not None:
            views |= {
                f"projected_{name}": _mean_of_groups(
                    self._feedforward(embeddings[name]).float(), anchors.size(0)
                )
                for name in ("anchors", "positives")
                if name in embeddings
            }
        # Each process holds the gradient of its own rows, and DistributedDataParallel averages.
        factor = self._gradient_factor
        rows = torch.cat(list(views.values()), dim=1)  # one exchange for all
        parts = gather_rows(rows, factor).split([view.size(1) for view in views.values()], dim=1)
        views = dict(zip(views, parts, strict=True))
        if not self._has_negatives(views["anchors"].size(0)):
            return None
        with torch.autocast(anchors.device.type, enabled=False):
            self._record_geometry(views)
            given = self._gathered(beside, anchors.size(0))
            if "negatives" in embeddings:
                negatives = gather_rows(embeddings["negatives"], factor)
                given["negatives"] = self._projected("negatives", negatives)
            self._require_given(given)
            loss = self._loss(*self._compared(views), **given)
        self._record_loss(loss, views["anchors"].size(0))
        return loss

    @property
    def _gradient_factor(self) -> int:
        return world_size() if self._scale_fix else 1

    def _gathered(self, beside: dict[str, torch.Tensor], anchors: int) -> dict[str, torch.Tensor]:
        """What the objective wants of that, `(N,)` for the anchors of all processes."""
        assert self._loss is not None
        wanted = self._loss.wants
        if "labels" in beside and "labels" not in wanted:
            raise ConfigurationError(
                f"The data has labels, of which {type(self._loss).__name__} makes no use. Remove "
                "'labels' from the dataset reader, or take an objective of labelled pairs."
            )
        return {
            name: gather_numbers(carried(_repeated(anchors // len(values)), values))
            for name, values in beside.items()
            if name in wanted
        }

    def _require_given(self, given: dict[str, torch.Tensor]) -> None:
        assert self._loss is not None
        missing = [name for name in self._loss.needs if name not in given]
        if missing:
            raise ConfigurationError(
                f"{type(self._loss).__name__} needs {' and '.join(missing)}, which the dataset "
                f"reader does not bring: {_WHERE_FROM[missing[0]]}."
            )

    def _has_negatives(self, pairs: int) -> bool:
        """Whether there are enough anchors; in training there must be."""
        assert self._loss is not None
        if pairs >= self._loss.min_pairs:
            return True
        if not self.training:
            return False
        raise ConfigurationError(
            f"The batch has {pairs} anchor(s), so there are no negatives to contrast with; at "
            f"least {self._loss.min_pairs} are needed. Raise batch_size (or num_anchors), and "
            "set drop_last on the data loader."
        )

    def _token_loss(self, anchors: TextFieldTensors) -> torch.Tensor | None:
        """The objective over the tokens and texts of all processes; `None` as above."""
        assert self._loss is not None
        pooler: Any = self._seq2vec_encoder
        mask = get_text_field_mask(anchors)
        local = pooler.local_vectors(self._text_field_embedder(anchors).float(), mask)
        local, tokens = gather_tokens(local, mask, self._gradient_factor)
        if not self._has_negatives(len(tokens)):
            return None
        texts = pooler.mean(local, tokens)
        self._record_geometry({"anchors": texts})
        loss = self._loss(local, tokens, texts)
        self._record_loss(loss, texts.size(0))
        return loss

    def _compared(self, views: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """What the objective gets of gathered views, in the order of its arguments."""
        assert self._loss is not None
        names = [name for name in ("anchors", "positives") if name in views]
        pair = [views[name] for name in names]
        if self._feedforward is not None:
            projected = [views[f"projected_{name}"] for name in names]
        else:
            projected = [self._projected(name, views[name]) for name in names]
        if self._loss.uses_projections == "beside":
            return pair + projected
        if self._loss.uses_targets != "both":
            return projected
        targets = projected
        if self._momentum_encoder is not None:
            targets = [
                self._projected(name, views[name])
                for name in ("target_anchors", "target_positives")
            ]
        if self._predictor is not None:
            projected = [self._predictor(view) for view in projected]
        return projected + [target.detach() for target in targets]

    def _projected(self, name: str, embeddings: torch.Tensor) -> torch.Tensor:
        """The view of that name, by what projects it."""
        if self._feedforward is not None:
            return self._feedforward(embeddings).float()
        if self._head is None:
            return embeddings
        if self._is_of_second(name):
            assert self._second_encoder is not None
            return self._second_encoder["head"](embeddings)
        if not self._is_of_target(name):
            return self._head(embeddings)
        assert self._momentum_encoder is not None
        with torch.no_grad():
            return self._momentum_encoder["head"](embeddings)

    # ----------------------------------------------------------------------------- the record

    def _record(self, name: str, value: torch.Tensor, weight: torch.Tensor | float = 1.0) -> None:
        self._metrics[self.training].record(name, value, weight)

    def _record_loss(self, loss: torch.Tensor, rows: int) -> None:
        self._record("contrastive_loss", loss)
        for name, value in getattr(self._loss, "last_terms", {}).items():
            self._record(f"{name}_term", value)
        for name, value in getattr(self._loss, "last_metrics", {}).items():
            self._record(name, value, float(rows))

    def _record_geometry(self, views: dict[str, torch.Tensor]) -> None:
        anchors, pairs = views["anchors"].detach(), float(views["anchors"].size(0))
        if "positives" in views and views["positives"].size(1) == anchors.size(1):
            positives = views["positives"].detach()
            self._record("retrieval_accuracy", retrieval_accuracy(anchors, positives), pairs)
            self._record("alignment", alignment(anchors, positives), pairs)
        if pairs > 1:
            self._record("uniformity", uniformity(anchors), pairs)

    @property
    def training_means(self) -> RunningMeans:
        """The metrics of the current epoch of training, for checkpoints."""
        return self._metrics[True]

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Means since the last reset: `contrastive_loss`, `mlm_loss`, `mlm_accuracy`,
        `retrieval_accuracy`, `alignment` and `uniformity`, as far as they are computed, and what
        the objective reports of itself.

        Without `reset`, and unless they are `asked_rarely`, they may be up to 10 steps old where
        the model is not on the CPU.

        # Raises

        `NonFiniteLoss` : as `require_finite`.
        """
        means = self._metrics[self.training]
        if not (reset or (self.asked_rarely and self.training) or means.due()):
            return means.last
        self.require_finite()
        computed = means.compute()
        if reset:
            means.reset()
        return computed

    def require_finite(self) -> None:
        """Look at the losses of training since this was called last.

        In the forward pass the host does not wait for them, unless it computes them itself (CPU).

        # Raises

        `NonFiniteLoss` : one of them is not a finite number.
        """
        broken = self._losses.first_broken()
        if broken is None:
            return
        loss, number, last = broken
        place = "" if number == last else f" in training pass {number} of {last}"
        raise NonFiniteLoss(
            f"The loss is {loss}{place}: not a finite number (running means of this epoch: "
            f"{self._metrics[True].compute()}). Training stops here; the last checkpoint is "
            "kept, and --recover continues from it. Lower the learning rate, or set "
            'precision to "float32".'
        )

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The weights, of which none are written after a step that broke them (`require_finite`:
        whoever writes a checkpoint or the best weights asks for them here)."""
        self.require_finite()
        return super().state_dict(*args, **kwargs)

    def describe_objective(self) -> dict[str, Any]:
        """What a run record must say so that losses of different runs can be compared."""
        return {
            "objective": type(self._loss).__name__ if self._loss is not None else None,
            "views": type(self._make_views).__name__ if self._compares == VIEWS else None,
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


def _pooled(
    pooler: torch.nn.Module, token_vectors: torch.Tensor, texts: TextFieldTensors
) -> torch.Tensor:
    return pooler(token_vectors.float(), mask=get_text_field_mask(texts))


def _repeated(times: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda values: values.repeat_interleave(times)


def _mean_of_groups(rows: torch.Tensor, groups: int) -> torch.Tensor:
    """`(G * P, d)` -> `(G, d)`: positives are represented by their mean (section 3.1)."""
    return rows.reshape(groups, -1, rows.size(-1)).mean(dim=1)
