"""How the cost of a training step grows with documents a step, span lengths and processes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.inputs import SHAPES, spans_batch
from benchmarks.results import Plot, record
from benchmarks.step import ours_of
from benchmarks.timing import compare, seconds_of
from declutr.sampling.spans import SpanSampler


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", default="small", help="of the transformer (default small)")
    parser.add_argument("--precision", default="bfloat16", help="(default bfloat16)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each (default 3)")


def run(args: argparse.Namespace) -> None:
    words = SHAPES[args.shape].vocab_size
    batches = {
        f"{documents} documents": spans_batch(documents, 0, vocab_size=words)
        for documents in ([4, 16] if args.quick else [4, 16, 64])
    }
    for longest in (64, 128, 256, 512):
        sampler = SpanSampler(min_span_len=min(32, longest // 2), max_span_len=longest)
        batches[f"spans up to {longest}"] = spans_batch(16, 0, vocab_size=words, sampler=sampler)
    rows = []
    steps = {
        name: ours_of(args.shape, 0.1, args.precision, batch.to(args.device), args.device)
        for name, batch in batches.items()
    }
    for timing in compare(steps, rounds=args.rounds):
        tokens = batches[timing.name].num_tokens
        rows.append(_row(timing.name, tokens, timing.median))
    if args.device == "cpu":
        for processes in (1, 2):
            tokens, seconds = _in_processes(processes, args)
            name = f"16 documents, {processes} process(es) of one thread"
            rows.append(_row(name, tokens, seconds))
    record(
        "scaling",
        "Growth of a training step",
        rows,
        note=(
            "Sixteen documents a step and spans of 32 to 512 tokens where nothing else is said. "
            "Processes share the batch (`distributed`, gloo), each with one thread."
        ),
        settings=vars(args),
        plots=[
            Plot(
                file="scaling",
                title="Useful tokens a second by size of the step",
                kind="bars",
                x="step",
                y="useful tokens/s",
            )
        ],
    )


def _row(name: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        "step": name,
        "useful tokens a step": tokens,
        "s a step": seconds,
        "useful tokens/s": tokens / seconds,
    }


def _in_processes(processes: int, args: argparse.Namespace) -> tuple[int, float]:
    """Tokens of all processes a step, and the seconds that the slowest one took."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            _process, (processes, folder, args.shape, args.precision, args.rounds), processes
        )
        results = [torch.load(Path(folder, f"{rank}.pt")) for rank in range(processes)]
    return sum(tokens for tokens, _ in results), max(seconds for _, seconds in results)


def _process(
    rank: int, processes: int, folder: str, shape: str, precision: str, rounds: int
) -> None:
    torch.set_num_threads(1)
    words = SHAPES[shape].vocab_size
    batch = spans_batch(16 // processes, rank, vocab_size=words)

    def together(model: torch.nn.Module) -> torch.nn.Module:
        # Only now: with a process group, transformers would let the first process alone save the
        # checkpoint that each makes for itself.
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=processes
        )
        return torch.nn.parallel.DistributedDataParallel(model) if processes > 1 else model

    step = ours_of(shape, 0.1, precision, batch, "cpu", wrap=together)
    step()
    seconds = sorted(seconds_of(step) for _ in range(rounds))[rounds // 2]
    torch.save((batch.num_tokens, seconds), Path(folder, f"{rank}.pt"))
    torch.distributed.destroy_process_group()
