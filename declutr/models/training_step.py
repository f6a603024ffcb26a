"""A pass of training or validation: the texts of a batch to encode, and their loss."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors

from declutr.models.contrastive_term import ContrastiveTerm
from declutr.models.encoding import Encoding
from declutr.models.metrics import StepRecord
from declutr.models.views import Views
from declutr.modules.text_batches import count, device_of, flat, text_keys
from declutr.objectives.objective import PAIRS
from declutr.sampling.masking import mask_tokens
from declutr.system.distributed import all_reduced, with_value, world_size
from declutr.system.host_memory import on_host, to_device

_VALIDATION_MASKS = 13370  # the seed of validation masks, so that losses of epochs are comparable


@dataclass(eq=False)
class TrainingStep:
    """The loss of a batch: `contrastive_weight * contrastive + mlm_weight * mlm`.

    # Parameters

    views : the choice of the texts to encode.
    encoding : the computation of their embeddings.
    contrastive : the contrastive term; `None` leaves it out.
    contrastive_weight, mlm_weight : the weights of the two terms.
    record : the record of metrics that losses are added to.
    decoder : predicts anchors from the embeddings of positives, in place of masked tokens.
    """

    views: BatchViews
    encoding: Encoding
    contrastive: ContrastiveTerm | None
    contrastive_weight: float
    mlm_weight: float
    record: StepRecord
    decoder: torch.nn.Module | None = None

    def __call__(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        negatives: TextFieldTensors | None,
        beside: dict[str, torch.Tensor | None],
        training: bool,
    ) -> torch.Tensor | None:
        """Return the loss of a batch; `None` if neither term can be computed.

        # Parameters

        anchors, positives, negatives : as `DeCLUTR.forward` takes them.
        beside : the labels, ids and documents of the batch, `(B,)` each or `None`.
        training : False for a pass over validation data.
        """
        texts, labels = self.views(anchors, positives, negatives, training)
        encoded = self.encoding(texts, labels, documents=count(anchors))
        terms: list[torch.Tensor] = []
        sums, task = encoded.mlm_sums, "mlm"
        if self.decoder is not None:
            noisy, originals = encoded.embeddings["positives"], flat(anchors, True)
            sums, task = self.decoder(noisy, originals), "reconstruction"
        if sums is not None:
            terms.append(self.mlm_weight * self._token_loss(sums, task, training))
        if self.contrastive is not None:
            beside = {**beside, "texts": self.views.equal_texts(anchors, positives is not None)}
            contrastive = self.contrastive(encoded.embeddings, beside, training)
            if contrastive is not None:
                terms.append(self.contrastive_weight * contrastive)
        return torch.stack(terms).sum() if terms else None

    def _token_loss(self, sums: torch.Tensor, task: str, training: bool) -> torch.Tensor:
        """Return the mean loss over the predicted tokens of all processes together."""
        loss_sum, correct, tokens = all_reduced(sums)
        predicted = tokens.clamp_min(1)
        self.record.tokens(task, loss_sum / predicted, correct / predicted, tokens, training)
        return with_value(sums[0] * world_size() / predicted, loss_sum / predicted)


@dataclass(eq=False)
class BatchViews:
    """A callable that selects the texts of a batch to encode, by the name of the view.

    # Parameters

    wanted : the names of the inputs of the objective; empty without a contrastive term.
    objective : the name of the objective in error messages.
    views : the way to make the two views.
    embedder : the text field embedder, which knows the mask token and special tokens.
    has_target : whether there is a momentum encoder.
    mlm_probability : the share of tokens that are masked; 0 without masked language modelling.
    reconstructs : whether positives are embedded to predict anchors from them.
    mask_contrastive_anchor : whether masked anchors are contrasted, and not the clean ones.
    """

    wanted: Container[str]
    objective: str
    views: Views
    embedder: Any
    has_target: bool
    mlm_probability: float
    reconstructs: bool
    mask_contrastive_anchor: bool

    def __call__(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        negatives: TextFieldTensors | None,
        training: bool,
    ) -> tuple[dict[str, TextFieldTensors], torch.Tensor | None]:
        """Return the texts `(n, L)` of each view, and the labels of the view "masked".

        The view "masked", if there is one, comes first. Without a view "anchors", it is contrasted
        in their place. The view "token_vectors" holds anchors whose token embeddings the objective
        takes.
        """
        anchors = flat(anchors, positives is not None)
        texts: dict[str, TextFieldTensors] = {}
        labels = None
        if self.mlm_probability:
            texts["masked"], labels = self.masked(anchors, training)
        if "token_vectors" in self.wanted:
            texts["token_vectors"] = anchors
        elif any(name in self.wanted for name in PAIRS):
            clean, second = self.views(anchors, positives and flat(positives, True), self.embedder)
            # Masked anchors are not contrasted in validation, whose loss must not depend on masks,
            # nor with views of the same text, which must differ by those views only.
            masked = training and self.mask_contrastive_anchor and self.views.needs_positives
            texts |= self._of_pair(clean, second, with_anchors=labels is None or not masked)
            if negatives is not None:
                texts["negatives"] = self._negatives(negatives)
        elif "anchors" in self.wanted:
            texts["anchors"] = anchors
        if self.reconstructs:
            texts["positives"] = self._noisy(anchors, positives)
        return texts, labels

    def _noisy(
        self, anchors: TextFieldTensors, positives: TextFieldTensors | None
    ) -> TextFieldTensors:
        """Return the texts with noise, one for each of the anchors `(N, L)`."""
        noisy = None if positives is None else flat(positives, True)
        if noisy is None or count(noisy) != count(anchors):
            got = "none" if noisy is None else f"{count(noisy)} for {count(anchors)} anchors"
            raise ConfigurationError(
                f"reconstruct needs a positive for each anchor, the same text with noise; got "
                f'{got}. Take the dataset reader "augmented", with an augmentation such as '
                '{"type": "eda", "replacement": 0, "insertion": 0, "swap": 0, "deletion": 0.6}.'
            )
        require_word_pieces(anchors, "reconstruct")
        return noisy

    def equal_texts(self, anchors: TextFieldTensors, spans: bool) -> torch.Tensor | None:
        """Return keys `(n,)` that are equal for equal texts, if the objective takes them."""
        return text_keys({"anchors": flat(anchors, spans)}) if "texts" in self.wanted else None

    def _of_pair(
        self, anchors: TextFieldTensors, positives: TextFieldTensors, with_anchors: bool
    ) -> dict[str, TextFieldTensors]:
        """Return the texts of both views of each pair that an encoder has to embed."""
        texts = {"anchors": anchors} if with_anchors else {}
        by_target = {"keys": positives, "target_anchors": anchors, "target_positives": positives}
        if not self.has_target:  # the model's own projections are the targets
            by_target = {}
        if any(name in self.wanted and name not in by_target for name in PAIRS):
            texts["positives"] = positives
        return texts | {name: by_target[name] for name in by_target if name in self.wanted}

    def _negatives(self, negatives: TextFieldTensors) -> TextFieldTensors:
        if "negatives" not in self.wanted:
            raise ConfigurationError(
                f"The data has hard negatives, of which {self.objective} makes no use. Take "
                "info_nce or triplet, or remove them from the dataset reader (negative; format)."
            )
        return flat(negatives, True)

    def masked(
        self, anchors: TextFieldTensors, training: bool
    ) -> tuple[TextFieldTensors, torch.Tensor]:
        """Return anchors with tokens masked, and the labels `(N, L)` of masked language modelling.

        # Raises

        `ConfigurationError` : the texts are not indexed as word pieces of a transformer.
        """
        require_word_pieces(anchors, "Masking")
        ((name, tensors),) = anchors.items()
        # Masks are drawn on the host, which gives the same masks for every device, and a copy of
        # the labels that the host can read without a wait.
        token_ids, device = on_host(tensors["token_ids"]), device_of(anchors)
        embedder = self.embedder.token_embedder
        masked_ids, labels = mask_tokens(
            token_ids,
            embedder.maskable(token_ids, on_host(tensors["mask"])),
            mask_id=embedder.tokenizer.mask_token_id,
            vocab_size=len(embedder.tokenizer),
            probability=self.mlm_probability,
            generator=None if training else torch.Generator().manual_seed(_VALIDATION_MASKS),
        )
        masked = {**tensors, "token_ids": to_device(masked_ids, device)}
        return {name: masked}, to_device(labels, device)


def require_word_pieces(texts: TextFieldTensors, task: str) -> None:
    """Raise `ConfigurationError` unless texts are word pieces of a transformer, and not folded."""
    if len(texts) != 1:
        raise ConfigurationError(
            f"{task} needs a single token indexer, got {sorted(texts)}. Leave one in the reader."
        )
    ((_, tensors),) = texts.items()
    if "token_ids" not in tensors:
        raise ConfigurationError(
            f"{task} needs the ids of word pieces, got {sorted(tensors)}. Give the dataset "
            'reader a tokenizer and a token indexer of type "pretrained_transformer".'
        )
    if tensors["token_ids"].shape != tensors["mask"].shape:
        raise ConfigurationError(
            f"{task} needs texts in one piece, and the token indexer folds them by its max_length. "
            "Remove it there: the dataset reader's own max_length cuts longer texts."
        )
