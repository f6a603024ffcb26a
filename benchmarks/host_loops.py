"""What the loop around a step costs the host: trainers over a model that does nothing."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks import inputs

BARE = "bare loop"


def measure(layers: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds a step of each loop in each round, in turns; for a process of its own."""
    import declutr.plugin  # noqa: F401

    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    inputs.SHAPES["narrow"] = inputs.Shape("roberta", layers, 32, 2, 64, 300, 64)
    epochs = _epochs(steps)
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    for number in range(rounds + 1):
        for name, epoch in epochs.items():
            taken = epoch()
            if number:  # the first warms up
                seconds[name].append(taken / steps)
    return seconds


def _epochs(steps: int) -> dict[str, Callable[[], float]]:
    """By name, what runs an epoch and returns its CPU seconds."""
    from allennlp.training import Trainer

    made: dict[str, Callable[[], float]] = {BARE: lambda: _bare_epoch(steps)}
    for name, options in {"gradient_descent": {}, "declutr": {"read_every": 10}}.items():
        if name in Trainer.list_available():
            kind: Any = Trainer.by_name(name)
            made[f'trainer "{name}"'] = functools.partial(_trainer_epoch, kind, steps, **options)
    return made


def _bare_epoch(steps: int) -> float:
    model, optimizer = _nothing()
    parameters = list(model.parameters())
    start = time.process_time()
    for batch in _batches(steps):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], 1.0)
        optimizer.step()
    return time.process_time() - start


def _trainer_epoch(kind: Any, steps: int, **options: Any) -> float:
    from allennlp.data import DataLoader

    class Batches(DataLoader):
        def __iter__(self) -> Iterator[Any]:
            return _batches(steps)

        def __len__(self) -> int:
            return steps

        def iter_instances(self) -> Iterator[Any]:
            return iter(())

        def index_with(self, vocab: Any) -> None: ...

        def set_target_device(self, device: torch.device) -> None: ...

    model, optimizer = _nothing()
    once = {"num_epochs": 1, "grad_norm": 1.0, "run_confidence_checks": False, "cuda_device": -1}
    trainer = kind(model, optimizer, Batches(), **once, **options)
    start = time.process_time()
    trainer._train_epoch(0)
    return time.process_time() - start


def _batches(steps: int) -> Iterator[dict[str, torch.Tensor]]:
    return iter([{"numbers": torch.zeros(2)}] * steps)


def _nothing() -> tuple[Any, torch.optim.Optimizer]:
    """A model with the parameters of a transformer, one of which has a gradient."""
    from allennlp.data import Vocabulary
    from allennlp.models import Model
    from allennlp.training.optimizers import HuggingfaceAdamWOptimizer

    class Nothing(Model):
        def __init__(self) -> None:
            super().__init__(Vocabulary())
            self.transformer = inputs.build_model("narrow")
            self.number = torch.nn.Parameter(torch.zeros(()))

        def forward(self, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.number * 1.0}

        def get_metrics(self, reset: bool = False) -> dict[str, float]:
            return {"one": 1.0, "two": 2.0, "three": 3.0}

    model = Nothing().train()
    return model, HuggingfaceAdamWOptimizer(list(model.named_parameters()), lr=1e-3)
