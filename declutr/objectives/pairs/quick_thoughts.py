"""Quick-Thoughts: recognising the neighbours of a sentence (Logeswaran & Lee, 2018)."""

import math

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.objective import Objective


@numerics.full_precision
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
    """Compute the cross entropy of recognising the neighbours of each sentence in a batch.

    Two encoders embed B sentences: f `(B, d)` and g `(B, d)`. The scores of sentence i are the dot
    products of f_i with all other rows of g. Its targets, equally likely, are the sentences i - c
    to i + c except i that are in the batch and in the same document (Logeswaran & Lee, 2018,
    equation 3, with all context sentences in one softmax as in the public code). Rows without a
    neighbour are left out.

    # Parameters

    sentences, contexts : the raw embeddings f and g `(B, d)` of the same sentences.
    documents : the ids `(B,)` of the documents of the rows. By default all rows are of one
        document.
    context : the number c of neighbours on each side.
    parity : whether a sentence has the score 0 with itself, as in the public code, instead of not
        being its own candidate.
    average_context : whether to average the terms of the neighbours of a row. `False` adds them, as
        the paper prints it.
    ids : the positions `(B,)` of the sentences in the corpus. By default the rows are consecutive,
        which the rows of several processes and the rows around a skipped sentence are not.
    reduction : `"mean"` or `"sum"` over the rows with neighbours, or `"none"` for their losses.

    # Raises

    `ValueError` : if shapes do not fit or the reduction is unknown.
    """
    terms, kept = _terms(sentences, contexts, documents, context, parity, average_context, ids)
    return numerics.reduced_where(kept, terms, reduction)


def _terms(
    sentences: Tensor,
    contexts: Tensor,
    documents: Tensor | None,
    context: int,
    parity: bool,
    average_context: bool,
    ids: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the terms `(B,)` of all rows, and a mask of the rows that have neighbours.

    The terms of rows without neighbours are 0.
    """
    numerics.check_views(sentences, contexts)
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
    # A row without neighbours keeps its own score: the logarithm of an empty sum is not finite.
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
    """The Quick-Thoughts loss of consecutive sentences, each embedded by two encoders.

    The function is `quick_thoughts_loss`. The ids and documents of `forward` say which sentences
    are neighbours, so that rows may come from several documents and processes. The objective needs
    a model with `two_encoders`, a dataset reader of sentences with ids, and a data loader with
    `consecutive`. The metric `with_neighbours` is the share of sentences that have a neighbour in
    the batch; the loss learns nothing from the others.

    # Parameters

    context : the number of neighbours on each side, 1 or more.
    parity : whether a sentence has the score 0 with itself, as in the public code, instead of not
        being its own candidate.
    reduction : `"mean"` or `"sum"` over the rows with neighbours.
    """

    same_texts = True
    min_consecutive = 2  # a sentence and its neighbour

    def __init__(self, context: int = 1, parity: bool = False, reduction: str = "mean") -> None:
        super().__init__()
        if context < 1:
            raise ConfigurationError(f"context must be at least 1 sentence, got {context}.")
        self.context = context
        self.parity = parity
        self.reduction = numerics.scalar_reduction(reduction)

    @numerics.full_precision
    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, ids: Tensor, documents: Tensor
    ) -> Tensor:
        """Compute the loss of sentences that two encoders have embedded.

        # Parameters

        anchors, positives : the embeddings `(B, d)` of the first and of the second encoder.
        ids : the positions `(B,)` of the sentences in the corpus.
        documents : the ids `(B,)` of the documents that they belong to.

        # Raises

        `ValueError` : if shapes do not fit, or if in training no sentence has a neighbour in the
            batch.
        """
        terms, kept = _terms(anchors, positives, documents, self.context, self.parity, True, ids)
        self.last_metrics = {"with_neighbours": kept.sum().to(terms.dtype) / max(1, len(ids))}
        if self.training:
            numerics.require(
                kept.any(),
                f"No sentence of the batch of {len(ids)} has a neighbour in it",
                advice="Set 'consecutive' to true on the data loader, or raise batch_size.",
            )
        return numerics.reduced_where(kept, terms, self.reduction)
