"""What every contrastive objective is."""

from typing import Optional

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

from declutr.objectives.miner import Miner

VIEWS, TEXTS, TOKENS = "views", "texts", "tokens"


class Objective(torch.nn.Module, Registrable):
    """A loss between two views of the same N things; register subclasses under a name.

    `forward(anchors, positives)` takes two raw tensors `(N, d)`, row i of both belonging together,
    and returns a scalar to be minimised. Under several processes both hold the rows of all of them.
    Embeddings come in float32 at least; normalisation is the objective's own business.

    What else comes with a batch an objective gets by keyword, if it names it in `needs` or `takes`:
    `labels` `(N,)`, classes (int64) or scores (float32); `ids` `(N,)`, the rows of the corpus;
    `documents` `(N,)`, the documents they belong to (int64); `texts` `(N,)`, equal numbers (int64)
    for equal texts; `negatives` `(M, d)`.

    After a step, `last_terms` (scalars, logged as `<name>_term`) and `last_metrics` (means over
    pairs, logged under their own names) may hold what else is worth logging.
    """

    default_implementation = "nt_xent"

    min_pairs: int = 2
    """Fewer pairs than this have no negatives, and the loss says nothing."""

    compares: str = VIEWS
    """What it gets: `"views"`, two of them; `"texts"`, `forward(anchors)`, of one view; `"tokens"`,
    `forward(local_vectors (N, T, c), mask (N, T))`, of a pooler that has them
    (`ngram_convolutions`)."""

    needs: tuple[str, ...] = ()
    """What must come with a batch: see above."""

    takes: tuple[str, ...] = ()
    """What it can make use of, where it comes."""

    @property
    def wants(self) -> tuple[str, ...]:
        """All that it is given, where it comes."""
        return self.needs + self.takes

    uses_projections: Optional[str] = None
    """`"beside"`: it gets embeddings and their projections, `forward(anchors, positives,
    projected_anchors, projected_positives)`; else projections in place of embeddings."""

    uses_targets: Optional[str] = None
    """What of a momentum encoder it compares with: `"keys"`, the positives are its, or `"both"`,
    `forward(anchors, positives, target_anchors, target_positives)`."""

    embedding_size: Optional[int] = None
    """The width of what it gets, where it was told; the model sees that it is."""

    same_texts: bool = False
    """Whether both views must be of the same text: it finds other pairs in the batch itself."""

    def forward(self, anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        """Select pairs with `miner` before the loss; objectives that cannot do so raise."""
        raise ConfigurationError(f"{type(self).__name__} takes no miner: remove the key 'miner'.")
