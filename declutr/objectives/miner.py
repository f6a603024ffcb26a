"""What every miner is."""

import torch
from allennlp.common import Registrable


class Miner(torch.nn.Module, Registrable):
    """Takes embeddings `(M, d)` and labels `(M,)`; returns indices of pairs or of triplets.

    Subclasses also subclass a miner of pytorch-metric-learning, or hold one.
    """

    default_implementation = "pair_margin"
