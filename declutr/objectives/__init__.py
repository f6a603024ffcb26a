"""Contrastive objectives: two views in, a scalar out. They never see a model or tokens."""

# ruff: noqa: F401 - type checkers do not see the names on demand
from typing import TYPE_CHECKING

import declutr.components  # finds objectives and miners by their registered names
from declutr.objectives.jensen_shannon import jensen_shannon  # a module has this name, too
from declutr.system.imports import attributes_on_demand

if TYPE_CHECKING:
    from declutr.objectives.library.metric_learning import LibraryObjective, MetricLearningObjective
    from declutr.objectives.library.miners import PairMarginMiner, PytorchMetricLearningMiner
    from declutr.objectives.library.pytorch_metric_learning import PytorchMetricLearning
    from declutr.objectives.memories.cross_batch_memory import CrossBatchMemory
    from declutr.objectives.memories.feature_bank import FeatureBank
    from declutr.objectives.memories.hard_negative_mixing import HardNegativeMixing, mochi_loss
    from declutr.objectives.memories.instance_bank import (
        InstanceDiscrimination,
        instance_loss,
        instance_nce_loss,
    )
    from declutr.objectives.memories.lipschitz_critic import Critic
    from declutr.objectives.memories.momentum_contrast import (
        KeyQueue,
        MomentumContrast,
        moco_loss,
        momentum_update,
    )
    from declutr.objectives.memories.reclaim import Reclaim, reclaim_loss
    from declutr.objectives.miner import Miner
    from declutr.objectives.objective import Objective
    from declutr.objectives.pairs.contrastive import Contrastive, contrastive_loss
    from declutr.objectives.pairs.debiased import (
        DebiasedContrastive,
        HardNegative,
        debiased_loss,
        hard_negative_loss,
    )
    from declutr.objectives.pairs.info_nce import InfoNCE, NPair, info_nce, n_pair_loss
    from declutr.objectives.pairs.lifted_structured import LiftedStructured, lifted_structured_loss
    from declutr.objectives.pairs.noise_contrastive import NoiseContrastive, nce_loss
    from declutr.objectives.pairs.nt_xent import NTXent, nt_xent_loss
    from declutr.objectives.pairs.quick_thoughts import QuickThoughts, quick_thoughts_loss
    from declutr.objectives.pairs.sentence_bert import (
        CosineRegression,
        PairSoftmax,
        cosine_regression_loss,
        pair_logits,
        pair_softmax_loss,
    )
    from declutr.objectives.pairs.soft_nearest_neighbours import (
        SoftNearestNeighbours,
        soft_nearest_neighbour_loss,
    )
    from declutr.objectives.pairs.sup_con import SupCon, sup_con_loss
    from declutr.objectives.pairs.triplet import Triplet, all_triplets_loss, triplet_loss
    from declutr.objectives.weighted_sum import WeightedObjective, WeightedSum
    from declutr.objectives.without_negatives.alignment_uniformity import (
        AlignUniform,
        align_uniform_loss,
        alignment,
        uniformity,
    )
    from declutr.objectives.without_negatives.bootstrap import (
        BYOL,
        byol_loss,
        symmetric_byol_loss,
        target_momentum,
    )
    from declutr.objectives.without_negatives.decorrelation import (
        SCD,
        BarlowTwins,
        barlow_twins_loss,
        cross_correlation,
        scd_loss,
        self_contrast,
    )
    from declutr.objectives.without_negatives.mutual_information import (
        ISBert,
        jsd_mutual_information_loss,
    )
    from declutr.objectives.without_negatives.swapped_prediction import (
        SwappedPrediction,
        sinkhorn_assignments,
        swav_loss,
    )

_NAMES = {
    "library.metric_learning": "LibraryObjective MetricLearningObjective",
    "library.miners": "PairMarginMiner PytorchMetricLearningMiner",
    "library.pytorch_metric_learning": "PytorchMetricLearning",
    "memories.cross_batch_memory": "CrossBatchMemory",
    "memories.feature_bank": "FeatureBank",
    "memories.hard_negative_mixing": "HardNegativeMixing mochi_loss",
    "memories.instance_bank": "InstanceDiscrimination instance_loss instance_nce_loss",
    "memories.lipschitz_critic": "Critic",
    "memories.momentum_contrast": "KeyQueue MomentumContrast moco_loss momentum_update",
    "memories.reclaim": "Reclaim reclaim_loss",
    "miner": "Miner",
    "objective": "Objective",
    "pairs.contrastive": "Contrastive contrastive_loss",
    "pairs.debiased": "DebiasedContrastive HardNegative debiased_loss hard_negative_loss",
    "pairs.info_nce": "InfoNCE NPair info_nce n_pair_loss",
    "pairs.lifted_structured": "LiftedStructured lifted_structured_loss",
    "pairs.noise_contrastive": "NoiseContrastive nce_loss",
    "pairs.nt_xent": "NTXent nt_xent_loss",
    "pairs.quick_thoughts": "QuickThoughts quick_thoughts_loss",
    "pairs.sentence_bert": (
        "CosineRegression PairSoftmax cosine_regression_loss pair_logits pair_softmax_loss"
    ),
    "pairs.soft_nearest_neighbours": "SoftNearestNeighbours soft_nearest_neighbour_loss",
    "pairs.sup_con": "SupCon sup_con_loss",
    "pairs.triplet": "Triplet all_triplets_loss triplet_loss",
    "weighted_sum": "WeightedObjective WeightedSum",
    "without_negatives.alignment_uniformity": (
        "AlignUniform align_uniform_loss alignment uniformity"
    ),
    "without_negatives.bootstrap": "BYOL byol_loss symmetric_byol_loss target_momentum",
    "without_negatives.decorrelation": (
        "BarlowTwins SCD barlow_twins_loss cross_correlation scd_loss self_contrast"
    ),
    "without_negatives.mutual_information": "ISBert jsd_mutual_information_loss",
    "without_negatives.swapped_prediction": "SwappedPrediction sinkhorn_assignments swav_loss",
}

__all__ = sorted(["jensen_shannon", *" ".join(_NAMES.values()).split()])
__getattr__, __dir__ = attributes_on_demand(__name__, _NAMES)
