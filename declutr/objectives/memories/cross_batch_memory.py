"""A wrapper that gives an objective negatives from earlier batches."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.library.library_parts import losses
from declutr.objectives.nt_xent import NTXent, partner_loss
from declutr.objectives.numerics import full_precision, unit
from declutr.objectives.objective import LibraryObjective, MetricLearningObjective, Miner, Objective


@Objective.register("cross_batch_memory")
class CrossBatchMemory(MetricLearningObjective):
    """An objective that wraps another one and adds negatives from earlier batches.

    The method is the cross-batch memory of Wang et al. (2020), as pytorch-metric-learning has it:
    one loss of the batch against the memory, which the batch itself is put into first, from the
    first step on. The paper's public code begins after 1,000 steps or more, and adds that loss to
    the one within the batch. The memory, its position and the labels are saved in checkpoints, so
    that a resumed run continues with the same memory.

    # Parameters

    loss : the wrapped objective: `nt_xent`, or `pytorch_metric_learning` with a loss that can
        compare the rows of a batch with the rows of a memory.
    embedding_size : the width d of embeddings, or of projections if the model has a projection
        head.
    memory_size : the number of rows that are remembered. A batch adds 2N rows.
    miner : a miner that selects pairs of rows of the batch and rows of the memory.

    # Raises

    `ConfigurationError` : if the loss cannot be used with a memory.
    """

    # Every pair of every batch has a label of its own here, which classes could be equal to.
    takes_labels = False

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
        settings = {"embedding_size": embedding_size, "memory_size": memory_size}
        self._memory = losses.CrossBatchMemory(loss=inside, miner=miner, **settings)
        self.embedding_size = embedding_size
        self._next_label = 0

    def attach_miner(self, miner: Miner) -> None:
        self._memory.miner = miner
        self._memory.loss = self._inner.pair_loss(mined=True)

    def labels(self, count: int, device: torch.device) -> Tensor:
        # Rows stay in the memory with their labels: a label used again would make false positives.
        return self._next_label + torch.arange(count, device=device)

    @full_precision
    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        size = self._memory.memory_size
        if embeddings.size(0) > size:
            raise ConfigurationError(
                f"memory_size is {size}, but one batch brings {embeddings.size(0)} rows (anchors "
                "and positives of all processes). Raise memory_size."
            )
        if not self.training:  # Validation must not change the memory.
            return self._inner(*embeddings.chunk(2))
        self._next_label += labels.size(0) // 2
        if isinstance(self._inner, NTXent) and self._memory.miner is None:
            return self._nt_xent(embeddings, labels, self._inner)
        return self._memory(embeddings, labels)

    def _nt_xent(self, embeddings: Tensor, labels: Tensor, inner: NTXent) -> Tensor:
        """Compute the loss of pytorch-metric-learning for NT-Xent without making the host wait.

        The library makes lists of pairs, and the host waits to know how long they are. As in the
        library, the batch is put into the memory first, and a row is not compared with its own
        copy. No other rows of the memory have the labels of the batch, so that the only positive of
        a row is the copy of its partner.
        """
        memory = self._memory
        # The memory takes the device and the dtype of the batch.
        memory.embedding_memory = memory.embedding_memory.to(embeddings)
        memory.label_memory = memory.label_memory.to(labels)
        memory.add_to_memory(embeddings, labels, len(embeddings))
        filled = memory.memory_size if memory.has_been_filled else memory.queue_idx
        held = unit(memory.embedding_memory[:filled])  # (K, d)
        own = memory.curr_batch_idx  # (2N,)
        return partner_loss(unit(embeddings), held, own, inner.temperature, inner.reduction)

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
