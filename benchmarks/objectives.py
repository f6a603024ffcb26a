"""What each objective costs by itself: time and memory at several batch sizes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from allennlp.common import Params

import declutr.plugin  # noqa: F401 - registers what the cases name
from benchmarks.results import Plot, record
from benchmarks.timing import compare
from declutr.objectives import Objective

WIDTH, PROJECTED, TOKENS, INSTANCES = 768, 256, 32, 100_000
BATCHES = 64, 256, 1024

_QUEUE = {"embedding_size": PROJECTED, "queue_size": 16_384}
_INSTANCES = {"instances": INSTANCES, "embedding_size": PROJECTED}


@dataclass(frozen=True)
class Case:
    """An objective and what it is given.

    Args:
        loss: its configuration.
        widths: of the `(N, width)` tensors it takes, in order.
        tokens: whether it takes token vectors, `(N, TOKENS, width)`, a mask and their means.
        given: what comes by keyword: "ids", "documents", "classes",
            "scores", "negatives".
    """

    loss: dict[str, Any]
    widths: tuple[int, ...] = (WIDTH, WIDTH)
    tokens: bool = False
    given: tuple[str, ...] = field(default=())


CASES = {
    "nt_xent": Case({"type": "nt_xent"}),
    "info_nce": Case({"type": "info_nce", "similarity": "cosine", "temperature": 0.05}),
    "info_nce, hard negatives": Case(
        {"type": "info_nce", "similarity": "cosine", "temperature": 0.05}, given=("negatives",)
    ),
    "info_nce, symmetric": Case({"type": "info_nce", "similarity": "cosine", "symmetric": True}),
    "n_pair": Case({"type": "n_pair"}),
    "nce": Case({"type": "nce"}),
    "sup_con, 10 classes": Case({"type": "sup_con"}, given=("classes",)),
    "contrastive": Case({"type": "contrastive"}),
    "triplet, all": Case({"type": "triplet"}),
    "triplet, given": Case({"type": "triplet"}, given=("negatives",)),
    "lifted_structured": Case({"type": "lifted_structured"}),
    "soft_nearest_neighbours": Case({"type": "soft_nearest_neighbours"}),
    "debiased_contrastive": Case({"type": "debiased_contrastive"}),
    "hard_negative": Case({"type": "hard_negative"}),
    "moco": Case({"type": "moco", **_QUEUE}, (PROJECTED, PROJECTED)),
    "mochi": Case({"type": "mochi", **_QUEUE}, (PROJECTED, PROJECTED)),
    "byol": Case({"type": "byol"}, (PROJECTED,) * 4),
    "swav": Case(
        {"type": "swav", "embedding_size": PROJECTED, "prototypes": 300}, (PROJECTED, PROJECTED)
    ),
    "barlow_twins": Case({"type": "barlow_twins"}, (4096, 4096)),
    "scd": Case({"type": "scd"}, (WIDTH, WIDTH, 4096, 4096)),
    "align_uniform": Case({"type": "align_uniform"}),
    "quick_thoughts": Case({"type": "quick_thoughts"}, given=("ids", "documents")),
    "cpc": Case({"type": "cpc", "embedding_size": WIDTH}, (WIDTH,), given=("ids", "documents")),
    "is_bert": Case({"type": "is_bert"}, (WIDTH,), tokens=True),
    "instance_discrimination": Case(
        {"type": "instance_discrimination", **_INSTANCES}, (PROJECTED,), given=("ids",)
    ),
    "instance_discrimination, noise 4096": Case(
        {"type": "instance_discrimination", "noise": 4096, **_INSTANCES},
        (PROJECTED,),
        given=("ids",),
    ),
    "pair_softmax": Case(
        {"type": "pair_softmax", "num_labels": 10, "embedding_size": WIDTH}, given=("classes",)
    ),
    "cosine_regression": Case({"type": "cosine_regression"}, given=("scores",)),
    "cross_batch_memory": Case(
        {
            "type": "cross_batch_memory",
            "loss": {"type": "nt_xent"},
            "embedding_size": WIDTH,
            "memory_size": 4096,
        }
    ),
    "reclaim": Case(
        {"type": "reclaim", "instances": INSTANCES, "embedding_size": WIDTH}, given=("ids",)
    ),
    "pml CircleLoss": Case({"type": "pytorch_metric_learning", "loss": "CircleLoss"}),
    "pml MultiSimilarityLoss": Case(
        {"type": "pytorch_metric_learning", "loss": "MultiSimilarityLoss"}
    ),
}
"""By the name in the table; losses of the recipes, with a queue or a bank as large as in use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--only", nargs="+", choices=CASES, help="some of them", metavar="NAME")


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    batches = BATCHES[:2] if args.quick else BATCHES
    rounds = 2 if args.quick else args.rounds
    names = args.only or list(CASES)
    milliseconds: dict[tuple[str, int], float] = {}
    mebibytes: dict[tuple[str, int], float] = {}
    for batch in batches:
        steps = {name: step_of(CASES[name], batch, args.device) for name in names}
        for timing in compare(steps, rounds=rounds):
            milliseconds[timing.name, batch] = timing.median * 1000
        for name, step in steps.items():
            mebibytes[name, batch] = allocated_by(step, args.device) / 2**20
    last, before = batches[-1], batches[-2]
    rows = [
        {
            "objective": name,
            **{f"ms, batch {batch}": milliseconds[name, batch] for batch in batches},
            **{f"MiB, batch {batch}": mebibytes[name, batch] for batch in batches},
            f"memory at {last} / at {before}": mebibytes[name, last] / mebibytes[name, before],
        }
        for name in names
    ]
    record(
        "objectives",
        "What objectives cost",
        rows,
        note=(
            f"Forward and backward on {args.device}, {args.threads} thread(s), float32, without "
            f"encoder and head: embeddings of width {WIDTH}, projections of {PROJECTED} (moco, "
            "mochi, byol, swav, instance_discrimination) or 4,096 (barlow_twins, scd); a queue of "
            f"16,384, a bank of {INSTANCES:,} instances, {TOKENS} tokens a text. Medians of steps "
            "taken in turns. Memory is the highest sum of what a step allocates, queues and banks "
            f"not among it. A batch {last // before} times as large and memory quadratic in it: "
            f"{(last // before) ** 2} times as much; cubic: {(last // before) ** 3}."
        ),
        settings=vars(args),
        plots=[
            Plot(
                file="objectives",
                title=f"A step of each objective, batch {last}",
                kind="bars",
                x="objective",
                y=f"ms, batch {last}",
                logarithmic="y",
            )
        ],
    )


