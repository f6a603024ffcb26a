"""Tests of cross-batch memory against a naive queue and the library itself."""

from collections import deque

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from pytorch_metric_learning import losses, reducers
from torch import Tensor

from declutr.objectives import CrossBatchMemory, NTXent, PairMarginMiner
from tests.objectives import laws
from tests.objectives.oracles import mean
from tests.objectives.test_nt_xent import naive_terms, views


def memory(size: int, reduction: str = "mean", **options: PairMarginMiner) -> CrossBatchMemory:
    inner = NTXent(0.2, reduction)
    return CrossBatchMemory(inner, embedding_size=3, memory_size=size, **options).train()


class NaiveQueue:
    """A queue of the last `size` rows, which is compared with a batch after the batch was added.

    As in pytorch-metric-learning, the copies of the batch take part, except a row's own copy.
    """

    def __init__(self, size: int) -> None:
        self.rows: deque = deque(maxlen=size)

    def loss(self, batch: Tensor, tau: float) -> float:
        kept = max(0, self.rows.maxlen - len(batch))
        earlier = list(self.rows)[max(0, len(self.rows) - kept) :]
        self.rows.extend(batch)
        return mean(naive_terms(batch, tau, others=earlier))


@pytest.mark.parametrize("size", [8, 11, 16, 100])
def test_memory_equals_a_naive_queue(size: int) -> None:
    objective, queue = memory(size), NaiveQueue(size)
    for step in range(8):
        batch = views(4 if step % 3 else 2, 3, seed=step)
        expected = queue.loss(torch.cat(batch).detach(), 0.2)
        assert objective(*batch).item() == pytest.approx(expected, rel=1e-9), step


def of_the_library(size: int, reduction: str) -> losses.CrossBatchMemory:
    reducer = {"mean": reducers.MeanReducer, "sum": reducers.SumReducer}[reduction]()
    inside = losses.SupConLoss(temperature=0.2, reducer=reducer)
    return losses.CrossBatchMemory(inside, embedding_size=3, memory_size=size)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", [8, 11, 100])
def test_losses_and_memory_equal_those_of_the_library(size: int, reduction: str) -> None:
    """Try batches that fit into the memory, that wrap around, and of a single pair.

    Earlier batches get no gradient, and their labels are never used again.
    """
    ours, theirs, label = memory(size, reduction), of_the_library(size, reduction), 0
    earlier: list[Tensor] = []
    for step, count in enumerate([4, 1, 3, 4, 2]):
        batch = views(count, 3, seed=step)
        labels = label + torch.arange(count)
        assert torch.equal(ours.labels(count, torch.device("cpu")), labels)
        label += count
        expected = theirs(torch.cat(batch), labels.repeat(2))
        loss = ours(*batch)
        laws.assert_same_gradients(loss, expected, *batch, rtol=1e-7)
        loss.backward()
        assert all(view.grad.abs().sum() > 0 for view in batch)
        assert all(view.grad is None for view in earlier)
        for view in batch:
            view.grad = None
        earlier += batch
    for buffer in ("embedding_memory", "label_memory"):
        assert torch.equal(getattr(ours._memory, buffer), getattr(theirs, buffer))


@pytest.mark.parametrize("steps", [1, 3])
def test_continues_from_a_checkpoint_of_an_earlier_release(steps: int) -> None:
    """Load a checkpoint of a release in which the library computed the loss."""
    theirs = of_the_library(20, "mean")
    for step in range(steps + 1):
        batch = views(4, 3, seed=step, dtype=torch.float32)
        state = {
            "_memory.embedding_memory": theirs.embedding_memory.clone(),
            "_memory.label_memory": theirs.label_memory.clone(),
            "_extra_state": {
                "next_label": 4 * step,
                "queue_idx": theirs.queue_idx,
                "has_been_filled": theirs.has_been_filled,
            },
        }
        expected = theirs(torch.cat(batch), (4 * step + torch.arange(4)).repeat(2))
    ours = memory(20)
    assert set(ours.state_dict()) == set(state)
    ours.load_state_dict(state)
    assert ours(*batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_validation_is_without_the_memory() -> None:
    objective, batch = memory(16), views(4, 3, seed=1)
    objective(*views(4, 3))
    found = objective.eval()(*batch).item()
    assert found == pytest.approx(NTXent(0.2)(*batch).item(), rel=1e-12)


def test_what_a_memory_cannot_hold_or_wrap_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"memory_size is 7, but one batch brings 8 rows"):
        memory(7)(*views(4, 3))
    with pytest.raises(ConfigurationError, match="wraps 'nt_xent', got CrossBatchMemory"):
        CrossBatchMemory(memory(8), embedding_size=3)


def test_memory_with_a_miner_that_keeps_everything() -> None:
    """Give the miner to the constructor or attach it: both equal a memory without a miner."""
    miner = PairMarginMiner(pos_margin=1.1, neg_margin=-1.1)
    plain, attached, mined = memory(16), memory(16), memory(16, miner=miner)
    attached.attach_miner(miner)
    for step in range(4):
        batch = views(4, 3, seed=step)
        expected = plain(*batch).item()
        assert attached(*batch).item() == pytest.approx(expected, rel=1e-9)
        assert mined(*batch).item() == pytest.approx(expected, rel=1e-9)
