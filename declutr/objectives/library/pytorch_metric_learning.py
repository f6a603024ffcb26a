"""Objectives and miners that are losses and miners of pytorch-metric-learning, built by name."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.library import library_parts
from declutr.objectives.library.library_parts import distances, losses, miners
from declutr.objectives.numerics import full_precision, nothing
from declutr.objectives.objective import LibraryObjective, Miner, Objective


@Objective.register("pml")
@Objective.register("pytorch_metric_learning")
class PytorchMetricLearning(LibraryObjective):
    """A loss of pytorch-metric-learning (Musgrave et al., 2020), which is built by name.

        {"type": "pytorch_metric_learning", "loss": "TripletMarginLoss",
         "loss_args": {"margin": 0.2, "distance": {"class": "LpDistance", "power": 2},
                       "reducer": {"class": "MeanReducer"}}}

    An argument `{"class": ..., argument: ...}`, at any depth, is a distance, reducer, regularizer,
    loss or miner of the library. The library's defaults are kept: distances normalise rows, and
    many losses average only the terms that are not zero.

    Both rows of a pair have the same label. These losses can be used:

    - on labelled rows: AngularLoss, CircleLoss, ContrastiveLoss, FastAPLoss,
      GeneralizedLiftedStructureLoss, InstanceLoss, IntraPairVarianceLoss, LiftedStructureLoss,
      MarginLoss, MultiSimilarityLoss, MultipleLosses, NCALoss, NPairsLoss, NTXentLoss, PNPLoss,
      RankedListLoss, SignalToNoiseRatioContrastiveLoss, SmoothAPLoss, SupConLoss,
      ThresholdConsistentMarginLoss, TripletMarginLoss, TupletMarginLoss;
    - on the two views as such: SelfSupervisedLoss, VICRegLoss.

    The other losses are refused: those that learn weights for each class (ArcFaceLoss,
    ProxyAnchorLoss, ...), and a few for the reasons in `library_parts.REFUSED`. NTXentLoss and
    losses over triplets need memory that grows with the cube of N; the objectives `nt_xent`,
    `sup_con` and `triplet` have the same values, and their memory grows with its square.

    # Parameters

    loss : the name of a class in `pytorch_metric_learning.losses`.
    loss_args : the arguments of its constructor.

    # Raises

    `ConfigurationError` : if the library does not have the name or an argument, or if the loss
        makes no sense for two views.
    """

    def __init__(self, loss: str, loss_args: Optional[dict[str, Any]] = None) -> None:
        super().__init__()
        self._loss: torch.nn.Module = library_parts.built("loss", loss, loss_args)
        self.takes_labels = not isinstance(  # These losses compare two views without labels.
            self._loss, (losses.SelfSupervisedLoss, losses.VICRegLoss)
        )
        self.temperature: Optional[float] = getattr(self._loss, "temperature", None)

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        return self._loss

    def attach_miner(self, miner: Miner) -> None:
        """Let `miner` select the pairs that the loss is computed of.

        Losses that always need all pairs raise when they are given some. So the loss is tried here
        with pairs of its own, before training begins.

        # Raises

        `ConfigurationError` : if the loss takes no miner.
        """
        from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_pairs_indices

        name = type(self._loss).__name__
        refusal = ConfigurationError(f"{name} takes no miner: remove the key 'miner'.")
        if not self.takes_labels:
            raise refusal
        parameter = next(self._loss.parameters(), torch.zeros(()))
        rows = torch.eye(4, device=parameter.device)
        labels = torch.tensor([0, 0, 1, 1], device=parameter.device)
        try:
            with torch.no_grad():
                self._loss(rows, labels, get_all_pairs_indices(labels))
        except ValueError as error:
            raise refusal from error
        super().attach_miner(miner)

    def forward(
        self, anchors: Tensor, positives: Tensor, *, labels: Tensor | None = None
    ) -> Tensor:
        if self.takes_labels:
            return super().forward(anchors, positives, labels=labels)
        if len(anchors) < 2:  # A single pair has no negatives, and its features have no variance.
            return nothing(anchors, positives)
        return full_precision(self._loss)(anchors, ref_emb=positives)


@Miner.register("pair_margin")
class PairMarginMiner(Miner, miners.PairMarginMiner):
    """A miner that keeps positives that are not yet close and negatives that are not yet far.

    # Parameters

    pos_margin, neg_margin : the two thresholds. With cosines, positives below `pos_margin` and
        negatives above `neg_margin` are kept; with distances it is the other way round.
    use_similarity : whether to compare cosines or Euclidean distances.
    squared_distances : whether to square the distances.
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
    """A miner of pytorch-metric-learning, which is built by name.

        {"type": "pytorch_metric_learning", "miner": "MultiSimilarityMiner",
         "miner_args": {"epsilon": 0.1, "distance": {"class": "CosineSimilarity"}}}

    # Parameters

    miner : the name of a class in `pytorch_metric_learning.miners`.
    miner_args : the arguments of its constructor, of which `{"class": ..., argument: ...}` is a
        part of the library itself.

    # Raises

    `ConfigurationError` : if the library does not have the name or an argument.
    """

    def __init__(self, miner: str, miner_args: Optional[dict[str, Any]] = None) -> None:
        super().__init__()
        self._miner: torch.nn.Module = library_parts.built("miner", miner, miner_args)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Any:
        """Return the indices of the selected pairs or triplets, in the form of the library.

        # Parameters

        embeddings, labels : rows `(M, d)` and their labels `(M,)`.
        ref_emb, ref_labels : other rows `(K, d)` and their labels `(K,)`, if pairs are to be
            selected between the rows and these; by default pairs are selected within the rows.
        """
        return self._miner(embeddings, labels, ref_emb, ref_labels)