def step_of(case: Case, batch: int, device: str) -> Callable[[], Any]:
    """Forward and backward of a case at a batch size."""
    torch.manual_seed(0)
    objective = Objective.from_params(Params(dict(case.loss))).to(device).train()
    shape = (batch, TOKENS) if case.tokens else (batch,)
    inputs = [torch.randn(*shape, width, device=device) for width in case.widths]
    given = _given(case.given, batch, device)

    def step() -> None:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        if case.tokens:
            mask = torch.ones(shape, dtype=torch.bool, device=device)
            objective(leaves[0], mask, leaves[0].mean(dim=1)).backward()
        else:
            objective(*leaves, **given).backward()

    return step


def _given(names: tuple[str, ...], batch: int, device: str) -> dict[str, torch.Tensor]:
    every: dict[str, tuple[str, torch.Tensor]] = {
        "ids": ("ids", torch.arange(batch)),
        "documents": ("documents", torch.arange(batch) // 20),
        "classes": ("labels", torch.arange(batch) % 10),
        "scores": ("labels", torch.linspace(0, 1, batch)),
        "negatives": ("negatives", torch.randn(batch, WIDTH)),
    }
    return {every[name][0]: every[name][1].to(device) for name in names}


def allocated_by(function: Callable[[], Any], device: str) -> int:
    """The highest sum in bytes of what a call allocates for tensors and has not freed yet."""
    if torch.device(device).type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would report its start and stop
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        function()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    highest = total = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        highest = max(highest, total)
    return highest
