"""The memory of a simulated step is that of the tensors of a real one."""

import copy
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.models import Model
from allennlp.training.optimizers import Optimizer
from torch import Tensor

import declutr.plugin  # noqa: F401
from declutr.data.collation import moved
from declutr.runs.check.data import read_data
from declutr.runs.check.memory import model_without_contents
from declutr.runs.check.settings import walk_through
from declutr.runs.check.simulated_step import META, LiveBytes, step_memory
from tests.conftest import run_config


class _LiveOnCpu(LiveBytes):
    """The count of real tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count(result)
        return result

    def count(self, made: Any) -> None:
        if isinstance(made, (list, tuple)):
            for one in made:
                self.count(one)
        if isinstance(made, Tensor) and made.untyped_storage()._cdata not in self._known:
            storage = made.untyped_storage()
            self._known.add(storage._cdata)
            weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)


def optimizer_of(model: Model) -> Any:
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    params = Params({"type": "huggingface_adamw", "lr": 1e-2})
    return Optimizer.from_params(params, model_parameters=named)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"chunk_size": 2},
        {"loss": None},
        {"mask_contrastive_anchor": False, "two_encoders": False},
    ],
    ids=["whole", "in chunks", "without a loss", "two passes"],
)
def test_the_peak_is_that_of_real_tensors(
    checkpoint: Path, corpus_file: Path, changes: dict[str, Any]
) -> None:
    config = run_config(checkpoint, corpus_file)
    if changes.get("loss", True) is None:
        del config["model"]["feedforward"]
    config["model"] |= changes
    read = read_data(config, "train", 1)
    assert read.vocabulary is not None
    walk = walk_through(config)

    simulated = model_without_contents(config, walk.settings, read.vocabulary)
    assert all(one.device == META for one in simulated.parameters())
    batch = moved(read.largest, META)
    found = step_memory(simulated, batch, optimizer_of(simulated), "cpu", False, False)

    torch.manual_seed(0)
    model = Model.from_params(Params(copy.deepcopy(config["model"])), vocab=read.vocabulary)
    optimizer = optimizer_of(model.train())
    model(**read.largest)["loss"].backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    live = _LiveOnCpu()
    state = [one for kept in optimizer.state.values() for one in kept.values()]
    live.count([*model.parameters(), *model.buffers(), *state])
    with live:
        model(**read.largest)["loss"].backward()
        optimizer.step()
    assert found["peak"] == pytest.approx(live.peak, rel=0.05)
    parts = ("weights", "gradients", "optimizer", "activations")
    assert sum(found[name] for name in parts) == found["peak"]


def test_bfloat16_takes_less(checkpoint: Path, corpus_file: Path) -> None:
    config = run_config(checkpoint, corpus_file)
    read = read_data(config, "train", 1)
    assert read.vocabulary is not None
    model = model_without_contents(config, walk_through(config).settings, read.vocabulary)
    peaks = []
    for low in (False, True):
        batch = moved(read.largest, META)
        found = step_memory(model, batch, optimizer_of(model), "cuda", low, False)
        model.zero_grad(set_to_none=True)
        peaks.append(found["activations"])
    assert 0.4 * peaks[0] < peaks[1] < 0.9 * peaks[0]
