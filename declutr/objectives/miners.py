"""Miners of pytorch-metric-learning: which pairs of a batch the loss looks at."""

import torch
from allennlp.common import Registrable
from pytorch_metric_learning import miners
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance


class Miner(torch.nn.Module, Registrable):
    """Takes embeddings `(M, d)` and labels `(M,)`; returns the tuple of indices of pairs.

    Subclasses also subclass a miner of pytorch-metric-learning.
    """

    default_implementation = "pair_margin"


@Miner.register("pair_margin")
class PairMarginMiner(Miner, miners.PairMarginMiner):
    """Keeps positives that are not yet close and negatives that are not yet far.

    # Parameters

    pos_margin, neg_margin : the two thresholds. With similarities, positives below `pos_margin` and
        negatives above `neg_margin` are kept; with distances the other way round.
    use_similarity : compare cosines (default) or Euclidean distances.
    squared_distances : square the distances.
    """

    def __init__(
        self,
        pos_margin: float,
        neg_margin: float,
        use_similarity: bool = True,
        squared_distances: bool = False,
    ) -> None:
        distance = (
            CosineSimilarity()
            if use_similarity
            else LpDistance(power=2 if squared_distances else 1)
        )
        super().__init__(pos_margin=pos_margin, neg_margin=neg_margin, distance=distance)
