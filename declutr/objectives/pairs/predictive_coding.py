"""Contrastive predictive coding of the sentences of documents (CPC; van den Oord et al., 2018)."""

import math

import torch
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.objective import Objective


@numerics.full_precision
def cpc_loss(
    embeddings: Tensor,
    contexts: Tensor,
    matrices: Tensor,
    sequences: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross entropy of recognising the sentences that follow a context.

    Sentence t has the embedding z_t and the context c_t. For each step ahead k = 1..K, sentence
    t + k is to be recognised among all N sentences of the batch by the scores `z_j . W_k c_t`
    (van den Oord et al., 2018, equations 3 and 4, without the constant of the number of
    candidates). The N - 1 negatives are thus all other sentences: of the same document, sentence t
    and those before it included, and of other documents. The terms are those of all pairs (t, k)
    of which sentence t + k is in the batch and in the same sequence.

    # Parameters

    embeddings : raw embeddings z `(N, d)`, in the order of the sentences.
    contexts : contexts c `(N, m)`.
    matrices : W `(K, d, m)`, one matrix for each step ahead.
    sequences : integers `(N,)` that are equal for neighbouring rows of the same sequence only. By
        default all rows are one sequence.
    reduction : `"mean"` or `"sum"` over the terms, or `"none"` for the terms, by k and then by t.

    # Raises

    `ValueError` : if shapes do not fit or the reduction is unknown.
    """
    terms, kept, _ = _terms(embeddings, contexts, matrices, sequences)
    return numerics.reduced_where(kept, terms, reduction)


def _terms(
    embeddings: Tensor, contexts: Tensor, matrices: Tensor, sequences: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return terms `(K, N)`, a mask of those that count, and a mask of those ranked first."""
    expected = (matrices.size(0), embeddings.size(-1), contexts.size(-1))
    if embeddings.dim() != 2 or len(contexts) != len(embeddings) or matrices.shape != expected:
        raise ValueError(
            "Expected embeddings (N, d), contexts (N, m) and matrices (K, d, m), got "
            f"{tuple(embeddings.shape)}, {tuple(contexts.shape)} and {tuple(matrices.shape)}."
        )
    count = len(embeddings)
    places = torch.arange(count, device=embeddings.device)
    ahead = torch.arange(1, len(matrices) + 1, device=embeddings.device).unsqueeze(1)
    targets = places + ahead  # (K, N)
    kept = targets < count
    targets = targets.clamp_max(count - 1)
    if sequences is not None:
        kept = kept & (sequences[targets] == sequences)
    scores = (contexts @ matrices.mT) @ embeddings.T  # (K, N, N)
    wanted = scores.gather(2, targets.unsqueeze(2)).squeeze(2)
    return scores.logsumexp(dim=2) - wanted, kept, scores.argmax(dim=2) == targets


@Objective.register("cpc")
class PredictiveCoding(Objective):
    """The loss of predicting the next sentences of a document from those before (CPC).

    A GRU goes over the sentences of each document in the batch, in their order, and its states are
    the contexts. The function is `cpc_loss`; the negatives are all other sentences of the batch, of
    the same document and of others. The GRU and the matrices serve training only: a text is
    embedded by the encoder, as z.

    A sentence is the next one if its id is the next number and its document the same. The objective
    needs a dataset reader of sentences with ids, and a data loader with `consecutive`. A context
    begins with its document, with the batch, or with the next window of `max_context` sentences of
    the batch, whichever comes last; predictions cross windows. If no two sentences of a batch
    follow each other, the loss is 0, and so are all gradients. The metric `with_next` is the share
    of pairs of a sentence and a step ahead that have a target in the batch, and
    `prediction_accuracy` the share of these targets that have the highest score of all sentences.

    # Parameters

    embedding_size : the width d of embeddings.
    context_size : the width m of contexts, by default d (the paper has 2,400 for both).
    steps : the number K of sentences ahead that are predicted; 3 in the paper's experiments on
        text.
    max_context : the largest number of sentences in a context. The GRU takes as many steps.
    reduction : `"mean"` or `"sum"` over the pairs of a sentence and a step ahead.

    # Raises

    `ConfigurationError` : if a size, `steps` or `max_context` is not above 0.
    """

    def __init__(
        self,
        embedding_size: int,
        context_size: int | None = None,
        steps: int = 3,
        max_context: int = 32,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.embedding_size = numerics.above_zero("embedding_size", embedding_size)
        width = embedding_size if context_size is None else context_size
        numerics.above_zero("context_size", width)
        self.max_context = numerics.above_zero("max_context", max_context)
        self.min_consecutive = self.min_pairs = numerics.above_zero("steps", steps) + 1
        self.recurrence = torch.nn.GRUCell(embedding_size, width)
        bound = 1 / math.sqrt(width)  # as torch.nn.Linear begins
        start = torch.empty(steps, embedding_size, width).uniform_(-bound, bound)
        self.matrices = torch.nn.Parameter(start)  # (K, d, m)
        self.reduction = numerics.scalar_reduction(reduction)

    @numerics.full_precision
    def forward(  # type: ignore[override]
        self, anchors: Tensor, ids: Tensor, documents: Tensor
    ) -> Tensor:
        """Compute the loss of the sentences of a batch, in any order.

        # Parameters

        anchors : the embeddings `(N, d)`.
        ids : the positions `(N,)` of the sentences in the corpus.
        documents : the ids `(N,)` of the documents that they belong to.

        # Raises

        `ValueError` : if shapes do not fit.
        """
        numerics.check_width(anchors, self.recurrence.weight_ih)
        if not ids.shape == documents.shape == anchors.shape[:1]:
            raise ValueError(
                f"Expected an id and a document for each of the {len(anchors)} rows, got "
                f"{tuple(ids.shape)} and {tuple(documents.shape)}."
            )
        order = ids.argsort()
        anchors, ids, documents = anchors[order], ids[order], documents[order]
        follows = (ids.diff() == 1) & (documents.diff() == 0)  # (N - 1,)
        begins = torch.nn.functional.pad(~follows, (1, 0), value=True)  # (N,)
        contexts = self.contexts(anchors, begins)
        terms, kept, first = _terms(anchors, contexts, self.matrices, begins.cumsum(dim=0))
        pairs = kept.sum().to(terms.dtype)
        self.last_metrics = {
            "with_next": pairs / kept.numel(),
            "prediction_accuracy": (first & kept).sum() / pairs.clamp_min(1),
        }
        return numerics.reduced_where(kept, terms, self.reduction)

    def contexts(self, embeddings: Tensor, begins: Tensor) -> Tensor:
        """Return the contexts `(N, m)`: states of the GRU, which begins anew where told.

        It also does every `max_context` rows.

        # Parameters

        embeddings : embeddings `(N, d)`, in the order of the sentences.
        begins : a mask `(N,)`, True at sentences that do not follow the one before.
        """
        count = len(embeddings)
        length = min(self.max_context, count)
        missing = -count % length
        # Windows (T, B, ...) side by side take T steps, and the host need not know any length.
        rows, kept = (
            torch.nn.functional.pad(values, (0, 0, 0, missing)).unflatten(0, (-1, length))
            for values in (embeddings, (~begins).to(embeddings.dtype).unsqueeze(1))
        )
        state = embeddings.new_zeros(len(rows), self.recurrence.hidden_size)
        states = []
        for row, keep in zip(rows.unbind(dim=1), kept.unbind(dim=1), strict=True):
            state = self.recurrence(row, state * keep)
            states.append(state)
        return torch.stack(states, dim=1).flatten(0, 1)[:count]
