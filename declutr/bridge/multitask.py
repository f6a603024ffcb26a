"""Repairs of how AllenNLP trains and predicts several tasks at once."""

import math
import random
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def inputs_of_heads(module: ModuleType) -> None:
    """Let each head of the model "multitask" get the rows of its task of a batch of several tasks.

    AllenNLP cuts the tensors of a text field for a head in the batch itself, so that the next head
    took its rows from those of the first: the rows of other instances, or an error. Can be removed
    when `forward` makes new dictionaries.
    """

    @replaces(module.MultiTaskModel)
    def _get_arguments(
        original: Any, self: Any, available_args: dict[str, Any], component: str
    ) -> dict[str, Any]:
        found = original(self, available_args, component)
        if component == "backbone":
            return found
        # A text field has a dictionary of tensors for each indexer, which `forward` changes.
        return {
            name: {indexer: dict(tensors) for indexer, tensors in value.items()}
            if isinstance(value, dict)
            else value
            for name, value in found.items()
        }


def batches_of_tasks(module: ModuleType) -> None:
    """Let the length of the loader "multitask" be the number of its batches in an epoch.

    With `instances_per_epoch`, AllenNLP counts that many instances for every task, and not for all
    together. So with three tasks, a schedule came to a third of its steps. Can be removed when
    `__len__` counts the instances that the sampler gives to each task.
    """

    @replaces(module.MultiTaskDataLoader)
    def __len__(original: Any, self: Any) -> int:
        instances = self._instances_per_epoch
        if instances is None:
            return original(self)
        shares = self.sampler.get_task_proportions(self._loaders)
        whole = sum(shares.values())
        counts = {task: math.floor(share * instances / whole) for task, share in shares.items()}
        return self.scheduler.count_batches(counts)


def shuffled_tasks(module: ModuleType) -> None:
    """Let the loader "multitask" shuffle all instances of a task that are in memory.

    AllenNLP draws from a pool of 1,024, so the first batches of an epoch came from the beginning of
    a file. A task with `max_instances_in_memory` is shuffled in a pool of so many, if they are more
    than 1,024. Can be removed when the loaders of the tasks shuffle.
    """

    @replaces(module)
    def maybe_shuffle_instances(original: Any, loader: Any, shuffle: bool) -> Iterable[Any]:
        if not shuffle:
            return original(loader, shuffle)
        pool = loader.max_instances_in_memory
        if pool is not None:
            return module.util.shuffle_iterable(loader.iter_instances(), max(pool, 1024))
        instances = list(loader.iter_instances())
        random.shuffle(instances)
        return instances


def order_of_instances(module: ModuleType) -> None:
    """Let the predictor "multitask" return predictions in the order of the instances.

    AllenNLP returns those of the first task, then those of the second, and so on, and
    `allennlp predict --batch-size 8` writes them in this order. Can be removed when AllenNLP puts
    them back.
    """

    @replaces(module.MultiTaskPredictor)
    def predict_batch_instance(original: Any, self: Any, instances: list[Any]) -> list[Any]:
        places: dict[Any, list[int]] = {}  # of the instances of a task
        for place, instance in enumerate(instances):
            places.setdefault(getattr(instance["task"], "metadata", None), []).append(place)
        by_task = [place for of_task in places.values() for place in of_task]
        predicted = dict(zip(by_task, original(self, instances), strict=True))
        return [predicted[place] for place in range(len(instances))]
