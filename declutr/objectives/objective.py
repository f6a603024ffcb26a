"""What every contrastive objective is."""

from typing import Optional

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

from declutr.objectives.inputs import inputs_of
from declutr.objectives.miner import Miner

# Of the class attribute `compares`, by which objectives of earlier releases say what they take.
VIEWS, TEXTS, TOKENS = "views", "texts", "tokens"


class Objective(torch.nn.Module, Registrable):
    """A loss between two views of the same N things; register subclasses under a name.

    `forward` returns a scalar to be minimised. A model gives it what its arguments name, of which
    those with a default may be missing:

    - `anchors`, `positives`: the two views `(N, d)`, row i of both belonging together. They are
      projections where the model projects, unless `projected_anchors` are asked for as well.
    - `projected_anchors`, `projected_positives`: projections `(N, m)`, beside embeddings.
    - `keys`: positives by the momentum encoder, or `positives` where there is none.
    - `target_anchors`, `target_positives`: both views by the momentum encoder or, where there is
      none, as they are before the predictor. They have no gradient.
    - `token_vectors` `(N, T, c)` and `token_mask` `(N, T)`, of a pooler that has them
      (`ngram_convolutions`); `anchors` are their means `(N, c)` then.
    - what comes with a batch: `labels` `(N,)`, classes (int64) or scores (float32); `ids` `(N,)`,
      the rows of the corpus; `documents` `(N,)`, the documents they belong to (int64); `texts`
      `(N,)`, equal numbers (int64) for equal texts; `negatives` `(M, d)`.

    An objective of `anchors` alone needs no second view. Under several processes all hold the rows
    of all of them. Embeddings come in float32 at least; normalisation is the objective's own
    business.

    After a step, `last_terms` (scalars, logged as `<name>_term`) and `last_metrics` (means over
    pairs, logged under their own names) may hold what else is worth logging.
    """

    default_implementation = "nt_xent"

    min_pairs: int = 2
    """Fewer pairs than this have no negatives, and the loss says nothing."""

    embedding_size: Optional[int] = None
    """The width of what it gets, where it was told; the model sees that it is."""

    same_texts: bool = False
    """Whether both views must be of the same text: it finds other pairs in the batch itself."""

    @property
    def inputs(self) -> dict[str, bool]:
        """The names of what it takes, and whether that must be given: the arguments of `forward`,
        unless a subclass says otherwise."""
        return inputs_of(self).required

    def forward(self, anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        """Select pairs with `miner` before the loss; objectives that cannot do so raise."""
        raise ConfigurationError(f"{type(self).__name__} takes no miner: remove the key 'miner'.")
