"""Any loss of pytorch-metric-learning that makes sense for two views, by its name."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives.full_precision import full_precision
from declutr.objectives.library import library_parts
from declutr.objectives.library.library_parts import losses
from declutr.objectives.library.metric_learning import LibraryObjective, without_labels
from declutr.objectives.miner import Miner
from declutr.objectives.objective import Objective
from declutr.objectives.reductions import nothing

# These compare two views and take no labels.
_OF_TWO_VIEWS = (losses.SelfSupervisedLoss, losses.VICRegLoss)


@Objective.register("pml")
@Objective.register("pytorch_metric_learning")
class PytorchMetricLearning(LibraryObjective):
    """A loss of pytorch-metric-learning (Musgrave et al., 2020), made of parts by name.

        {"type": "pytorch_metric_learning", "loss": "TripletMarginLoss",
         "loss_args": {"margin": 0.2, "distance": {"class": "LpDistance", "power": 2},
                       "reducer": {"class": "MeanReducer"}}}

    `{"class": ..., argument: ...}` is a distance, reducer, regularizer, loss or miner of the
    library, at any depth. Its defaults are kept: distances normalise rows, and many losses average
    the terms that are not zero.

    The 2N rows of both views share the label of their pair. These losses can be used:

    - on labelled rows: AngularLoss, CircleLoss, ContrastiveLoss, FastAPLoss,
      GeneralizedLiftedStructureLoss, InstanceLoss, IntraPairVarianceLoss, LiftedStructureLoss,
      MarginLoss, MultiSimilarityLoss, MultipleLosses, NCALoss, NPairsLoss, NTXentLoss, PNPLoss,
      RankedListLoss, SignalToNoiseRatioContrastiveLoss, SmoothAPLoss, SupConLoss,
      ThresholdConsistentMarginLoss, TripletMarginLoss, TupletMarginLoss;
    - on the two views as such: SelfSupervisedLoss, VICRegLoss.

    The others are refused: those that learn something for each class (ArcFaceLoss, ProxyAnchorLoss,
    ...), and a few for reasons in `library_parts.REFUSED`. NTXentLoss and losses over triplets need
    memory cubic in N; `nt_xent`, `sup_con` and `triplet` have the same values for its square.

    # Parameters

    loss : the name of a class in `pytorch_metric_learning.losses`.
    loss_args : its arguments.

    # Raises

    `ConfigurationError` : a name or argument that the library does not have, or one that makes no
        sense for two views.
    """

    def __init__(self, loss: str, loss_args: Optional[dict[str, Any]] = None) -> None:
        super().__init__()
        self._loss: torch.nn.Module = library_parts.built("loss", loss, loss_args)
        self.temperature: Optional[float] = getattr(self._loss, "temperature", None)

    @property
    def inputs(self) -> dict[str, bool]:
        of_pairs = isinstance(self._loss, _OF_TWO_VIEWS)
        return without_labels(super().inputs) if of_pairs else super().inputs

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        return self._loss

    def attach_miner(self, miner: Miner) -> None:
        self._refuse_unused_miner()
        super().attach_miner(miner)

    def forward(
        self,
        anchors: torch.Tensor,
        positives: torch.Tensor,
        *,
        labels: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        if not isinstance(self._loss, _OF_TWO_VIEWS):
            return super().forward(anchors, positives, labels=labels)
        if len(anchors) < 2:  # neither negatives nor a variance
            return nothing(anchors, positives)
        return self._of_two_views(anchors, positives)

    @full_precision
    def _of_two_views(self, anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
        return self._loss(anchors, ref_emb=positives)

    def _refuse_unused_miner(self) -> None:
        """Some losses look at all pairs, and say so when given some: ask now, not in training."""
        from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_pairs_indices

        name = type(self._loss).__name__
        refusal = ConfigurationError(f"{name} takes no miner: remove the key 'miner'.")
        if isinstance(self._loss, _OF_TWO_VIEWS):
            raise refusal
        parameter = next(self._loss.parameters(), torch.zeros(()))
        rows = torch.eye(4, device=parameter.device)
        labels = torch.tensor([0, 0, 1, 1], device=parameter.device)
        try:
            with torch.no_grad():
                self._loss(rows, labels, get_all_pairs_indices(labels))
        except ValueError as error:
            raise refusal from error
