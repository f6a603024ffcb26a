"""Miners of pytorch-metric-learning: which pairs of a batch the loss looks at."""

from typing import Any, Optional

import torch

from declutr.objectives.library import library_parts
from declutr.objectives.library.library_parts import distances, miners
from declutr.objectives.miner import Miner


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
            distances.CosineSimilarity()
            if use_similarity
            else distances.LpDistance(power=2 if squared_distances else 1)
        )
        super().__init__(pos_margin=pos_margin, neg_margin=neg_margin, distance=distance)


@Miner.register("pml")
@Miner.register("pytorch_metric_learning")
class PytorchMetricLearningMiner(Miner):
    """A miner of pytorch-metric-learning, made of parts by name.

        {"type": "pytorch_metric_learning", "miner": "MultiSimilarityMiner",
         "miner_args": {"epsilon": 0.1, "distance": {"class": "CosineSimilarity"}}}

    # Parameters

    miner : the name of a class in `pytorch_metric_learning.miners`.
    miner_args : its arguments; `{"class": ..., argument: ...}` is a part of the library itself.

    # Raises

    `ConfigurationError` : a name or argument that the library does not have.
    """

    def __init__(self, miner: str, miner_args: Optional[dict[str, Any]] = None) -> None:
        super().__init__()
        self._miner: torch.nn.Module = library_parts.built("miner", miner, miner_args)

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        ref_emb: Optional[torch.Tensor] = None,
        ref_labels: Optional[torch.Tensor] = None,
    ) -> Any:
        """Indices of pairs or triplets in the rows, or between them and rows `ref_emb` `(K, d)`."""
        return self._miner(embeddings, labels, ref_emb, ref_labels)
