"""Tests of cross-batch memory against a naive queue and the library itself."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from pytorch_metric_learning import losses, reducers
from torch import Tensor

from declutr.objectives import CrossBatchMemory, NTXent, PairMarginMiner
from tests.objectives.test_nt_xent import naive_terms, views


class NaiveQueue:
    """A queue of the last `size` rows, which is compared with a batch after the batch was added.

    As in pytorch-metric-learning, the copies of the batch take part, except a row's own copy.
    """

    def __init__(self, size: int) -> None:
        self.rows: deque = deque(maxlen=size)
        self.next_label = 0

    def loss(self, anchors: Tensor, positives: Tensor, tau: float) -> float:
        n = len(anchors)
        batch = torch.cat([anchors, positives]).tolist()
        labels = [self.next_label + i for i in range(n)] * 2
        self.next_label += n
        earlier = list(self.rows)
        self.rows.extend(zip(labels, batch, strict=True))
        earlier = earlier[max(0, len(earlier) + 2 * n - self.rows.maxlen) :]
        assert not {label for label, _ in earlier} & set(labels)
        partner = [*range(n, 2 * n), *range(n)]
        terms = naive_terms(batch, partner, tau, others=[row for _, row in earlier])
        return sum(terms) / len(terms)


@pytest.mark.parametrize("size", [8, 11, 16, 100])
def test_memory_equals_a_naive_queue(size: int) -> None:
    objective = CrossBatchMemory(NTXent(0.2), embedding_size=3, memory_size=size).train()
    queue = NaiveQueue(size)
    for step in range(8):
        batch = views(4 if step % 3 else 2, 3, seed=step)
        expected = queue.loss(*batch, 0.2)
        assert objective(*batch).item() == pytest.approx(expected, rel=1e-9), step


def of_the_library(size: int, reduction: str) -> losses.CrossBatchMemory:
    reducer = {"mean": reducers.MeanReducer, "sum": reducers.SumReducer}[reduction]()
    inside = losses.SupConLoss(temperature=0.2, reducer=reducer)
    return losses.CrossBatchMemory(inside, embedding_size=3, memory_size=size)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", [8, 11, 100])
def test_losses_and_memory_equal_those_of_the_library(size: int, reduction: str) -> None:
    """Try batches that fit into the memory, that wrap around, and of a single pair."""
    ours = CrossBatchMemory(NTXent(0.2, reduction), embedding_size=3, memory_size=size).train()
    theirs, label = of_the_library(size, reduction), 0
    for step, count in enumerate([4, 1, 3, 4, 2]):
        batch = [view.requires_grad_() for view in views(count, 3, seed=step)]
        labels = (label + torch.arange(count)).repeat(2)
        label += count
        losses_of_both = ours(*batch), theirs(torch.cat(batch), labels)
        assert losses_of_both[0].item() == pytest.approx(losses_of_both[1].item(), rel=1e-9)
        gradients = [torch.stack(torch.autograd.grad(loss, batch)) for loss in losses_of_both]
        assert torch.allclose(*gradients, rtol=1e-7, atol=1e-12)
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
    ours = CrossBatchMemory(NTXent(0.2), embedding_size=3, memory_size=20).train()
    assert set(ours.state_dict()) == set(state)
    ours.load_state_dict(state)
    assert ours(*batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_earlier_batches_get_no_gradient() -> None:
    objective = CrossBatchMemory(NTXent(0.2), embedding_size=3, memory_size=20).train()
    first = [view.requires_grad_() for view in views(3, 3, seed=0)]
    objective(*first).backward()
    first_gradients = [view.grad.clone() for view in first]
    second = [view.requires_grad_() for view in views(3, 3, seed=1)]
    objective(*second).backward()
    assert all(view.grad.abs().sum() > 0 for view in second)
    for view, gradient in zip(first, first_gradients, strict=True):
        assert torch.equal(view.grad, gradient)


def test_labels_are_never_used_again() -> None:
    objective = CrossBatchMemory(NTXent(), embedding_size=3, memory_size=12).train()
    seen: list[int] = []
    for step in range(6):
        seen += objective.labels(3, torch.device("cpu")).tolist()
        objective(*views(3, 3, seed=step))
    assert seen == list(range(18))
    assert sorted(objective._memory.label_memory.tolist()) == sorted([*range(12, 18)] * 2)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [8, 20])
def test_a_resumed_run_continues_with_the_same_memory(
    tmp_path: Path, size: int, steps: int
) -> None:
    def fresh() -> CrossBatchMemory:
        return CrossBatchMemory(NTXent(0.2), embedding_size=3, memory_size=size).train()

    one = fresh()
    for step in range(steps):
        one(*views(4, 3, seed=step, dtype=torch.float32))
    torch.save(one.state_dict(), tmp_path / "state.th")
    other = fresh()
    other(*views(3, 3, seed=99, dtype=torch.float32))  # Loading a state must overwrite these rows.
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    for step in range(steps, steps + 4):
        batch = views(4, 3, seed=step, dtype=torch.float32)
        assert torch.equal(one(*batch), other(*batch))
    mine, others = one.state_dict(), other.state_dict()
    assert mine.pop("_extra_state") == others.pop("_extra_state")
    assert all(torch.equal(mine[key], others[key]) for key in mine)


def test_validation_does_not_change_the_memory() -> None:
    objective = CrossBatchMemory(NTXent(0.2), embedding_size=3, memory_size=16).train()
    objective(*views(4, 3, seed=0))
    before = {key: str(value) for key, value in objective.state_dict().items()}
    batch = views(4, 3, seed=1)
    objective.eval()
    assert objective(*batch).item() == pytest.approx(NTXent(0.2)(*batch).item(), rel=1e-12)
    assert {key: str(value) for key, value in objective.state_dict().items()} == before


def test_a_memory_smaller_than_a_batch_is_refused() -> None:
    objective = CrossBatchMemory(NTXent(), embedding_size=3, memory_size=7).train()
    with pytest.raises(ConfigurationError, match=r"memory_size is 7, but one batch brings 8 rows"):
        objective(*views(4, 3))


def test_memory_wraps_nt_xent_only() -> None:
    inner = CrossBatchMemory(NTXent(), embedding_size=3)
    with pytest.raises(ConfigurationError, match="wraps 'nt_xent', got CrossBatchMemory"):
        CrossBatchMemory(inner, embedding_size=3)


@pytest.mark.parametrize("attached", [True, False])
def test_memory_with_a_miner_that_keeps_everything(attached: bool) -> None:
    """Give the miner to the constructor or attach it: both equal a memory without a miner."""
    miner = PairMarginMiner(pos_margin=1.1, neg_margin=-1.1)
    options: dict[str, Any] = {"embedding_size": 3, "memory_size": 16}
    plain = CrossBatchMemory(NTXent(0.2), **options).train()
    mined = CrossBatchMemory(NTXent(0.2), **options, miner=None if attached else miner).train()
    if attached:
        mined.attach_miner(miner)
    for step in range(4):
        batch = views(4, 3, seed=step)
        assert mined(*batch).item() == pytest.approx(plain(*batch).item(), rel=1e-9)
