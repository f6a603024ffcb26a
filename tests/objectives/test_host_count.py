"""Counts that the host knows."""

import copy

import torch

from declutr.objectives.host_count import HostCount
from tests.objectives.waits import NeverWaits


class Counting(torch.nn.Module):
    done: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("done", torch.zeros((), dtype=torch.long))
        self.count = HostCount(self, "done")


def test_keeps_up_with_the_buffer_and_reads_it_once() -> None:
    module = Counting()
    module.count.advance()
    assert module.count.value == 1
    with NeverWaits():
        module.count.advance()
        assert module.count.value == 2
    assert module.done == 2


def test_follows_a_state_that_is_loaded_into_a_whole_model() -> None:
    model = torch.nn.ModuleDict({"part": Counting()})
    assert model["part"].count.value == 0
    model.load_state_dict({"part.done": torch.tensor(7)})
    assert model["part"].count.value == 7


def test_a_copy_counts_on_its_own() -> None:
    module = Counting()
    assert module.count.value == 0
    twin = copy.deepcopy(module)
    twin.count.advance()
    assert (module.count.value, twin.count.value, int(module.done)) == (0, 1, 0)
    twin.load_state_dict({"done": torch.tensor(5)})
    assert (module.count.value, twin.count.value) == (0, 5)
