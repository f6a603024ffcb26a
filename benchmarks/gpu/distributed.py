"""Several processes as one: a group of one over NCCL, and of two that share the GPU over gloo."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.findings import Findings, Settings
from benchmarks.gpu.models import model, on_device, small_batch, transformer
from benchmarks.inputs import SHAPES, SpansBatch
from benchmarks.reference import GRADIENT_NORM
from benchmarks.step import masks, our_optimizer

DOCUMENTS, STEPS = 8, 3
WAYS = ("torch", "fsdp")  # DistributedDataParallel, and a model that is spread
# Of a process that waits for one that failed; the second waits for its turn as well.
_TIMEOUTS = timedelta(seconds=20), timedelta(seconds=120)


def run(findings: Findings, settings: Settings) -> None:
    transformer(settings, "check", 0.0)  # before two processes want it
    other = _start_other(settings)
    try:
        plain = findings.check("one process", _steps, settings, None)
        alone = "gloo" if settings.device == "cpu" else "nccl"
        for processes, backend in ((1, alone), (2, "gloo")):
            for way in WAYS:
                name = f"{way}, {processes} process(es), {backend}"
                findings.check(name, _against, settings, plain, way, backend, processes)
    finally:
        other.kill()
        other.wait()


def _against(
    settings: Settings, plain: dict[str, Any], way: str, backend: str, processes: int
) -> dict[str, Any]:
    found = _in_group(settings, way, backend, 0, processes)
    apart = max(abs(a - b) / abs(b) for a, b in zip(found["losses"], plain["losses"], strict=True))
    norm = plain["norm of weights"]
    weights = abs(found["norm of weights"] - norm) / norm
    holds = apart < 1e-3 and weights < 1e-5
    return {"loss apart, relative": apart, "norm of weights apart": weights, "holds": holds}


def _in_group(
    settings: Settings, way: str, backend: str, rank: int, processes: int
) -> dict[str, Any]:
    """Steps of this process in a group, which is left afterwards."""
    import torch.distributed as dist

    store = settings.work / f"group-{way}-{backend}-{processes}"
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=processes,
        timeout=_TIMEOUTS[rank],
    )
    try:
        return _steps(settings, way, rank, processes)
    finally:
        dist.destroy_process_group()


def _steps(
    settings: Settings, way: str | None, rank: int = 0, processes: int = 1
) -> dict[str, Any]:
    """Losses of some updates on a share of the documents, and the norm of the weights after."""
    module, wrapped = model(settings), None
    if way is not None:
        from allennlp.common import Params
        from allennlp.nn.parallel import DdpAccelerator

        device = torch.device(settings.device, 0) if settings.device == "cuda" else -1
        accelerator = DdpAccelerator.from_params(
            Params({"type": way}), local_rank=rank, world_size=processes, cuda_device=device
        )
        module, wrapped = accelerator.wrap_model(module)
    called = module if wrapped is None else wrapped.model
    optimizer = our_optimizer(module)
    losses = []
    for seed in range(STEPS):
        batch = small_batch(DOCUMENTS, seed)
        anchors = _part(len(batch.anchors), rank, processes)
        masked = batch.masked(SHAPES["check"].vocab_size)
        optimizer.zero_grad()
        with masks(*(tensor[anchors].to(settings.device) for tensor in masked)):
            fields = on_device(_share(batch, rank, processes).text_fields(), settings.device)
            loss = called(**fields)["loss"]
        loss.backward()
        if wrapped is None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), GRADIENT_NORM)
        else:
            wrapped.clip_grad_norm_(GRADIENT_NORM)
        optimizer.step()
        losses.append(float(loss.detach()))
    state = (wrapped or module).state_dict()
    numbers = [v.double() for v in state.values() if torch.is_tensor(v) and v.is_floating_point()]
    return {"losses": losses, "norm of weights": sum(float((v**2).sum()) for v in numbers) ** 0.5}


def _part(rows: int, rank: int, processes: int) -> slice:
    return slice(rank * rows // processes, (rank + 1) * rows // processes)


def _share(batch: SpansBatch, rank: int, processes: int) -> SpansBatch:
    """The documents of one process."""
    anchors = _part(len(batch.anchors), rank, processes)
    positives = _part(len(batch.positives), rank, processes)
    return replace(
        batch,
        anchors=batch.anchors[anchors],
        anchors_mask=batch.anchors_mask[anchors],
        positives=batch.positives[positives],
        positives_mask=batch.positives_mask[positives],
        num_documents=batch.num_documents // processes,
    )


def _start_other(settings: Settings) -> subprocess.Popen:
    """The second process of the groups of two; it waits for the first in each."""
    command = [sys.executable, "-m", "benchmarks.gpu.distributed"]
    told = json.dumps({**settings._asdict(), "work": str(settings.work)})
    return subprocess.Popen([*command, told])


def _be_the_other(told: str) -> None:
    from benchmarks.gpu import stand_ins

    stand_ins.install()
    import declutr.plugin  # noqa: F401

    values = json.loads(told)
    settings = Settings(values["device"], values["tiny"], Path(values["work"]))
    if settings.device == "cpu":
        torch.set_num_threads(1)
    for way in WAYS:
        try:
            _in_group(settings, way, "gloo", 1, 2)
        except Exception as error:  # the first process finds the same, and reports it
            print(f"{way}, second process: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    _be_the_other(sys.argv[1])
