"""Gradient caching: memory and time of large contrastive batches."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from benchmarks.inputs import SHAPES, SpansBatch, spans_batch
from benchmarks.memory import in_fresh_process
from benchmarks.results import Plot, record
from benchmarks.step import stepper
from benchmarks.timing import seconds_of

_PLAIN_STEPS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", default="small", help="of the transformer (default small)")
    parser.add_argument("--precision", default="bfloat16", help="(default bfloat16)")
    parser.add_argument(
        "--plain", type=int, default=16, help="documents of the step compared with (default 16)"
    )
    parser.add_argument(
        "--chunks", nargs="+", type=int, default=[4, 16], help="documents at a time (default 4 16)"
    )
    parser.add_argument(
        "--batches", nargs="+", type=int, default=[64, 512], help="(default 64 512)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")


def run(args: argparse.Namespace) -> None:
    batches = [32] if args.quick else args.batches
    common = {"shape": args.shape, "precision": args.precision, "device": args.device}
    plain = _measured({**common, "documents": args.plain, "chunk": None}, args.plain, None)
    rows = [plain]
    for chunk in args.chunks:
        for documents in batches:
            settings = {**common, "documents": documents, "chunk": chunk}
            rows.append(_measured(settings, args.plain, plain))
    record(
        "caching",
        "Large contrastive batches in fixed memory",
        rows,
        note=(
            f"One step of the model with `chunk_size`, against plain steps of {args.plain} "
            "documents. Times are those of a step between four plain ones. "
            "Memory, of a step in a process of its own, is what the process allocated beyond "
            "imported libraries: weights, gradients and optimizer included."
        ),
        settings=vars(args),
        plots=[
            Plot(
                file="caching",
                title="Peak memory against documents a step",
                kind="lines",
                x="documents a step",
                y="peak memory, MB",
                series="step",
            )
        ],
    )


def _measured(
    settings: dict[str, Any], plain_documents: int, plain: dict[str, Any] | None
) -> dict[str, Any]:
    _, peak = in_fresh_process("benchmarks.caching.one_step", settings)
    used = (peak.cuda or peak.private - peak.private_before) / 1e6
    # In this process, for watching another takes time from what is measured there.
    times = (
        timed_steps(**settings, plain_documents=plain_documents)
        if plain
        else {"a document": None, "ratio": 1.0}
    )
    return {
        "documents a step": settings["documents"],
        "step": f"in chunks of {settings['chunk']}" if plain else "plain",
        "peak memory, MB": used,
        "memory, plain = 1": used / plain["peak memory, MB"] if plain else 1.0,
        "ms a document": times["a document"],
        "time a document, plain = 1": times["ratio"],
    }


def one_step(shape: str, precision: str, device: str, documents: int, chunk: int | None) -> float:
    """A step of `documents`; returns the loss. For measuring memory."""
    batch = _batch(documents, 0, shape, device)
    take = stepper(shape, 0.1, precision, device, chunk)
    # The first makes the optimizer's moments. With ever new lengths, a CPU's allocator needs some
    # batches until its memory no longer grows, and chunks are such batches too.
    for seed in range(1, 2 if chunk else _PLAIN_STEPS):
        take(_batch(chunk or documents, seed, shape, device))
    return take(batch)


def timed_steps(
    shape: str, precision: str, device: str, documents: int, chunk: int, plain_documents: int
) -> dict[str, float]:
    """Milliseconds a document in chunks; and its time over that of plain steps around it."""
    whole = _batch(documents, 0, shape, device)
    batches = [_batch(plain_documents, seed, shape, device) for seed in range(2)]
    caching = stepper(shape, 0.1, precision, device, chunk)
    plain = stepper(shape, 0.1, precision, device)
    for batch in batches:  # warm-up
        plain(batch)
        caching(batch)
    before = [seconds_of(partial(plain, batch)) for batch in batches]
    taken = seconds_of(partial(caching, whole))
    after = [seconds_of(partial(plain, batch)) for batch in batches]
    a_token = sum(before + after) / sum(2 * batch.num_tokens for batch in batches)
    return {
        "a document": 1000 * taken / documents,
        "ratio": taken / whole.num_tokens / a_token,  # documents differ a little in their spans
    }


def _batch(documents: int, seed: int, shape: str, device: str) -> SpansBatch:
    return spans_batch(documents, seed, vocab_size=SHAPES[shape].vocab_size).to(device)
