"""Objectives on labelled rows, and those among them that pytorch-metric-learning computes."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from pytorch_metric_learning import losses, reducers

from declutr.objectives.full_precision import full_precision
from declutr.objectives.miners import Miner
from declutr.objectives.objective import Objective

_REDUCERS = {"mean": reducers.MeanReducer, "sum": reducers.SumReducer}


class MetricLearningObjective(Objective):
    """Two views as labelled rows, which is what pytorch-metric-learning works on.

    The 2N rows are the N anchors and after them the N positives; row i and row N + i share a label,
    which is i, or what `labels` of the data say: the class of both texts, so that all texts of a
    class are positives of each other. What two texts are to each other (paraphrases or not) is for
    `pair_softmax` and `cosine_regression`.
    Subclasses implement `labelled_loss`.
    """

    takes: tuple[str, ...] = ("labels",)

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


class LibraryObjective(MetricLearningObjective):
    """An objective that pytorch-metric-learning computes, of pairs that a miner may select.

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


@Objective.register("nt_xent")
class NTXent(LibraryObjective):
    """Normalised temperature-scaled cross entropy (Giorgi et al., 2021, equations 1 and 2).

    For the 2N rows e of both views, with s the cosine,
    `l(i, j) = -s_ij / tau + log sum_{k != i} exp(s_ik / tau)`, and the loss is the mean of `l` over
    the 2N ordered positive pairs. A single pair has no negatives and gives 0.

    Without a miner the value comes from `SupConLoss`, which equals `NTXentLoss` where every anchor
    has one positive, and needs memory quadratic in N where the latter needs cubic. A miner may
    leave anchors without a positive, where the two differ: then it is `NTXentLoss`.

    # Parameters

    temperature : tau, above 0.
    reduction : `"mean"`, as in the original code, or `"sum"`, as printed in the paper.
    """

    takes = ()  # of its own pairs alone; of classes it is `sup_con`

    def __init__(self, temperature: float = 0.05, reduction: str = "mean") -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigurationError(f"temperature must be above 0, got {temperature}.")
        if reduction not in _REDUCERS:
            raise ConfigurationError(
                f"Unknown reduction '{reduction}': expected one of {', '.join(_REDUCERS)}."
            )
        self.temperature = temperature
        self.reduction = reduction
        reducer = _REDUCERS[reduction]
        self._plain = losses.SupConLoss(temperature=temperature, reducer=reducer())
        self._mined = losses.NTXentLoss(temperature=temperature, reducer=reducer())

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        return self._mined if mined else self._plain


@Objective.register("cross_batch_memory")
class CrossBatchMemory(MetricLearningObjective):
    """Negatives from earlier batches as well (Wang et al., 2020), around another objective.

    The memory, its position and the labels go into checkpoints, so a resumed run continues with
    the same queue.

    # Parameters

    loss : the objective inside: `nt_xent`, or `pytorch_metric_learning` with a loss that can
        compare rows of a batch with rows of a memory.
    embedding_size : d, the width of embeddings (or of projections, with a feed-forward layer).
    memory_size : how many rows are remembered. A batch brings 2N of them.
    miner : selects pairs between batch and memory.

    # Raises

    `ConfigurationError` : a loss that cannot be used with a memory.
    """

    takes = ()  # it numbers pairs itself, over batches; classes would not go with that

    def __init__(
        self,
        loss: Objective,
        embedding_size: int,
        memory_size: int = 1024,
        miner: Optional[Miner] = None,
    ) -> None:
        super().__init__()
        if not isinstance(loss, LibraryObjective):
            raise ConfigurationError(
                f"cross_batch_memory wraps 'nt_xent', got {type(loss).__name__}. It can also wrap "
                "'pytorch_metric_learning'."
            )
        inside = loss.pair_loss(mined=miner is not None)
        known = losses.CrossBatchMemory.supported_losses()
        if type(inside).__name__ not in known:
            raise ConfigurationError(
                f"{type(inside).__name__} cannot compare a batch with a memory. Losses that can: "
                f"{', '.join(known)}."
            )
        self._inner = loss
        self.temperature = getattr(loss, "temperature", None)
        self.reduction = getattr(loss, "reduction", None)
        self._memory = losses.CrossBatchMemory(
            loss=inside,
            embedding_size=embedding_size,
            memory_size=memory_size,
            miner=miner,
        )
        self.embedding_size = embedding_size
        self._next_label = 0

    def attach_miner(self, miner: Miner) -> None:
        self._memory.miner = miner
        self._memory.loss = self._inner.pair_loss(mined=True)

    def labels(self, count: int, device: torch.device) -> torch.Tensor:
        # Rows stay in memory with their labels: a label used again would make false positives.
        return self._next_label + torch.arange(count, device=device)

    @full_precision
    def labelled_loss(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        size = self._memory.memory_size
        if embeddings.size(0) > size:
            raise ConfigurationError(
                f"memory_size is {size}, but one batch brings {embeddings.size(0)} rows (anchors "
                "and positives of all processes). Raise memory_size."
            )
        if not self.training:  # validation must not leave rows behind
            return self._inner.labelled_loss(embeddings, labels)
        self._next_label += labels.size(0) // 2
        return self._memory(embeddings, labels)

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "next_label": self._next_label,
            "queue_idx": int(self._memory.queue_idx),
            "has_been_filled": bool(self._memory.has_been_filled),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._next_label = state["next_label"]
        self._memory.queue_idx = state["queue_idx"]
        self._memory.has_been_filled = state["has_been_filled"]
