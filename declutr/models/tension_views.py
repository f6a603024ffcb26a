"""The pairs of contrastive tension: of one sentence, and of two different ones."""

import contextlib
from contextlib import AbstractContextManager

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.modules import TextFieldEmbedder

from declutr.models.views import Views
from declutr.modules.text_batches import count, each
from declutr.objectives.numerics import above_zero


@Views.register("tension")
class TensionViews(Views):
    """Views that pair a sentence with itself, and others with each other (Carlsson et al., 2021).

    Of every 2 K + 1 texts of a batch, the first is paired with itself, and the others with each
    other, which makes a group of K + 1 pairs. Each encoder gets one text of every pair. So does the
    public code; a figure of the paper has the same sentence in all pairs of a group.

    # Parameters

    negatives : K, the pairs of two sentences for each pair of one.
    dropout : the rate of dropout in the encoders; `None` leaves it as it is.

    # Raises

    `ConfigurationError` : a value is out of range, or, in training, a batch is no multiple of
        2 K + 1 texts.
    """

    changes_passes = True

    def __init__(self, negatives: int = 7, dropout: float | None = None) -> None:
        super().__init__()
        self.group = above_zero("negatives", negatives) + 1
        if dropout is not None and not 0 <= dropout < 1:
            raise ConfigurationError(f"dropout must lie in [0, 1), got {dropout}.")
        self.dropout = dropout

    def within(self, name: str, encoder: torch.nn.Module) -> AbstractContextManager:
        from declutr.transformer.architectures import dropout_rate

        if self.dropout is None:
            return contextlib.nullcontext()
        return dropout_rate(encoder, self.dropout)

    def forward(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        embedder: TextFieldEmbedder,
    ) -> tuple[TextFieldTensors, TextFieldTensors]:
        texts, _ = super().forward(anchors, positives, embedder)
        size, rows = 2 * self.group - 1, count(texts)
        if rows % size:
            raise ConfigurationError(
                f"A batch has {rows} texts, of which these views make groups of {size}: set "
                f"data_loader.batch_size to a multiple of {size}, and drop_last to true."
            )
        first, second = (
            [start + place for start in range(0, rows, size) for place in (0, *places)]
            for places in (range(1, self.group), range(self.group, size))
        )
        return each(texts, lambda t: t[first]), each(texts, lambda t: t[second])
