"""Runs of a tiny model that are cut off at each of their checkpoints and resumed."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from allennlp.common import Params
from allennlp.data import Instance, Vocabulary
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.data.fields import LabelField, TensorField
from allennlp.models import Model
from allennlp.nn import RegularizerApplicator
from allennlp.nn.regularizers import L2Regularizer
from allennlp.training import GradientDescentTrainer, Trainer
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.metrics import CategoricalAccuracy, F1Measure, PearsonCorrelation

import declutr.plugin  # noqa: F401  (registers what configurations name)
from declutr.training.checkpointer import AtomicCheckpointer

EPOCHS = 3
STEPS = 3
_PROCESS = ("duration", "memory")  # figures of a process, not of a run


@Checkpointer.register("snapshots_of_tests")
class Snapshots(AtomicCheckpointer):
    """Copies the run's folder right after each checkpoint, as a kill at that moment leaves it."""

    places: tuple[str, ...] = ()
    """Of the only checkpoints within epochs; none means all."""

    def save_checkpoint(self, trainer: Any) -> None:
        done = trainer._epochs_completed, trainer._batches_in_epoch_completed
        place = "e{}_b{}".format(*done)
        if self.places and done[1] and place not in self.places:
            return
        super().save_checkpoint(trainer)
        folder = Path(self._serialization_dir)
        target = folder.parent / "cut" / place
        shutil.copytree(folder, target, copy_function=shutil.copyfile)


class TinyModel(Model):
    """Three layers with dropout, and metrics of AllenNLP in several places."""

    def __init__(self) -> None:
        super().__init__(Vocabulary(), RegularizerApplicator([(".*weight", L2Regularizer(1e-3))]))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.classify = torch.nn.Linear(4, 2)
        self.dropout = torch.nn.Dropout(0.3)
        self.accuracy = CategoricalAccuracy()
        self.others = {"f1": F1Measure(1), "pearson": PearsonCorrelation()}
        self.epoch = 0

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        for layer in self.layers:
            x = x + self.dropout(layer(x).tanh())
        logits = self.classify(x)
        self.accuracy(logits, label)
        self.others["f1"](logits, label)
        self.others["pearson"](logits[:, 1], label.float())
        loss = torch.nn.functional.cross_entropy(logits, label)
        return {"loss": loss * (1 + self.epoch)}

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        return {
            "accuracy": self.accuracy.get_metric(reset),
            "pearson": self.others["pearson"].get_metric(reset),
            **self.others["f1"].get_metric(reset),
        }


def make_trainer(folder: Path, **changes: Any) -> GradientDescentTrainer:
    """A trainer of `TinyModel` over `STEPS` steps of two batches an epoch."""
    torch.manual_seed(0)
    model = TinyModel()
    loaders = []
    for size in (STEPS * 2 - 1, 2):
        labels = [LabelField(i % 2, skip_indexing=True) for i in range(size * 3)]
        instances = [Instance({"x": TensorField(torch.randn(4)), "label": y}) for y in labels]
        loaders.append(SimpleDataLoader(instances, batch_size=3, vocab=model.vocab))
    folder.mkdir(parents=True, exist_ok=True)
    is_cut_later = folder.name == "whole"
    checkpointer = {
        "type": "snapshots_of_tests" if is_cut_later else "atomic",
        "save_every_num_batches": 1 if is_cut_later else None,
        "keep_most_recent_by_count": 3,
        **changes.pop("checkpointer", {}),
    }
    config = {
        "optimizer": {"type": "adamw", "lr": 0.05},
        "num_epochs": EPOCHS,
        "cuda_device": -1,
        "num_gradient_accumulation_steps": 2,
        "run_confidence_checks": False,
        "checkpointer": checkpointer,
        "callbacks": [*changes.pop("callbacks", []), {"type": "exact_resume"}],
        **changes,
    }
    torch.manual_seed(torch.seed() % 1000)  # whatever is drawn in between must not matter
    trainer = Trainer.from_params(
        Params(config),
        model=model,
        serialization_dir=str(folder),
        data_loader=loaders[0],
        validation_data_loader=loaders[1],
    )
    assert isinstance(trainer, GradientDescentTrainer)
    return trainer


def outcome(folder: Path, **changes: Any) -> dict[str, Any]:
    """All that a run leaves, as plain values by name: it is run, or resumed, to its end."""
    trainer = make_trainer(folder, **copy.deepcopy(changes))
    returned = trainer.train()
    state = trainer.get_checkpoint_state()
    assert state is not None
    best = torch.load(folder / "best.th") if (folder / "best.th").exists() else None
    last = AtomicCheckpointer(str(folder)).load_checkpoint()
    assert last is not None
    left = {"final": state.model_state, "last": last.model_state, "best": best}
    left["training"] = state.trainer_state
    left["training"]["best_model_filename"] = bool(left["training"]["best_model_filename"])
    left["average"] = trainer._moving_average and trainer._moving_average.state_dict()
    left["epoch"] = trainer.model.epoch
    left["metrics"] = returned
    for file in folder.glob("metrics_epoch_*.json"):
        left[file.name] = json.loads(file.read_text())
    return dict(flat(left))


def flat(value: Any, name: str = "") -> Any:
    """`(name, value)` of everything inside, without what is about a process."""
    if isinstance(value, torch.Tensor):
        yield name, value.tolist()
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not any(word in str(key) for word in _PROCESS):
                yield from flat(inner, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from flat(inner, f"{name}/{number}")
    elif not callable(value):
        yield name, value


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names whose values differ, or that only one of the two has."""
    names = sorted(one.keys() | other.keys())
    none = object()
    return [name for name in names if not _equal(one.get(name, none), other.get(name, none))]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)
