"""What the processes of `test_distributed.py` do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import Model
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import declutr.plugin  # noqa: F401 - registers what configurations name
from declutr.objectives import NTXent
from declutr.sampling.masking import IGNORE
from declutr.system.distributed import (
    all_reduced,
    gather_ragged_rows,
    gather_rows,
    is_distributed,
    of_all_processes,
    process_rank,
    with_value,
    world_size,
)
from tests.resumed_runs import make_trainer


def mask_by_position(token_ids: Tensor, maskable: Tensor, *, mask_id: int, **_: Any) -> tuple:
    """Masks that depend on the ids alone: the same in one process and in two."""
    chosen = maskable & (token_ids % 4 == 1)
    return token_ids.masked_fill(chosen, mask_id), token_ids.masked_fill(~chosen, IGNORE)


def mask_nothing_in_the_second_half(token_ids: Tensor, maskable: Tensor, **ids: Any) -> tuple:
    """The last process has nothing to predict."""
    if process_rank() == world_size() - 1:
        maskable = maskable.clone()
        maskable[maskable.size(0) // 2 if world_size() == 1 else 0 :] = False
    return mask_by_position(token_ids, maskable, **ids)


MASKS = {"by_position": mask_by_position, "half": mask_nothing_in_the_second_half}


def share(batch: dict, sizes: list[int] | None = None) -> dict:
    """This process's documents."""
    documents = batch["anchors"]["tokens"]["token_ids"].size(0)
    sizes = sizes or [documents // world_size()] * world_size()
    start = sum(sizes[: process_rank()])
    part = slice(start, start + sizes[process_rank()])
    return {
        name: texts[part]
        if isinstance(texts, Tensor)
        else {"tokens": {key: t[part] for key, t in texts["tokens"].items()}}
        for name, texts in batch.items()
    }


@contextmanager
def exact(masks: str, dtype: torch.dtype) -> Iterator[None]:
    """Masks that do not depend on the process, and embeddings of float64 if that is `dtype`."""
    with patch("declutr.models.training_step.mask_tokens", MASKS[masks]):
        if dtype is not torch.float64:
            yield
            return
        with patch.object(Tensor, "float", Tensor.double):  # otherwise they are made float32
            yield


def built(config: dict) -> Any:
    return Model.from_params(Params(json.loads(json.dumps(config))), vocab=Vocabulary())


def train_steps(config: dict, masks: str, batches: list[dict], dtype: torch.dtype) -> dict:
    """Losses, metrics and, after each step, all gradients of a model under DDP (if distributed).

    Nothing is updated in between, but a second step shows whether the first one finished.
    """
    torch.manual_seed(0)
    losses, gradients = [], []
    with exact(masks, dtype):
        model = built(config).to(dtype).train()
        trained = DistributedDataParallel(model) if is_distributed() else model
        for batch in batches:
            trained.zero_grad()
            loss = trained(**share(batch))["loss"]
            loss.backward()
            losses.append(loss.item())
            named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
            gradients.append({n: p.grad.clone() for n, p in named})
    return {"losses": losses, "gradients": gradients, "metrics": model.get_metrics()}


def several(cases: list[tuple]) -> list[dict]:
    """`train_steps` of many cases."""
    return [train_steps(*case) for case in cases]


def validate(config: dict, batch: dict) -> list[float]:
    """The validation loss of a process, twice."""
    torch.manual_seed(0)
    model = built(config).eval()
    part = share(batch)
    return [model(**part)["loss"].item() for _ in range(2)]


def gathering(rows: Tensor) -> dict:
    """`gather_rows`, and the gradient of a loss that every process computes from all rows."""
    parts = rows.chunk(world_size())
    mine = parts[process_rank()].clone().requires_grad_()
    gathered = gather_rows(mine.T.contiguous().T)  # whatever its strides
    objective = NTXent(0.5)
    loss = objective(gathered, gathered.flip(1))
    loss.backward()
    ones = torch.ones(3, requires_grad=True)
    reduced = all_reduced(ones)
    carrier = torch.tensor(3.0, requires_grad=True)
    logged = with_value(carrier * 2, torch.tensor(1.5))
    logged.backward()
    return {
        "rows": gathered.detach(),
        "loss": loss.item(),
        "gradient": mine.grad,
        "rank": (process_rank(), world_size()),
        "reduced": reduced,
        "untouched": ones.detach(),
        "needs_grad": (gathered.requires_grad, reduced.requires_grad),
        "logged": (logged.item(), carrier.grad.item()),
    }


def uneven(rows: Tensor) -> str:
    """The error of processes with different numbers of rows."""
    try:
        gather_rows(rows[: 2 + process_rank()])
    except ValueError as error:
        return str(error)
    return ""


def ragged(rows: Tensor) -> dict:
    """`gather_ragged_rows` of two rows and of all others, the gradient of a loss over all of them,
    and numbers."""
    mine = (rows[:2] if process_rank() == 0 else rows[2:]).clone().requires_grad_()
    gathered = gather_ragged_rows(mine.T.contiguous().T, world_size())
    objective = NTXent(0.5)
    objective(gathered, gathered.flip(1)).backward()
    numbers = gather_ragged_rows(torch.arange(len(mine)))
    return {"rows": gathered.detach(), "gradient": mine.grad, "numbers": numbers.tolist()}


def trained(kind: str, batches: int) -> dict[str, Any]:
    """A run with one of the trainers, in which the last process has so many batches an epoch."""
    with TemporaryDirectory() as folder:
        trainer = make_trainer(
            Path(of_all_processes(folder)[0], "run"),
            type=kind,
            distributed=True,
            world_size=world_size(),
            local_rank=process_rank(),
            grad_norm=0.1,
            num_epochs=2,
        )
        model: Any = trainer.model  # without the metrics that cannot be had of several processes
        model.get_metrics = lambda reset=False: {"accuracy": model.accuracy.get_metric(reset)}
        if process_rank() == world_size() - 1:
            loader: Any = trainer.data_loader
            loader.instances = loader.instances[: batches * loader.batch_size]
        metrics = trainer.train()
        of_all_processes(None)  # before the folder goes
    left_out = ("duration", "memory")
    return {
        "weights": trainer.model.state_dict(),
        "metrics": {k: v for k, v in metrics.items() if not any(word in k for word in left_out)},
        "steps": trainer._total_batches_completed,
    }


def everything(cases: list[tuple], config: dict, rows: Tensor) -> dict:
    """All of the above: starting processes takes longer than what they do."""
    return {
        "cases": several(cases),
        "validation": validate(config, cases[0][2][0]),
        "primitives": {"gathering": gathering(rows), "error": uneven(rows)},
        "ragged": ragged(rows),
        "trained": {
            (kind, batches): trained(kind, batches)
            for kind in ("gradient_descent", "declutr")
            for batches in (5, 3)
        },
    }
