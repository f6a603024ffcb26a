"""Recognising the neighbours of a sentence (Quick-Thoughts; Logeswaran & Lee, 2018)."""

import math

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.checks import check_views, require, scalar_reduction
from declutr.objectives.numerics import full_precision, reduced_where
from declutr.objectives.objective import Objective


@full_precision
def quick_thoughts_loss(
    sentences: Tensor,
    contexts: Tensor,
    documents: Tensor | None = None,
    context: int = 1,
    parity: bool = False,
    average_context: bool = True,
    ids: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of `softmax(f g')` against a sentence's neighbours, equally likely.

    Row i of `sentences` (f) and of `contexts` (g), both raw `(B, d)`, embed sentence i of B
    consecutive ones by two encoders. Scores are plain dot products. Candidates are all other rows;
    targets are rows i - c to i + c but i, within the batch and the document (Logeswaran & Lee,
    2018, equation 3, with all context sentences in one softmax as in the public code). Rows
    without a neighbour are left out.

    # Parameters

    documents : ids `(B,)` of the documents of the rows; without it all are of one document.
    context : c, neighbours on each side.
    parity : as in the public code, score one's own sentence 0 instead of leaving it out.
    ids : the places `(B,)` of the sentences in the corpus; without it they follow each other.
        Rows of several processes, and those around one that was left out, do not.
    average_context : `False` adds the terms of a row's neighbours instead, as the paper prints.
    reduction : `"none"` gives the terms of the rows that have neighbours.
    """
    terms, kept = _terms(sentences, contexts, documents, context, parity, average_context, ids)
    return reduced_where(kept, terms, reduction)


def _terms(
    sentences: Tensor,
    contexts: Tensor,
    documents: Tensor | None,
    context: int,
    parity: bool,
    average_context: bool,
    ids: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The terms `(B,)` of all rows, and which of them have neighbours; those of others are 0."""
    check_views(sentences, contexts)
    count = sentences.size(0)
    index = torch.arange(count, device=sentences.device) if ids is None else ids
    _check_numbers("id", index, count)
    apart = (index.unsqueeze(1) - index).abs()  # (B, B)
    neighbours = (apart > 0) & (apart <= context)
    if documents is not None:
        _check_numbers("document id", documents, count)
        neighbours &= documents.unsqueeze(1) == documents
    numbers = neighbours.sum(dim=1)  # (B,)
    kept = numbers > 0
    # A row without neighbours keeps itself, so that it is never a sum of nothing.
    own = (apart == 0) & kept.unsqueeze(1)
    scores = (sentences @ contexts.T).masked_fill(own, 0.0 if parity else -math.inf)  # (B, B)
    costs = (scores.logsumexp(dim=1, keepdim=True) - scores).masked_fill(~neighbours, 0)
    terms = costs.sum(dim=1)
    return terms / numbers.clamp_min(1) if average_context else terms, kept


def _check_numbers(what: str, numbers: Tensor, count: int) -> None:
    if numbers.shape != (count,):
        raise ValueError(
            f"Expected one {what} for each of the {count} rows, got {tuple(numbers.shape)}."
        )


@Objective.register("quick_thoughts")
class QuickThoughts(Objective):
    """`quick_thoughts_loss` of consecutive sentences, embedded by two encoders without shared
    weights.

    `forward(f, g, ids=..., documents=...)`, which tell what follows what: rows may come from
    several documents and processes. With the model's `two_encoders`, a reader of sentences with
    ids, and a data loader with `consecutive`. `with_neighbours` in the log is the share of
    sentences that have a neighbour in the batch; others teach nothing.

    # Parameters

    context : neighbours on each side, 1 or more.
    parity : score one's own sentence 0, as the public code does, instead of leaving it out.
    reduction : `"mean"` or `"sum"` over the rows that have neighbours.
    """

    same_texts = True

    def __init__(self, context: int = 1, parity: bool = False, reduction: str = "mean") -> None:
        super().__init__()
        if context < 1:
            raise ConfigurationError(f"context must be at least 1 sentence, got {context}.")
        self.context = context
        self.parity = parity
        self.reduction = scalar_reduction(reduction)

    @full_precision
    def forward(  # type: ignore[override]
        self,
        anchors: Tensor,
        positives: Tensor,
        ids: Tensor,
        documents: Tensor,
    ) -> Tensor:
        """# Raises

        `ValueError` : shapes that do not fit; in training, no row with a neighbour in the batch.
        """
        terms, kept = _terms(anchors, positives, documents, self.context, self.parity, True, ids)
        self.last_metrics = {"with_neighbours": kept.sum().to(terms.dtype) / max(1, len(ids))}
        if self.training:
            require(
                kept.any(),
                f"No sentence of the batch of {len(ids)} has a neighbour in it",
                advice="Set 'consecutive' to true on the data loader, or raise batch_size.",
            )
        return reduced_where(kept, terms, self.reduction)
