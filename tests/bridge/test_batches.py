"""Batches of AllenNLP's own loaders on their way to a GPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from declutr.bridge import batches
from declutr.system import host_memory


def test_tensors_go_to_a_gpu_as_those_of_our_loader_do(
    bare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = bare("allennlp.nn.util")
    assert batches.sent_from_pinned_memory(module)
    sent = []

    def to_device(tensor: torch.Tensor, device: torch.device) -> Any:
        sent.append(device)
        return SimpleNamespace(of=tensor)

    monkeypatch.setattr(host_memory, "to_device", to_device)
    one, other = torch.arange(3), torch.ones(2)
    batch = {"ids": one, "texts": {"tokens": [other]}, "rows": (1, "a")}
    moved = module.move_to_device(batch, 1)
    assert moved["ids"].of is one and moved["texts"]["tokens"][0].of is other
    assert moved["rows"] == (1, "a") and sent == [torch.device("cuda", 1)] * 2


def test_everything_else_goes_as_before(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = bare("allennlp.nn.util")
    batches.sent_from_pinned_memory(module)
    monkeypatch.setattr(host_memory, "to_device", None)
    row = torch.arange(3)
    assert module.move_to_device({"ids": row}, -1)["ids"] is row
    assert module.move_to_device(row, torch.device("meta")).device.type == "meta"
