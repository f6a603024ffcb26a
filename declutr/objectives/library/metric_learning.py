"""Objectives on labelled rows, and those among them that pytorch-metric-learning computes."""

from typing import Optional

import torch

from declutr.objectives.full_precision import full_precision
from declutr.objectives.miner import Miner
from declutr.objectives.objective import Objective


class MetricLearningObjective(Objective):
    """Two views as labelled rows, which is what pytorch-metric-learning works on.

    The 2N rows are the N anchors and after them the N positives; row i and row N + i share a label,
    which is i, or what `labels` of the data say: the class of both texts, so that all texts of a
    class are positives of each other. What two texts are to each other (paraphrases or not) is for
    `pair_softmax` and `cosine_regression`.
    Subclasses implement `labelled_loss`.
    """

    def forward(
        self,
        anchors: torch.Tensor,
        positives: torch.Tensor,
        *,
        labels: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        if anchors.shape != positives.shape or anchors.dim() != 2:
            raise ValueError(
                "Anchors and positives must both be (N, d), row i of both belonging together; got "
                f"{tuple(anchors.shape)} and {tuple(positives.shape)}."
            )
        if labels is None:
            labels = self.labels(anchors.size(0), anchors.device)
        elif labels.is_floating_point() or labels.shape != anchors.shape[:1]:
            raise ValueError(
                f"Expected the class (int64) of each of the {anchors.size(0)} pairs, got "
                f"{labels.dtype} {tuple(labels.shape)}. Scores are for 'cosine_regression'."
            )
        return self.labelled_loss(torch.cat([anchors, positives]), torch.cat([labels, labels]))

    def labels(self, count: int, device: torch.device) -> torch.Tensor:
        """The labels `(N,)` of the pairs of one batch."""
        return torch.arange(count, device=device)

    def labelled_loss(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The scalar loss of rows `(2N, d)` with labels `(2N,)`."""
        raise NotImplementedError


def without_labels(inputs: dict[str, bool]) -> dict[str, bool]:
    """The inputs of an objective that numbers pairs itself, whatever classes the data has."""
    return {name: required for name, required in inputs.items() if name != "labels"}


class LibraryObjective(MetricLearningObjective):
    """An objective that is a loss of pytorch-metric-learning, or equal to one, of pairs that a
    miner may select.

    Subclasses implement `pair_loss`. `cross_batch_memory` goes around any of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._miner: Miner | None = None

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        """The loss of pytorch-metric-learning that serves with or without a miner."""
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        self._miner = miner

    @full_precision
    def labelled_loss(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        pairs = None if self._miner is None else self._miner(embeddings, labels)
        return self.pair_loss(mined=pairs is not None)(embeddings, labels, pairs)
