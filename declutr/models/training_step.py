"""One step of training or validation, from the texts of a batch to the loss."""

from __future__ import annotations

import torch
from allennlp.data import TextFieldTensors

from declutr.models.batch_views import BatchViews
from declutr.models.contrastive_term import ContrastiveTerm
from declutr.models.encoding import Encoding
from declutr.models.step_record import StepRecord
from declutr.modules.text_batches import count
from declutr.system.distributed import all_reduced, with_value, world_size


class TrainingStep:
    """`contrastive_weight * contrastive + mlm_weight * mlm`, of the terms that there are.

    # Parameters

    views : which texts are encoded.
    encoding : makes their embeddings.
    contrastive : the term of the objective; `None` without one.
    weights : of the contrastive term and of masked language modelling.
    record : of the steps.
    """

    def __init__(
        self,
        views: BatchViews,
        encoding: Encoding,
        contrastive: ContrastiveTerm | None,
        weights: tuple[float, float],
        record: StepRecord,
    ) -> None:
        self.views, self._encoding, self._contrastive = views, encoding, contrastive
        self._contrastive_weight, self._mlm_weight = weights
        self._record = record

    def __call__(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        negatives: TextFieldTensors | None,
        beside: dict[str, torch.Tensor | None],
        training: bool,
    ) -> torch.Tensor | None:
        """The loss of a batch; `None` if there is no term (see `DeCLUTR.forward`)."""
        texts, labels = self.views(anchors, positives, negatives, training)
        encoded = self._encoding(texts, labels, documents=count(anchors))
        terms: list[torch.Tensor] = []
        if encoded.mlm_sums is not None:
            terms.append(self._mlm_weight * self._mlm_loss(encoded.mlm_sums, training))
        if self._contrastive is not None:
            beside = {**beside, "texts": self.views.equal_texts(anchors, positives is not None)}
            contrastive = self._contrastive(encoded.embeddings, beside, training)
            if contrastive is not None:
                terms.append(self._contrastive_weight * contrastive)
        return torch.stack(terms).sum() if terms else None

    def _mlm_loss(self, sums: torch.Tensor, training: bool) -> torch.Tensor:
        """The mean over the masked tokens of all processes (not a mean of their means)."""
        loss_sum, correct, masked = all_reduced(sums)
        predicted = masked.clamp_min(1)
        self._record.masked_lm(loss_sum / predicted, correct / predicted, masked, training)
        return with_value(sums[0] * world_size() / predicted, loss_sum / predicted)
