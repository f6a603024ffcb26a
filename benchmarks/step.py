"""A training step, ours against the original recipe: time, useful tokens, agreement, memory."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.flops import matrix_product, product_flops, step_flops
from benchmarks.inputs import SHAPES, SpansBatch, build_model, save_checkpoint, spans_batch
from benchmarks.memory import ROOT, in_fresh_process
from benchmarks.reference import GRADIENT_NORM, reference_optimizer, reference_step
from benchmarks.results import Plot, record
from benchmarks.timed_process import STEP, STEP_TEXTS, TimedProcess
from benchmarks.timing import compare, ratio
from declutr.system.kernel_choices import PLAIN, VARIABLE

PRECISIONS = ("float32", "bfloat16")
_WARMUP = 2  # steps before: the first ones ask the system for memory
_TEXTS = ["ids are made up; a tokenizer is only there to name the special ones"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shapes", nargs="+", default=["distilroberta", "roberta_base"])
    parser.add_argument("--documents", type=int, default=4, help="a step (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each (default 3)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument(
        "--dropout", nargs="+", type=float, default=[0.1, 0.0], help="(default 0.1 0.0)"
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=PRECISIONS,
        default=list(PRECISIONS),
        help="leave one out where memory is short (default both)",
    )


def run(args: argparse.Namespace) -> None:
    shapes = ["small"] if args.quick else args.shapes
    rows = []
    for shape in shapes:
        for dropout in args.dropout:
            rows += _timed(shape, dropout, args)
    record(
        "step",
        f"Training step on {'a GPU' if args.device == 'cuda' else 'a CPU'}",
        rows,
        note=(
            "Ours against the original recipe written plainly (`benchmarks/reference.py`), both in "
            "the latest transformers with its SDPA attention: forward, backward, clipping and "
            "AdamW on the same batch of paper-sized spans (two anchors of 32 to 512 tokens a "
            "document, two positives each), random weights. On a CPU each is in a process of its "
            "own, as a run is: the reference's returns memory after each step and asks for it "
            "again, ours keeps it. Times are medians of steps taken in turns; ratios are medians "
            "of the rounds' ratios. Useful tokens are those that are not padding. The share of the "
            "matrix rate counts only the arithmetic that useful tokens need, against large matrix "
            "products of the same type that took their turns as well."
        ),
        settings={"documents": args.documents, "device": args.device, "rounds": args.rounds},
        plots=[
            Plot(
                file="step",
                title="Useful tokens a second in a training step",
                kind="bars",
                x="shape and dropout",
                y="useful tokens/s",
                series="step",
                baseline="reference float32",
            )
        ],
    )
    _agreement(shapes, args)
    _memory(shapes, args)


def _timed(shape: str, dropout: float, args: argparse.Namespace) -> list[dict[str, Any]]:
    batch = _batch(args.documents, 0, shape, args.device)
    functions: dict[str, Callable[[], Any]] = {}
    with ExitStack() as stack:
        for precision in args.precisions:
            for whose, make in (("reference", reference_of), ("ours", ours_of)):
                if args.device == "cpu":
                    take = _in_own_process(whose, shape, dropout, precision, args.documents, stack)
                else:
                    take = make(shape, dropout, precision, batch, args.device)
                functions[f"{whose} {precision}"] = take
            of_type = getattr(torch, precision)
            functions[f"matrix {precision}"] = matrix_product(of_type, args.device)
        by_name = {each.name: each for each in compare(functions, args.rounds, _WARMUP)}
    needed = step_flops(SHAPES[shape], batch)
    rows = []
    for name, timing in by_name.items():
        whose, precision = name.split()
        if whose == "matrix":
            continue
        product = by_name[f"matrix {precision}"]
        rows.append(
            {
                "shape and dropout": f"{shape}, {dropout:g}",
                "step": name,
                "s a step": timing.median,
                "useful tokens/s": batch.num_tokens / timing.median,
                "speed, reference float32 = 1": str(ratio(by_name["reference float32"], timing)),
                "speed, reference of same precision = 1": str(
                    ratio(by_name[f"reference {precision}"], timing)
                ),
                "share of matrix rate": (
                    f"{needed / product_flops(args.device) * ratio(product, timing).median:.0%}"
                ),
            }
        )
    return rows


def _in_own_process(
    whose: str, shape: str, dropout: float, precision: str, documents: int, stack: ExitStack
) -> Callable[[], float]:
    """A step on the CPU in a process of its own, until the stack is closed.

    How memory is got and returned is a matter of the whole process, and a good part of the time.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="declutr-step-")))
    texts = folder / "texts.json"
    texts.write_text(json.dumps(STEP_TEXTS), encoding="utf-8")
    settings = {
        "what": "training step",
        "whose": whose,
        "shape": shape,
        "dropout": dropout,
        "dtype": precision,
        "documents": documents,
        "threads": torch.get_num_threads(),
        "texts": str(texts),
    }
    process = stack.enter_context(closing(TimedProcess(settings, [ROOT], folder)))
    return partial(process.seconds, STEP)


