"""Contrastive objectives: two views in, a scalar out. They never see a model or tokens."""

from declutr.objectives.alignment_uniformity import alignment, uniformity
from declutr.objectives.metric_learning import (
    CrossBatchMemory,
    MetricLearningObjective,
    NTXent,
)
from declutr.objectives.miners import Miner, PairMarginMiner
from declutr.objectives.objective import Objective

__all__ = [
    "CrossBatchMemory",
    "MetricLearningObjective",
    "Miner",
    "NTXent",
    "Objective",
    "PairMarginMiner",
    "alignment",
    "uniformity",
]
