"""What RECLAIM costs beside a task: a step of a sentence-pair classifier, with and without it."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from allennlp.common import Lazy, Params
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from benchmarks.inputs import build_model
from benchmarks.memory import in_fresh_process, sizes_in
from benchmarks.results import Plot, record
from benchmarks.timing import Timing, compare, ratio, seconds_of
from declutr.models.reclaim.model import ReclaimModel
from declutr.objectives.memories.reclaim import Reclaim

BANKS: dict[str, dict[str, Any]] = {
    "float32 in memory, exact": {},
    "float16 in memory, exact": {"precision": "float16"},
    "float16 on disk, exact": {"precision": "float16", "storage": "disk"},
    "float16 on disk, approximate": {
        "precision": "float16",
        "storage": "disk",
        "search": "approximate",
        "approximate_from": 10_000,
    },
}
WHOLE_BANK = "float32 in memory, all of a random 80 %"
"""Without selection of negatives."""

_SETTINGS = {
    **BANKS,
    WHOLE_BANK: {"num_negatives": None, "candidate_share": 0.8, "lipschitz": False},
}
SIZES = 10_000, 50_000, 100_000, 200_000, 400_000, 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", default="roberta_base", help="(default roberta_base)")
    parser.add_argument("--batch", type=int, default=32, help="pairs a step (default 32)")
    parser.add_argument("--tokens", type=int, default=128, help="of a pair (default 128)")
    parser.add_argument("--instances", type=int, default=400_000, help="(default 400000)")
    parser.add_argument("--negatives", type=int, default=100, help="K (default 100)")
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default 2)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument(
        "--banks", nargs="+", choices=_SETTINGS, default=list(_SETTINGS), metavar="NAME"
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="of growing banks")
    parser.add_argument(
        "--growth-only", action="store_true", help="the term alone, up to a million"
    )
    parser.add_argument(
        "--precise",
        type=int,
        metavar="ROUNDS",
        help="only the step, with the first of --banks, so many times, for an interval",
    )


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    if args.quick:
        args.shape, args.tokens, args.instances, args.rounds = "mini", 32, 20_000, 2
    if args.precise is not None:
        _record_precise(args)
        return
    if not args.growth_only:
        _record_steps(args)
    sizes = [size for size in args.sizes if size <= args.instances or not args.quick]
    _record_growth(args, sizes)


def _record_precise(args: argparse.Namespace) -> None:
    settings = _settings(args)
    bank = args.banks[0]
    alone, beside, term_alone = timings(**settings, bank=bank, rounds=args.precise)[0]
    low, high = _interval(alone.seconds, beside.seconds)
    row = {
        "bank": bank,
        "steps of each": args.precise,
        "s a step, task alone": statistics.mean(alone.seconds),
        "s a step, with RECLAIM": statistics.mean(beside.seconds),
        "time, task alone = 1": statistics.mean(beside.seconds) / statistics.mean(alone.seconds),
        "95 % interval": f"{low:.2f} to {high:.2f}",
        "the term by itself": statistics.mean(term_alone.seconds) / statistics.mean(alone.seconds),
    }
    record(
        "reclaim_precise",
        "RECLAIM beside a task, many steps",
        [row],
        note=(
            "As above; means instead of medians, and the interval of their quotient by drawing "
            "rounds with replacement."
        ),
        settings=settings,
    )


def _interval(alone: list[float], beside: list[float]) -> tuple[float, float]:
    """Of the quotient of means, 95 %, by 10,000 draws of rounds."""
    rounds = np.random.default_rng(0).integers(len(alone), size=(10_000, len(alone)))
    quotients = np.array(beside)[rounds].mean(axis=1) / np.array(alone)[rounds].mean(axis=1)
    low, high = np.percentile(quotients, [2.5, 97.5])
    return float(low), float(high)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    names = ("shape", "batch", "tokens", "instances", "negatives", "threads", "device")
    return {name: getattr(args, name) for name in names}


def _record_steps(args: argparse.Namespace) -> None:
    settings = _settings(args)
    before = in_fresh_process("benchmarks.reclaim.one_step", {**settings, "bank": None})[1]
    rows = []
    for bank in args.banks:
        # Here, for who watches the memory of a process takes time from it.
        told = steps(**settings, bank=bank, rounds=args.rounds)
        _, memory = in_fresh_process("benchmarks.reclaim.one_step", {**settings, "bank": bank})
        row = {"bank": bank, **told, "extra memory, MB": (memory.private - before.private) / 1e6}
        if memory.cuda:
            row["extra GPU memory, MB"] = (memory.cuda - before.cuda) / 1e6
        rows.append(row)
    record(
        "reclaim",
        "RECLAIM beside a task",
        rows,
        note=(
            "A step (forward, backward, AdamW) of a sentence-pair classifier of the shape "
            f"{args.shape}, {args.batch} pairs of {args.tokens} tokens, with RECLAIM's term "
            f"against K = {args.negatives} of {args.instances:,} instances in either bank, and "
            "without, in turns; random weights, full banks. The term by itself is its forward and "
            "backward on two features that are given, and the update of the banks. Extra memory is "
            "the highest memory that the process allocated, less that of the task alone; pages of "
            "files on disk that the system keeps are not among it."
        ),
        settings=settings,
    )


def _record_growth(args: argparse.Namespace, sizes: Sequence[int]) -> None:
    alone = _timed_alone(args)
    rows = []
    places = [(bank, size) for bank in args.banks for size in sizes]
    for bank, size in tqdm(places, "banks", unit="bank"):  # the largest fit into memory one by one
        told, memory = in_fresh_process(
            "benchmarks.reclaim.term_alone", {**_settings(args), "bank": bank, "instances": size}
        )
        seconds = told.pop("s, term")
        rows.append(
            {
                "instances": size,
                "bank": bank,
                "ms a step": seconds * 1000,
                "step with it, task alone = 1": 1 + seconds / alone.median,
                "MB of banks": told.pop("banks") / 1e6,
                "MB more in steps": max(0, memory.private - told.pop("before")) / 1e6,
                **told,
            }
        )
    record(
        "reclaim_growth",
        "RECLAIM's term against the size of its banks",
        rows,
        note=(
            f"The term alone, forward, backward and update of the banks: {args.batch} instances, "
            f"two features of width 768, K = {args.negatives} or all of a random 80 % (the row "
            f'"80% w/o ANS"), on {args.device}, threads: {args.threads}. A step with it is that of '
            f"the task alone ({args.shape}, {args.tokens} tokens: {alone.median:.2f} s) and the "
            "term; on MNLI (392,702 instances) the paper has 45 minutes an epoch alone, 47 (1.04 "
            "times as long) with K = 100, 81 (1.8) with 80 %. MB more in steps is the highest that "
            "they allocated beside full banks; in the paper it is 200 MB with K = 100, and with "
            "80 % the rest of a card of 12 GB. The first step of approximate search builds its "
            "lists, as each 1,000th does."
        ),
        settings=_settings(args),
        plots=[
            Plot(
                file="reclaim_growth",
                title="RECLAIM's term against the size of its banks",
                kind="lines",
                x="instances",
                y="ms a step",
                series="bank",
                logarithmic="xy",
            )
        ],
    )


def _timed_alone(args: argparse.Namespace) -> Timing:
    task, fields = _task(args.shape, args.batch, args.tokens, args.device)
    optimizer = torch.optim.AdamW(task.parameters(), lr=2e-5)
    return compare({"task alone": lambda: _step(task, optimizer, fields)}, args.rounds)[0]


def term_alone(
    batch: int,
    instances: int,
    negatives: int,
    threads: int,
    device: str,
    bank: str,
    **_: Any,
) -> dict[str, Any]:
    """Take steps of the term alone against full banks.

    # Returns

    The median `s, term` of a step after the first, `s, first step`, `recall of the nearest`, and
    the bytes of both `banks` and of the process `before` the first step.
    """
    torch.set_num_threads(threads)
    objective, features = term(instances, bank, 768, batch, negatives, device)

    def step() -> None:
        objective(*features[:2], ids=features[2]).backward()

    before = sizes_in("/proc/self/status")["RssAnon"]
    first = seconds_of(step)
    rounds = 2 if first > 5 else 9
    (timing,) = compare({bank: step}, rounds, warmup=0 if first > 5 else 1, progress=False)
    banks = (objective.u_bank.vectors, objective.v_bank.vectors)
    return {
        "s, term": timing.median,
        "s, first step": first,
        "recall of the nearest": objective.u_bank.recall,
        "banks": sum(vectors.nbytes for vectors in banks),
        "before": before,
    }


class PairClassifier(Model):
    """A transformer over a pair of sentences, and a layer on its first token."""

    def __init__(self, shape: str) -> None:
        super().__init__(Vocabulary.empty())
        self.transformer = build_model(shape).base_model
        self.pooled = torch.nn.Identity()
        self.classifier = torch.nn.Linear(self.transformer.config.hidden_size, 2)

    def forward(  # type: ignore[override]
        self, tokens: TextFieldTensors, label: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        inputs = tokens["tokens"]
        states = self.transformer(inputs["token_ids"], inputs["mask"]).last_hidden_state
        logits = self.classifier(self.pooled(states[:, 0]))
        return {"loss": cross_entropy(logits, label)}


def timings(
    shape: str,
    batch: int,
    tokens: int,
    instances: int,
    negatives: int,
    threads: int,
    device: str,
    bank: str,
    rounds: int,
) -> tuple[list[Timing], float | None]:
    """Of steps without and with the term and of the term by itself, in turns; and the recall of its
    search."""
    torch.set_num_threads(threads)
    task, fields = _task(shape, batch, tokens, device)
    model = _beside(task, instances, negatives, bank, device)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=2e-5) for m in (task, model)]
    ids = torch.arange(batch, device=device) * (instances // batch)
    width = task.transformer.config.hidden_size
    u, v = (torch.randn(batch, width, device=device).requires_grad_() for _ in "uv")
    taken = compare(
        {
            "task alone": lambda: _step(task, optimizers[0], fields),
            "with RECLAIM": lambda: _step(model, optimizers[1], {**fields, "ids": ids}),
            "term alone": lambda: model._objective(u, v, ids=ids).backward(),
        },
        rounds=rounds,
    )
    return taken, model._objective.u_bank.recall


def steps(**settings: Any) -> dict[str, Any]:
    """`timings` as columns of a table."""
    (alone, beside, term_alone), recall = timings(**settings)
    return {
        "s a step, task alone": alone.median,
        "s a step, with RECLAIM": beside.median,
        "time, task alone = 1": str(ratio(beside, alone)),
        "the term by itself": str(ratio(term_alone, alone)),
        "recall of the nearest": recall,
    }


def one_step(
    shape: str,
    batch: int,
    tokens: int,
    instances: int,
    negatives: int,
    threads: int,
    device: str,
    bank: str | None,
) -> None:
    """Two steps of the task with the term, or without a `bank` alone, for its memory."""
    torch.set_num_threads(threads)
    model, fields = _task(shape, batch, tokens, device)
    if bank is not None:
        model = _beside(model, instances, negatives, bank, device)
        fields["ids"] = torch.arange(batch, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for _ in range(2):  # the second holds gradients and moments of the first
        _step(model, optimizer, fields)


def _task(shape: str, batch: int, tokens: int, device: str) -> tuple[Any, dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 2000, (batch, tokens), generator=generator).to(device)
    text = {"tokens": {"token_ids": ids, "mask": torch.ones_like(ids, dtype=torch.bool)}}
    fields = {"tokens": text, "label": torch.arange(batch, device=device) % 2}
    return PairClassifier(shape).to(device).train(), fields


def _beside(task: Any, instances: int, negatives: int, bank: str, device: str) -> Any:
    settings = {"instances": instances, "num_negatives": negatives, **_SETTINGS[bank]}
    width = task.transformer.config.hidden_size
    model = ReclaimModel(
        task.vocab, task, Lazy(Reclaim, Params(settings)), u="pooled", u_width=width
    ).to(device)
    fill(model._objective)
    return model.train()


def _step(model: Any, optimizer: torch.optim.Optimizer, fields: dict[str, Any]) -> None:
    optimizer.zero_grad()
    model(**fields)["loss"].backward()
    optimizer.step()


def term(
    instances: int, bank: str, width: int, batch: int, negatives: int, device: str
) -> tuple[Reclaim, list[torch.Tensor]]:
    """The objective with full banks, and features and ids to give it."""
    settings = {"num_negatives": negatives, **_SETTINGS[bank]}
    objective = Reclaim(instances, width, **settings).to(device)
    fill(objective)
    generator = torch.Generator().manual_seed(1)
    features = [
        torch.randn(batch, width, generator=generator).to(device).requires_grad_() for _ in "uv"
    ]
    ids = torch.randperm(instances, generator=generator)[:batch].to(device)
    return objective.train(), [*features, ids]


def fill(objective: Reclaim, block: int = 1000) -> None:
    """A feature for every instance: noise around a thousand centres, as texts have topics."""
    generator = torch.Generator().manual_seed(2)
    for bank in (objective.u_bank, objective.v_bank):
        device = bank.visited.device
        centres = torch.randn(1000, bank.width, generator=generator)
        for begin in range(0, bank.instances, block):
            ids = torch.arange(begin, min(begin + block, bank.instances))
            around = torch.randint(1000, (len(ids),), generator=generator)
            rows = centres[around] + torch.randn(len(ids), bank.width, generator=generator)
            bank.update(ids.to(device), rows.to(device))