def reference_of(
    shape: str, dropout: float, precision: str, batch: SpansBatch, device: str
) -> Callable[[], float]:
    """A step of the reference on one batch, over and over."""
    model = build_model(shape, dropout=dropout).to(device)
    optimizer = reference_optimizer(model)
    masked, labels = batch.masked(SHAPES[shape].vocab_size)
    return lambda: reference_step(
        model,
        optimizer,
        masked,
        labels,
        batch.anchors_mask,
        batch.positives,
        batch.positives_mask,
        bfloat16=precision == "bfloat16",
    )


def ours_of(
    shape: str,
    dropout: float,
    precision: str,
    batch: SpansBatch,
    device: str,
    wrap: Callable[[Any], Any] | None = None,
) -> Callable[[], float]:
    """A step of the package's model on one batch, over and over, with the reference's masks."""
    take = stepper(shape, dropout, precision, device, wrap=wrap)
    return lambda: take(batch)


def stepper(
    shape: str,
    dropout: float,
    precision: str,
    device: str,
    chunk_size: int | None = None,
    wrap: Callable[[Any], Any] | None = None,
) -> Callable[[SpansBatch], float]:
    """What takes a step of the package's model on a batch, and returns the loss.

    `wrap` makes it a model of several processes.
    """
    model = our_model(shape, dropout, precision, chunk_size).to(device).train()
    optimizer = our_optimizer(model)
    trained = model if wrap is None else wrap(model)

    def take(batch: SpansBatch) -> float:
        optimizer.zero_grad()
        with same_masks(batch, SHAPES[shape].vocab_size):
            loss = trained(**batch.text_fields())["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        return float(loss.detach())

    return take


def our_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of the recipe `declutr`."""
    from allennlp.common import Params
    from allennlp.training.optimizers import Optimizer

    config = {
        "type": "huggingface_adamw",
        "lr": 5e-5,
        "eps": 1e-6,
        "weight_decay": 0.1,
        "correct_bias": False,
        "parameter_groups": [
            [["bias", "[Nn]orm\\d*\\.weight", "_norm\\.weight"], {"weight_decay": 0.0}]
        ],
    }
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return Optimizer.from_params(Params(config), model_parameters=named)


def our_model(
    shape: str,
    dropout: float,
    precision: str,
    chunk_size: int | None = None,
    *,
    folder: str | Path | None = None,
    transformer: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Any:
    """The model "declutr" as the recipes configure it, with the reference's weights.

    Args:
        shape, dropout: of the transformer.
        precision, chunk_size: of the model.
        folder: the transformer of this shape and dropout, where it is saved already.
        transformer: keys of the token embedder.
        changes: keys of the model.
    """
    from allennlp.common import Params
    from allennlp.data import Vocabulary
    from allennlp.models import Model

    import declutr.plugin  # noqa: F401

    with tempfile.TemporaryDirectory() as new:
        if folder is None:
            folder = save_checkpoint(new, shape, _TEXTS, dropout=dropout)
        embedder = {"type": "pretrained_transformer_mlm", "model_name": str(folder)}
        embedder |= transformer or {}
        config = {
            "type": "declutr",
            "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": embedder}},
            "loss": {"type": "nt_xent", "temperature": 0.05},
            "precision": precision,
            "chunk_size": chunk_size,
            **changes,
        }
        return Model.from_params(
            Params(deepcopy(config)), vocab=Vocabulary()
        )  # it takes them apart


@contextmanager
def same_masks(batch: SpansBatch, vocab_size: int):
    """Let the model mask what the reference masks, so that losses compare."""
    with masks(*batch.masked(vocab_size)):
        yield


@contextmanager
def masks(ids: torch.Tensor, labels: torch.Tensor):
    """Let the model predict these masked tokens, both `(B * A, L)`."""
    import declutr.models.training_step

    drawn = declutr.models.training_step.mask_tokens
    declutr.models.training_step.mask_tokens = lambda *_, **__: (ids, labels)
    try:
        yield
    finally:
        declutr.models.training_step.mask_tokens = drawn


def _agreement(shapes: list[str], args: argparse.Namespace) -> None:
    """Loss and gradients of the first step, without dropout: the mathematics is the same."""
    rows = []
    for shape in shapes:
        batch = _batch(2, 1, shape, args.device)
        loss, gradients = _reference_gradients(shape, batch, args.device, torch.float64)
        norm = sum(float(g.norm() ** 2) for g in gradients.values())
        ways: dict[str, Callable[[], tuple[float, dict[str, torch.Tensor]]]] = {
            "reference, float32": partial(
                _reference_gradients, shape, batch, args.device, torch.float32
            ),
            **{
                f"ours, {precision}{', torch kernels' if plain else ''}": partial(
                    _our_gradients, shape, batch, args.device, precision, plain
                )
                for precision, plain in (("float32", True), ("float32", False), ("bfloat16", False))
            },
        }
        for way, gradients_of in ways.items():
            its_loss, its_gradients = gradients_of()
            square = sum(float((its_gradients[n] - g).norm() ** 2) for n, g in gradients.items())
            rows.append(
                {
                    "shape": shape,
                    "step": way,
                    "loss": its_loss,
                    "loss apart, relative": abs(its_loss - loss) / abs(loss),
                    "gradient apart, relative": (square / norm) ** 0.5,
                }
            )
    record(
        "agreement",
        "Same loss, same gradient",
        rows,
        note=(
            "One step without dropout on the same masks and weights, against the reference in "
            "float64. The gradient is that of all parameters as one vector; `tests` asserts the "
            "same for tiny shapes. With torch's kernels is with DECLUTR_KERNELS=plain."
        ),
        settings={"device": args.device},
    )


def _reference_gradients(
    shape: str, batch: SpansBatch, device: str, dtype: torch.dtype
) -> tuple[float, dict[str, torch.Tensor]]:
    from benchmarks.reference import reference_loss

    model = build_model(shape, dropout=0.0).to(device, dtype)
    masked, labels = batch.masked(SHAPES[shape].vocab_size)
    loss = reference_loss(
        model, masked, labels, batch.anchors_mask, batch.positives, batch.positives_mask
    )
    loss.backward()
    return float(loss.detach()), _gradients(model)


def _our_gradients(
    shape: str, batch: SpansBatch, device: str, precision: str, plain: bool
) -> tuple[float, dict[str, torch.Tensor]]:
    model = our_model(shape, 0.0, precision).to(device).train()
    kernels = {VARIABLE: PLAIN} if plain else {}
    with same_masks(batch, SHAPES[shape].vocab_size), mock.patch.dict(os.environ, kernels):
        loss = model(**batch.text_fields())["loss"]
        loss.backward()
    embedder = model._text_field_embedder.token_embedder
    return float(loss.detach()), _gradients(embedder.transformer_model)


def _gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def _memory(shapes: list[str], args: argparse.Namespace) -> None:
    rows = []
    for shape in shapes:
        for precision in PRECISIONS:
            for whose in ("reference", "ours"):
                _, peak = in_fresh_process(
                    "benchmarks.step.some_steps",
                    {
                        "whose": whose,
                        "shape": shape,
                        "precision": precision,
                        "documents": args.documents,
                        "device": args.device,
                    },
                )
                used = peak.cuda or peak.private - peak.private_before
                rows.append(
                    {"shape": shape, "step": f"{whose} {precision}", "peak memory, MB": used / 1e6}
                )
    record(
        "step_memory",
        "Peak memory of a training step",
        rows,
        note="Weights, gradients and optimizer included, libraries not; dropout 0.1.",
        settings={"documents": args.documents, "device": args.device},
    )


def some_steps(whose: str, shape: str, precision: str, documents: int, device: str) -> float:
    """Two steps in a process of their own; returns the last loss."""
    batch = _batch(documents, 0, shape, device)
    make = reference_of if whose == "reference" else ours_of
    step = make(shape, 0.1, precision, batch, device)
    return [step() for _ in range(2)][-1]


def _batch(documents: int, seed: int, shape: str, device: str) -> SpansBatch:
    return spans_batch(documents, seed, vocab_size=SHAPES[shape].vocab_size).to(device)
