"""What the processes of `test_several_processes.py` do: runs that are cut off and resumed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.data.fields import LabelField
from allennlp.training import TrainerCallback

from declutr.bridge.evaluation import whole_validation
from declutr.models.consistency import ConsistencyModel
from declutr.modules.heads import MomentumEncoder
from declutr.system.distributed import (
    groups_of_processes,
    of_all_processes,
    process_rank,
    world_size,
)
from declutr.task_models.glue.metrics import ClassMetrics
from tests.distributed_steps import several
from tests.resumed_runs import TinyModel, make_trainer
from tests.sharded_steps import whole
from tests.training.conftest import Killed


@TrainerCallback.register("notes_of_tests")
class Notes(TrainerCallback):
    """Notes the steps of a process, and may end everything after so many of them."""

    def __init__(self, serialization_dir: str, kill_at: int = 0) -> None:
        super().__init__(serialization_dir)
        self._left = kill_at
        self.steps: list[tuple[int, float, list[float]]] = []
        """Of each step its number in the run, the learning rate, and some weights."""

    def on_batch(self, trainer: Any, *args: Any, is_training: bool = False, **kwargs: Any) -> None:
        if not is_training:
            return
        rate = trainer.optimizer.param_groups[0]["lr"]
        weights = whole(trainer.model.classify.weight).flatten().tolist()
        self.steps.append((trainer._total_batches_completed, rate, weights))
        self._left -= 1
        if self._left == 0:
            raise Killed


class CountingModel(TinyModel):
    """A model whose metric counts in its own process, as that of "glue" does."""

    def __init__(self) -> None:
        super().__init__()
        self._regularizer = None  # which needs whole parameters
        self.counted = ClassMetrics(2)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        self.counted((x[:, 0] > 0).long(), label)
        return super().forward(x, label)

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        return self.counted.get_metric(reset)


def run(folder: str, kind: str, batches: tuple[int, int], kill_at: int, **changes: Any) -> dict:
    """A run, or the rest of it; each process has so many batches of three other instances."""
    trainer = make_trainer(
        Path(folder),
        type=kind,
        distributed=True,
        world_size=world_size(),
        local_rank=process_rank(),
        callbacks=[{"type": "notes_of_tests", "kill_at": kill_at}],
        **{"num_gradient_accumulation_steps": 1, **changes},
    )
    loader: Any = trainer.data_loader
    loader.instances = loader.instances[: 3 * batches[process_rank()]]
    if process_rank() > 0:
        for instance in loader.instances:
            label = 1 - instance["label"].label
            instance.add_field("label", LabelField(label, skip_indexing=True))
    try:
        metrics = trainer.train()
    except Killed:
        metrics = {}
    of_all_processes(None)  # before the next run begins
    (notes,) = (one for one in trainer._callbacks if isinstance(one, Notes))
    return {"steps": notes.steps, "metrics": metrics}


def cut_and_whole(folder: str, kind: str) -> dict[str, Any]:
    """An uninterrupted run, and the rest of one that was cut off; for each of two faults."""
    uneven = {"learning_rate_scheduler": {"type": "noam", "model_size": 4, "warmup_steps": 4}}
    found = {}
    for name, batches, kill_at, changes in (
        ("uneven", (5, 3), 4, uneven),  # the second epoch's first step
        ("counting", (5, 5), 2, {"num_epochs": 1}),
    ):
        place = f"{folder}/{kind} {name}"
        settings = kind, batches
        changes["checkpointer"] = {"save_every_num_batches": 1}
        whole = run(f"{place} straight", *settings, 0, **changes)
        run(f"{place} cut", *settings, kill_at, **changes)
        found[name] = whole, run(f"{place} cut", *settings, 0, **changes)
    return found


def sharded(folder: str, kind: str) -> list[tuple[int, float, list[float]]]:
    """The steps of a sharded model, of which one process has a batch less for the last step."""
    accelerator = {"type": "fsdp", "local_rank": process_rank(), "world_size": world_size()}
    changes = {"num_epochs": 1, "grad_norm": 0.5, "num_gradient_accumulation_steps": 2}
    changes |= {"ddp_accelerator": {**accelerator, "cuda_device": -1}}
    return run(f"{folder}/sharded {kind}", kind, (4, 3), 0, **changes)["steps"]


def accumulated(folder: str, kind: str) -> list[list[tuple[int, float, list[float]]]]:
    """The steps of runs with two batches each; the last one lacks one or two in each process."""
    changes = {"num_epochs": 1, "num_gradient_accumulation_steps": 2}
    return [
        run(f"{folder}/{kind} accumulated {batches}", kind, batches, 0, **changes)["steps"]
        for batches in ((3, 3), (4, 3), (3, 4), (2, 2), (2, 4), (3, 2))
    ]


def named(folder: str, kind: str) -> list[tuple[int, float, list[float]]]:
    """The steps of a model that is frozen in part, and whose last layer has a rate of its own."""
    groups = [[["^classify"], {"lr": 0.0}], [["^layers.1"], {"requires_grad": False}]]
    optimizer = {"type": "adamw", "lr": 0.05, "parameter_groups": groups}
    changes = {"num_epochs": 1, "no_grad": ["^layers.0"], "optimizer": optimizer}
    return run(f"{folder}/{kind} named", kind, (3, 3), 0, **changes)["steps"]


def unfrozen(folder: str, kind: str) -> list[tuple[int, float, list[float]]]:
    """The steps of two epochs, in the first of which the last layer is frozen."""
    groups = [[["classify"], {}], [["layers"], {}]]
    changes = {"num_epochs": 2, "optimizer": {"type": "sgd", "lr": 1, "parameter_groups": groups}}
    schedule = {"type": "slanted_triangular", "gradual_unfreezing": True}
    changes["learning_rate_scheduler"] = {"type": "combined", "schedulers": [[2, schedule]]}
    return run(f"{folder}/{kind} unfrozen", kind, (3, 3), 0, **changes)["steps"]


def all_in_one() -> list[list[int]]:
    """The batches of the one step of an epoch, where AllenNLP's trainer gets null for its size."""
    batches = [[*range(3 - process_rank())]]
    return list(groups_of_processes(batches, None, torch.device("cpu"), lambda: False))


