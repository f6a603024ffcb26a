"""Contrastive objectives: two views in, a scalar out. They never see a model or tokens."""

from declutr.objectives.alignment_uniformity import (
    AlignUniform,
    align_uniform_loss,
    alignment,
    uniformity,
)
from declutr.objectives.bootstrap import BYOL, byol_loss, symmetric_byol_loss, target_momentum
from declutr.objectives.contrastive import Contrastive, contrastive_loss
from declutr.objectives.cross_batch_memory import CrossBatchMemory
from declutr.objectives.debiased import (
    DebiasedContrastive,
    HardNegative,
    debiased_loss,
    hard_negative_loss,
)
from declutr.objectives.decorrelation import (
    SCD,
    BarlowTwins,
    barlow_twins_loss,
    cross_correlation,
    scd_loss,
    self_contrast,
)
from declutr.objectives.feature_bank import FeatureBank
from declutr.objectives.hard_negative_mixing import HardNegativeMixing, mochi_loss
from declutr.objectives.info_nce import InfoNCE, NPair, info_nce, n_pair_loss
from declutr.objectives.instance_bank import (
    InstanceDiscrimination,
    instance_loss,
    instance_nce_loss,
)
from declutr.objectives.jensen_shannon import jensen_shannon
from declutr.objectives.lifted_structured import LiftedStructured, lifted_structured_loss
from declutr.objectives.lipschitz_critic import Critic
from declutr.objectives.metric_learning import LibraryObjective, MetricLearningObjective
from declutr.objectives.miners import Miner, PairMarginMiner, PytorchMetricLearningMiner
from declutr.objectives.momentum_contrast import (
    KeyQueue,
    MomentumContrast,
    moco_loss,
    momentum_update,
)
from declutr.objectives.mutual_information import ISBert, jsd_mutual_information_loss
from declutr.objectives.noise_contrastive import NoiseContrastive, nce_loss
from declutr.objectives.nt_xent import NTXent, nt_xent_loss
from declutr.objectives.objective import Objective
from declutr.objectives.pytorch_metric_learning import PytorchMetricLearning
from declutr.objectives.quick_thoughts import QuickThoughts, quick_thoughts_loss
from declutr.objectives.reclaim import Reclaim, reclaim_loss
from declutr.objectives.sentence_bert import (
    CosineRegression,
    PairSoftmax,
    cosine_regression_loss,
    pair_logits,
    pair_softmax_loss,
)
from declutr.objectives.soft_nearest_neighbours import (
    SoftNearestNeighbours,
    soft_nearest_neighbour_loss,
)
from declutr.objectives.sup_con import SupCon, sup_con_loss
from declutr.objectives.swapped_prediction import (
    SwappedPrediction,
    sinkhorn_assignments,
    swav_loss,
)
from declutr.objectives.triplet import Triplet, all_triplets_loss, triplet_loss
from declutr.objectives.weighted_sum import WeightedObjective, WeightedSum

__all__ = [
    "BYOL",
    "SCD",
    "AlignUniform",
    "BarlowTwins",
    "Contrastive",
    "CosineRegression",
    "Critic",
    "CrossBatchMemory",
    "DebiasedContrastive",
    "FeatureBank",
    "HardNegative",
    "HardNegativeMixing",
    "ISBert",
    "InfoNCE",
    "InstanceDiscrimination",
    "KeyQueue",
    "LibraryObjective",
    "LiftedStructured",
    "MetricLearningObjective",
    "Miner",
    "MomentumContrast",
    "NPair",
    "NTXent",
    "NoiseContrastive",
    "Objective",
    "PairMarginMiner",
    "PairSoftmax",
    "PytorchMetricLearning",
    "PytorchMetricLearningMiner",
    "QuickThoughts",
    "Reclaim",
    "SoftNearestNeighbours",
    "SupCon",
    "SwappedPrediction",
    "Triplet",
    "WeightedObjective",
    "WeightedSum",
    "align_uniform_loss",
    "alignment",
    "all_triplets_loss",
    "barlow_twins_loss",
    "byol_loss",
    "contrastive_loss",
    "cosine_regression_loss",
    "cross_correlation",
    "debiased_loss",
    "hard_negative_loss",
    "info_nce",
    "instance_loss",
    "instance_nce_loss",
    "jensen_shannon",
    "jsd_mutual_information_loss",
    "lifted_structured_loss",
    "mochi_loss",
    "moco_loss",
    "momentum_update",
    "n_pair_loss",
    "nce_loss",
    "nt_xent_loss",
    "pair_logits",
    "pair_softmax_loss",
    "quick_thoughts_loss",
    "reclaim_loss",
    "scd_loss",
    "self_contrast",
    "sinkhorn_assignments",
    "soft_nearest_neighbour_loss",
    "sup_con_loss",
    "swav_loss",
    "symmetric_byol_loss",
    "target_momentum",
    "triplet_loss",
    "uniformity",
]
