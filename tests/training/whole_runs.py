"""Runs as `allennlp train` makes them, killed at a step or whole, and what they leave."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params

import declutr.plugin  # noqa: F401 - registers what configurations name
from declutr.models.declutr import DeCLUTR
from declutr.training.checkpointer import AtomicCheckpointer
from tests.training.conftest import Killed

STEPS = 3  # an epoch: 24 documents in batches of 8


class Run:
    """A folder in which a run was trained, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def train(self, config: dict, recover: bool = False) -> DeCLUTR:
        model = train_model(Params(json.loads(json.dumps(config))), str(self.folder), recover)
        assert isinstance(model, DeCLUTR)
        return model

    def train_until(self, config: dict, step: int) -> None:
        """Train until a step is evaluated but not yet in a checkpoint, and be killed."""
        save = AtomicCheckpointer.maybe_save_checkpoint

        def killed(self: Any, trainer: Any, *done: int) -> bool:
            if trainer._total_batches_completed == step:
                raise Killed
            return save(self, trainer, *done)

        with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
            patched.setattr(AtomicCheckpointer, "maybe_save_checkpoint", killed)
            self.train(config)

    def weights(self, step: int | None = None) -> dict[str, Any]:
        """Return the best weights, or the weights after a step."""
        place = "" if step is None else f"e{step // STEPS}_b{step % STEPS}"
        return torch.load(self.folder / (f"model_state_{place}.th" if place else "best.th"))

    @property
    def evaluations(self) -> dict[int, dict[str, float]]:
        """The scores of each evaluation by its step."""
        records = [json.loads(f.read_text()) for f in (self.folder / "evaluations").iterdir()]
        return {r["step"]: r["scores"] for r in sorted(records, key=lambda r: r["step"])}

    @property
    def log(self) -> str:
        return (self.folder / "out.log").read_text()

    def metrics(self, epoch: int | None = None) -> dict[str, Any]:
        name = "metrics.json" if epoch is None else f"metrics_epoch_{epoch}.json"
        return json.loads((self.folder / name).read_text())


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())