def by_numbers_of_batches(folder: str, kind: str) -> list[tuple[int, float, list[float]]]:
    """The steps of a run whose schedule each process builds for its own number of batches."""
    batches, schedule = (5, 3), {"learning_rate_scheduler": {"type": "linear_decay"}}
    with patch.object(SimpleDataLoader, "__len__", lambda self: batches[process_rank()]):
        return run(f"{folder}/{kind} rates", kind, batches, 0, **schedule)["steps"]


def numbers_of_steps() -> list[Any]:
    """The steps that schedules of a momentum encoder and of annealing count on."""
    trainer = SimpleNamespace(data_loader=range(5 - 2 * process_rank()), _num_epochs=3)
    trainer._num_gradient_accumulation_steps = 1
    trainer.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    encoder = MomentumEncoder(schedule="cosine")
    encoder.follow_trainer(trainer)
    annealed: Any = SimpleNamespace(model=None, _annealing="log")
    ConsistencyModel.attach(annealed, trainer)
    return [encoder._total, annealed._all_passes]


def without_validation() -> str:
    """The error where one of the processes has no validation data."""

    def from_partial_objects(cls: Any) -> Any:
        return SimpleNamespace(trainer=SimpleNamespace(_validation_data_loader=loader))

    loader = [None] * (1 - process_rank())
    names = {"from_partial_objects": classmethod(from_partial_objects)}
    module: Any = SimpleNamespace(
        TrainModel=type("TrainModel", (), names), ConfigurationError=ConfigurationError
    )
    whole_validation(module)
    try:
        module.TrainModel.from_partial_objects()
    except ConfigurationError as error:
        return error.message
    return ""


def without_batches(folder: str, kind: str) -> str:
    """The same error, where the number of batches is not known before they are read."""
    trainer = make_trainer(
        Path(folder, f"{kind} without"),
        type=kind,
        distributed=True,
        world_size=world_size(),
        local_rank=process_rank(),
    )
    loader: Any = trainer._validation_data_loader
    loader.instances = loader.instances[: 3 * (1 - process_rank())]
    try:
        trainer.train()
    except ConfigurationError as error:
        return error.message
    return ""


def everything(folder: str, cases: list[tuple]) -> dict[str, Any]:
    """All of the above, and steps: starting processes takes longer than what they do."""
    with patch("tests.resumed_runs.TinyModel", CountingModel):
        kinds = ("declutr", "gradient_descent")
        found: dict[str, Any] = {kind: cut_and_whole(folder, kind) for kind in kinds}
        return {
            **found,
            "sharded": [sharded(folder, kind) for kind in kinds],
            "rates": {kind: by_numbers_of_batches(folder, kind) for kind in kinds},
            "named": {kind: named(folder, kind) for kind in kinds},
            "unfrozen": {kind: unfrozen(folder, kind) for kind in kinds},
            "numbers": numbers_of_steps(),
            "all_in_one": all_in_one(),
            "accumulated": {kind: accumulated(folder, kind) for kind in kinds},
            "empty": [without_validation(), *(without_batches(folder, kind) for kind in kinds)],
            "steps": several(cases),
        }
