"""Is it right there? Losses, gradients and embeddings against those of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.gpu import whole_runs
from benchmarks.gpu.findings import Findings, Settings
from benchmarks.gpu.models import (
    Gradients,
    apart,
    loss_and_gradients,
    model,
    on_device,
    small_batch,
    texts,
    transformer,
)
from benchmarks.inputs import SHAPES
from benchmarks.step import masks, our_optimizer

WAYS: dict[str, dict[str, Any]] = {
    "packed": {"transformer": {"unpadding": "packed"}},
    "grouped": {"transformer": {"unpadding": "grouped"}},
    "padded": {"transformer": {"unpadding": "none"}},
    "in chunks": {"chunk_size": 2},
    "checkpointed": {"transformer": {"gradient_checkpointing": True}},
    "compiled": {"transformer": {"compile": True}},
}
"""How the same is computed."""

_QUEUE = {"type": "moco", "embedding_size": 128, "queue_size": 64}
_MEMORY = {"type": "cross_batch_memory", "embedding_size": 128, "memory_size": 64}
KINDS: dict[str, dict[str, Any]] = {
    "scalar mix": {"transformer": {"last_layer_only": False}},
    "two encoders": {
        "two_encoders": True,
        "transformer": {"masked_language_modeling": False},
    },
    "momentum": {"momentum_encoder": {"momentum": 0.9}, "loss": _QUEUE},
    "cross-batch memory": {"loss": {**_MEMORY, "loss": {"type": "nt_xent"}}},
}
"""What is computed besides the default."""

PRECISIONS = ("float32", "bfloat16")
_FLOAT32 = 1e-4, 1e-3  # of losses and gradients


def run(findings: Findings, settings: Settings) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    references: dict[str, dict[str, tuple[float, Gradients]]] = {}
    ways = [("default", way, how) for way, how in WAYS.items()]
    ways[-1:-1] = [(kind, kind, {}) for kind in KINDS]
    for kind, way, how in ways[:-1]:
        _compare(findings, settings, references, kind, way, how)
    for check in (_validation, _embeddings, _dropout, _optimizer):
        findings.check(check.__name__[1:], check, settings)
    for trainer in whole_runs.trainers():
        findings.check(f"resumed run, {trainer}", whole_runs.resumed, settings, trainer)
        findings.check(f"use_amp, {trainer}", whole_runs.use_amp, settings, trainer)
    if settings.device == "cuda":  # takes longer than all the others
        _compare(findings, settings, references, *ways[-1])


def _compare(
    findings: Findings,
    settings: Settings,
    references: dict[str, dict[str, tuple[float, Gradients]]],
    kind: str,
    way: str,
    how: dict[str, Any],
) -> None:
    for precision in PRECISIONS:
        arguments = settings, references, kind, how, precision
        findings.check(f"{way}, {precision}", _compared, *arguments)


def _compared(
    settings: Settings,
    references: dict[str, dict[str, tuple[float, Gradients]]],
    kind: str,
    how: dict[str, Any],
    precision: str,
) -> dict[str, Any]:
    """Loss and gradients of the third step of a model, whose first two left something behind."""
    what = KINDS.get(kind, {})
    if kind not in references:
        references[kind] = {p: _third_step(settings, "cpu", p, what) for p in PRECISIONS}
    loss, gradients = references[kind]["float32"]
    ours, our_gradients = _third_step(settings, settings.device, precision, {**what, **how})
    found = {
        "loss apart, relative": abs(ours - loss) / abs(loss),
        "gradient apart, relative": apart(our_gradients, gradients),
    }
    limits = _FLOAT32
    if precision != "float32":  # as far as the same type is on the CPU
        rounded, rounded_gradients = references[kind][precision]
        found["CPU's loss apart"] = abs(rounded - loss) / abs(loss)
        found["CPU's gradient apart"] = apart(rounded_gradients, gradients)
        limits = 2 * found["CPU's loss apart"] + 0.01, 2 * found["CPU's gradient apart"] + 0.01
    loss_apart, gradient_apart, *_ = found.values()
    return {**found, "holds": loss_apart < limits[0] and gradient_apart < limits[1]}


def _third_step(
    settings: Settings, device: str, precision: str, changes: dict[str, Any]
) -> tuple[float, Gradients]:
    """Without updates of the weights: queues and memories fill, and other lengths come."""
    module = model(settings, precision=precision, device=device, **changes)
    for seed in range(3):
        batch = small_batch(seed=seed)
        found = loss_and_gradients(module, batch, batch.masked(SHAPES["check"].vocab_size, seed))
    return found


def _validation(settings: Settings) -> dict[str, Any]:
    batch = small_batch()
    masked = batch.masked(SHAPES["check"].vocab_size)
    told = []
    for device in ("cpu", settings.device):
        module = model(settings, device=device).eval()
        with torch.no_grad(), masks(*(tensor.to(device) for tensor in masked)):
            loss = module(**on_device(batch.text_fields(), device))["loss"]
        told.append({"loss": float(loss), **module.get_metrics(reset=True)})
    theirs, ours = told
    differences = {key: abs(ours[key] - value) for key, value in theirs.items() if key in ours}
    holds = ours.keys() == theirs.keys() and max(differences.values()) < 1e-3 * theirs["loss"]
    return {
        "loss apart, relative": differences["loss"] / theirs["loss"],
        "metrics apart": differences,
        "holds": holds,
    }


def _embeddings(settings: Settings) -> dict[str, Any]:
    """Of texts of all lengths, by `Encoder`, on the device and on the CPU."""
    from declutr.inference.encoder import Encoder

    given = [*texts([1, 2, 5, 17, 40, 90, 3, 3, 120]), ""]
    folder = transformer(settings, "check")
    exact = Encoder(folder, device="cpu", dtype="float32")(given)
    distances = {
        dtype: float(
            np.abs(Encoder(folder, device=settings.device, dtype=dtype)(given) - exact).max()
        )
        for dtype in PRECISIONS
    }
    holds = distances["float32"] < 1e-5 and distances["bfloat16"] < 0.02
    return {**{f"farthest in {k}": v for k, v in distances.items()}, "holds": holds}


def _dropout(settings: Settings) -> dict[str, Any]:
    """The same seed gives the same loss, another seed another."""
    batch = small_batch()
    masked = batch.masked(SHAPES["check"].vocab_size)
    module = model(settings, dropout=0.1, precision="bfloat16")
    found = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        found.append(loss_and_gradients(module, batch, masked))
    (loss, gradients), (again, gradients_again), (other, _) = found
    return {
        "loss apart, relative": abs(again - loss) / loss,
        "gradient apart, relative": apart(gradients_again, gradients),
        "another seed apart": abs(other - loss) / loss,
        "holds": abs(again - loss) < 1e-5 * loss and other != loss,
    }


def _optimizer(settings: Settings) -> dict[str, Any]:
    """Five updates by the optimizer of the recipes, against float64 on the CPU."""
    updated = []
    for device, dtype in (("cpu", torch.float64), (settings.device, torch.float32)):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.LayerNorm(32))
        layers = layers.to(device, dtype)
        optimizer = our_optimizer(layers)
        for _ in range(5):
            for parameter in layers.parameters():
                parameter.grad = torch.randn(parameter.shape).to(device, dtype)
            optimizer.step()
        updated.append([p.detach().double().cpu() for p in layers.parameters()])
    distance = max(float((a - b).abs().max()) for a, b in zip(*updated, strict=True))
    return {"weights apart": distance, "holds": distance < 1e-6}
