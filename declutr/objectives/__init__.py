"""Contrastive objectives: losses that take two views and return a scalar.

An objective never sees the model that embeds the texts, nor their tokens.
"""

# ruff: noqa: F401, F403 - type checkers cannot see names that are imported on demand
# The star imports below also bring in constants, some of which have the same name in two modules.
# mypy: disable-error-code="assignment"
from typing import TYPE_CHECKING

import declutr.components  # finds objectives and miners by their registered names
from declutr.system import attributes_on_demand

if TYPE_CHECKING:
    from declutr.objectives.consistency import *
    from declutr.objectives.distances import *
    from declutr.objectives.library.pytorch_metric_learning import *
    from declutr.objectives.matryoshka import *
    from declutr.objectives.memories.cross_batch_memory import *
    from declutr.objectives.memories.distillation import *
    from declutr.objectives.memories.feature_bank import *
    from declutr.objectives.memories.hard_negative_mixing import *
    from declutr.objectives.memories.instance_bank import *
    from declutr.objectives.memories.lipschitz_critic import *
    from declutr.objectives.memories.momentum_contrast import *
    from declutr.objectives.memories.reclaim import *
    from declutr.objectives.memories.reclaim_losses import *
    from declutr.objectives.nt_xent import *
    from declutr.objectives.objective import *
    from declutr.objectives.pairs.contrastive_tension import *
    from declutr.objectives.pairs.debiased import *
    from declutr.objectives.pairs.info_nce import *
    from declutr.objectives.pairs.metric_learning import *
    from declutr.objectives.pairs.noise_contrastive import *
    from declutr.objectives.pairs.predictive_coding import *
    from declutr.objectives.pairs.quick_thoughts import *
    from declutr.objectives.pairs.sentence_bert import *
    from declutr.objectives.pairs.triplet import *
    from declutr.objectives.weighted_sum import *
    from declutr.objectives.without_negatives.alignment_uniformity import *
    from declutr.objectives.without_negatives.bootstrap import *
    from declutr.objectives.without_negatives.decorrelation import *
    from declutr.objectives.without_negatives.deep_cluster import *
    from declutr.objectives.without_negatives.mutual_information import *
    from declutr.objectives.without_negatives.swapped_prediction import *

_NAMES = {
    "consistency": "annealed_cross_entropy annealing_threshold sharpened_divergence",
    "distances": "jensen_shannon",
    "library.pytorch_metric_learning": (
        "PairMarginMiner PytorchMetricLearning PytorchMetricLearningMiner"
    ),
    "matryoshka": "Matryoshka",
    "memories.cross_batch_memory": "CrossBatchMemory",
    "memories.distillation": "Distillation distillation_loss",
    "memories.feature_bank": "FeatureBank",
    "memories.hard_negative_mixing": "HardNegativeMixing mochi_loss",
    "memories.instance_bank": (
        "InstanceDiscrimination instance_loss instance_nce_loss proximal_loss"
    ),
    "memories.lipschitz_critic": "Critic",
    "memories.momentum_contrast": "KeyQueue MomentumContrast moco_loss momentum_update",
    "memories.reclaim": "Reclaim",
    "memories.reclaim_losses": "reclaim_loss",
    "nt_xent": "NTXent SupCon nt_xent_loss sup_con_loss",
    "objective": "LibraryObjective MetricLearningObjective Miner Objective",
    "pairs.contrastive_tension": "ContrastiveTension tension_loss",
    "pairs.debiased": "DebiasedContrastive HardNegative debiased_loss hard_negative_loss",
    "pairs.info_nce": "InfoNCE NPair info_nce n_pair_loss",
    "pairs.metric_learning": (
        "Contrastive LiftedStructured SoftNearestNeighbours contrastive_loss "
        "lifted_structured_loss soft_nearest_neighbour_loss"
    ),
    "pairs.noise_contrastive": "NoiseContrastive nce_loss",
    "pairs.predictive_coding": "PredictiveCoding cpc_loss",
    "pairs.quick_thoughts": "QuickThoughts quick_thoughts_loss",
    "pairs.sentence_bert": (
        "CosineRegression PairSoftmax cosine_regression_loss pair_logits pair_softmax_loss"
    ),
    "pairs.triplet": "Triplet all_triplets_loss triplet_loss",
    "weighted_sum": "WeightedObjective WeightedSum",
    "without_negatives.alignment_uniformity": (
        "AlignUniform align_uniform_loss alignment uniformity"
    ),
    "without_negatives.bootstrap": "BYOL byol_loss symmetric_byol_loss target_momentum",
    "without_negatives.decorrelation": (
        "BarlowTwins SCD barlow_twins_loss cross_correlation scd_loss self_contrast"
    ),
    "without_negatives.deep_cluster": "DeepCluster cluster_weights deep_cluster_loss",
    "without_negatives.mutual_information": "ISBert jsd_mutual_information_loss",
    "without_negatives.swapped_prediction": (
        "SwappedPrediction multi_crop_swav_loss sinkhorn_assignments swav_loss"
    ),
}

__all__ = sorted(" ".join(_NAMES.values()).split())
__getattr__, __dir__ = attributes_on_demand(__name__, _NAMES)
