"""Trainings that are evaluated on the way, for `test_evaluation_callback.py` and its processes."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import declutr.training.evaluation_tasks as module
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import all_tasks
from declutr.evaluation.task import Protocol, Task, Vectors
from declutr.system.distributed import process_rank
from tests import sharded_steps
from tests.evaluation.tasks import data_files

TEXTS = ["ka lo mi", "tu re", "", "sa no ve pi du ka lo", "mi mi mi mi"]


def plain(name: str, *values: float) -> Score:
    return Score(name, "plain_mean", {"value": np.asarray(values)})


class Drawing(Task):
    """Draws from every generator, and trains a classifier."""

    def __init__(self, name: str = "drawing") -> None:
        super().__init__(name, "sts", "norm")

    def sentences(self) -> list[str]:
        return TEXTS

    def scores(self, vectors: Vectors) -> list[Score]:
        drawn = random.random(), np.random.rand(), torch.rand(()).item()
        layer = torch.nn.Linear(vectors(TEXTS).shape[1], 1)
        layer(torch.from_numpy(vectors(TEXTS))).sum().backward()
        assert layer.weight.grad is not None
        norms = np.linalg.norm(vectors(TEXTS), axis=1)
        return [plain("norm", *norms), plain("drawn", *drawn)]


class Scripted(Task):
    """Gives the scores it is told to, one after another; an exception is raised."""

    script: Sequence[float | Exception] = ()

    def __init__(self) -> None:
        super().__init__("scripted", "probing", "level")
        self.calls = 0

    def sentences(self) -> list[str]:
        return TEXTS[:1]

    def scores(self, vectors: Vectors) -> list[Score]:
        value = self.script[self.calls]
        self.calls += 1
        if isinstance(value, Exception):
            raise value
        return [plain("level", value)]


def these_tasks(data: str, protocol: Protocol, corpus: str | None = None) -> list[Task]:
    """All the published ones, and those of this module."""
    return [*all_tasks(data, protocol, corpus), Drawing(), Scripted()]


def write_benchmark(data: Path) -> Path:
    """A small STS-B, as SentEval lays it out."""
    rng = random.Random(0)
    words = ["ka", "lo", "mi", "tu", "re", "sa", "no", "ve"]
    texts = iter(lambda: " ".join(rng.choices(words, k=rng.randint(2, 12))), None)
    splits = {
        split: [(next(texts), next(texts), round(rng.uniform(0, 5), 3)) for _ in range(count)]
        for split, count in (("train", 12), ("dev", 9), ("test", 7))
    }
    data_files.write_benchmark(data / "downstream" / "STS" / "STSBenchmark", splits)
    return data


# ------------------------------------------------------------------------ what two processes do


def trained(config: dict, folder: str, options: dict[str, Any], script: list[float]) -> dict:
    """A run in several processes, and how often each of them evaluated."""
    evaluations = 0
    evaluate = module.evaluate

    def counted(*args: Any) -> Any:
        nonlocal evaluations
        evaluations += 1
        return evaluate(*args)

    Scripted.script = script
    before = module.all_tasks, module.evaluate
    module.all_tasks, module.evaluate = these_tasks, counted  # type: ignore[assignment]
    try:
        sharded_steps.train(config, folder, options)
    finally:
        module.all_tasks, module.evaluate = before
    return {"evaluations": evaluations, "rank": process_rank()}


def several(cases: list[tuple[dict, str, dict[str, Any], list[float]]]) -> list[dict]:
    """`trained` of many cases: starting processes takes longer than what they do."""
    return [trained(json.loads(json.dumps(config)), *more) for config, *more in cases]
