"""Contrastive objectives: two views in, a scalar out. They never see a model or tokens."""

from declutr.objectives.jensen_shannon import jensen_shannon
from declutr.objectives.library.metric_learning import LibraryObjective, MetricLearningObjective
from declutr.objectives.library.miners import Miner, PairMarginMiner, PytorchMetricLearningMiner
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
