"""What the tests of task models share: how small ones are built, trained and compared."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Batch, Instance, Vocabulary
from allennlp.models import Model, load_archive

import declutr.plugin  # noqa: F401
from tests import two_processes


def built(config: dict[str, Any], instances: list[Instance]) -> Model:
    """Return a model with seeded weights, and the vocabulary of the instances."""
    vocab = Vocabulary.from_instances(instances)
    torch.manual_seed(0)
    return Model.from_params(Params(config), vocab=vocab)


def tensors(model: Model, instances: list[Instance]) -> dict[str, Any]:
    batch = Batch(instances)
    batch.index_instances(model.vocab)
    return batch.as_tensor_dict()


def run_config(
    reader: str, model: dict[str, Any], file: Path, batch_size: int, epochs: int, **trainer: Any
) -> dict[str, Any]:
    return {
        **dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), 1),
        "dataset_reader": {"type": reader},
        "train_data_path": str(file),
        "validation_data_path": str(file),
        "model": model,
        "data_loader": {"batch_size": batch_size, "shuffle": True},
        "trainer": {
            "optimizer": {"type": "adam", "lr": 0.02},
            "num_epochs": epochs,
            "cuda_device": -1,
            **trainer,
        },
    }


def assert_finite_gradients(model: Model) -> None:
    """Assert that every parameter has a gradient that is finite and not zero."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def trained_with_reclaim(
    config: dict[str, Any], folder: Path, instances: int, **views: str
) -> tuple[Model, Model, dict[str, Any]]:
    """Train a model as the task of "reclaim".

    Return the trained model, the model of its archive without RECLAIM, and the metrics.
    """
    objective = {"type": "reclaim", "instances": instances, "num_negatives": 3}
    model = {"type": "reclaim", "model": config["model"], "objective": objective, **views}
    reader = {**config["dataset_reader"], "with_ids": True}
    trained = train_model(
        Params({**config, "model": model, "dataset_reader": reader}), str(folder / "run")
    )
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["training_reclaim_loss"] > 0
    bare = load_archive(folder / "run" / "model.tar.gz", overrides={"model.bare": True}).model
    return trained.eval(), bare.eval(), metrics


def step_of_process(
    make: Callable[[list[Instance]], Model], instances: list[Instance], without: Sequence[str]
) -> tuple[float, dict[str, torch.Tensor], dict[str, Any]]:
    """Return the loss, the averaged gradient and the metrics of one process for its instances."""
    model = make(instances).double()
    rank, processes = (dist.get_rank(), 2) if dist.is_initialized() else (0, 1)
    share = len(instances) // processes
    batch = tensors(model, instances[rank * share : (rank + 1) * share])
    for name in without:
        del batch[name]
    for name, field in batch.items():
        batch[name] = field.double() if getattr(field, "dtype", None) == torch.float32 else field
    loss = model(**batch)["loss"]
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    if processes > 1:
        for gradient in gradients.values():
            dist.all_reduce(gradient)
            gradient /= processes
    model.get_metrics(reset=True)
    with torch.no_grad():
        model.eval()(**batch)
    return loss.item(), gradients, model.get_metrics(reset=True)


def assert_two_processes_equal_one(
    make: Callable[[list[Instance]], Model],
    instances: list[Instance],
    without: Sequence[str] = (),
    of_batches: Sequence[str] = (),
) -> tuple[list[float], dict[str, Any]]:
    """Compare gradients and metrics of two processes with those of one, which has all instances.

    Metrics `of_batches` differ, as batches are smaller. Return the losses, and the metrics of one.
    """
    loss, gradients, metrics = step_of_process(make, instances, without)
    losses = [loss]
    for its_loss, its_gradients, its_metrics in two_processes.run(
        step_of_process, make, instances, without
    ):
        losses.append(its_loss)
        its_metrics |= {name: metrics[name] for name in of_batches}
        assert its_metrics == pytest.approx(metrics)
        for name, gradient in gradients.items():
            assert torch.allclose(its_gradients[name], gradient, atol=1e-10), name
    return losses, metrics
