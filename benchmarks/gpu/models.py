"""Models, optimizers and batches of the parts, from configurations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.findings import Settings
from benchmarks.inputs import SHAPES, SpansBatch, save_checkpoint, spans_batch
from benchmarks.reference import GRADIENT_NORM
from benchmarks.step import masks, our_model, our_optimizer
from declutr.sampling.spans import SpanSampler

SHORT = SpanSampler(num_anchors=2, num_positives=2, min_span_len=8, max_span_len=100)
"""Spans for the shape "check"."""

LARGE, SMALL = "roberta_base", "distilroberta"


@cache
def words(count: int = 8000) -> tuple[str, ...]:
    """Made-up words, the most frequent first."""
    rng = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    made = {"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3 * count)}
    return tuple(sorted(made, key=lambda word: (len(word), word))[:count])


def texts(lengths: Iterable[int], seed: int = 0) -> list[str]:
    """Texts of so many words each, drawn as frequencies of words fall in language."""
    rng, known = np.random.default_rng(seed), words()
    weights = 1 / np.arange(1, len(known) + 1)
    weights /= weights.sum()
    return [" ".join(rng.choice(known, length, p=weights)) for length in lengths]


def transformer(settings: Settings, shape: str, dropout: float = 0.1) -> Path:
    """A transformer with a tokenizer for `words`, saved once a call."""
    folder = settings.work / f"{shape}-{dropout:g}"
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        save_checkpoint(partial, shape, texts([300] * 100), dropout=dropout)
        partial.rename(folder)
    return folder


def model(
    settings: Settings,
    shape: str = "check",
    *,
    dropout: float = 0.0,
    precision: str = "float32",
    device: str | None = None,
    **changes: Any,
) -> Any:
    """The model "declutr" in training mode; `changes` as of `benchmarks.step.our_model`."""
    torch.manual_seed(0)  # of what has no pretrained weights
    folder = transformer(settings, shape, dropout)
    made = our_model(shape, dropout, precision, folder=folder, **changes)
    return made.to(device or settings.device).train()


def small_batch(documents: int = 6, seed: int = 0) -> SpansBatch:
    """Spans for the shape "check", on the CPU."""
    vocab_size = SHAPES["check"].vocab_size
    rng = np.random.default_rng(seed)
    made = [rng.integers(5, vocab_size, 450) for _ in range(documents)]
    return spans_batch(made, seed, vocab_size=vocab_size, max_length=128, sampler=SHORT)


def batches(settings: Settings, shape: str, documents: int, count: int = 3) -> list[SpansBatch]:
    """Batches of the paper's spans on the CPU; of short ones in a rehearsal."""
    if settings.tiny:
        return [small_batch(documents, seed) for seed in range(count)]
    vocab_size = SHAPES[shape].vocab_size
    return [spans_batch(documents, seed, vocab_size=vocab_size) for seed in range(count)]


def on_device(fields: Any, device: str | torch.device) -> Any:
    """Fields of a batch on a device, moved as the package's loader moves them.

    Releases before 1.7 have no `host_memory`; their loader moves tensors and no more.
    """
    if isinstance(fields, dict):
        return {key: on_device(value, device) for key, value in fields.items()}
    try:
        from declutr.system.host_memory import to_device
    except ImportError:
        return fields.to(device)
    return to_device(fields, torch.device(device))


def step_of(module: Any, given: list[SpansBatch], device: str) -> Callable[[], torch.Tensor]:
    """What takes one training step after another, and does not wait for its loss."""
    optimizer = our_optimizer(module)
    fields = [on_device(batch.text_fields(), device) for batch in given]
    taken = 0

    def step() -> torch.Tensor:
        nonlocal taken
        optimizer.zero_grad()
        loss = module(**fields[taken % len(fields)])["loss"]
        taken += 1
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), GRADIENT_NORM)
        optimizer.step()
        return loss.detach()

    return step


Gradients = Mapping[str, torch.Tensor]


def loss_and_gradients(
    module: Any, batch: SpansBatch, masked: tuple[torch.Tensor, torch.Tensor]
) -> tuple[float, Gradients]:
    """Of one batch with given masks, on whatever device the model is; float64 on the CPU."""
    device = next(module.parameters()).device
    module.zero_grad(set_to_none=True)
    with masks(*(tensor.to(device) for tensor in masked)):
        loss = module(**on_device(batch.text_fields(), device))["loss"]
    loss.backward()
    named = module.named_parameters()
    return float(loss.detach()), {n: p.grad.double().cpu() for n, p in named if p.grad is not None}


def apart(ours: Gradients, theirs: Gradients) -> float:
    """Relative distance of gradients, all parameters as one vector.

    Raises:
        ValueError: if they are of other parameters.
    """
    if ours.keys() != theirs.keys():
        raise ValueError(f"gradients of other parameters: {sorted(ours.keys() ^ theirs.keys())}")
    square = sum(float((ours[name] - theirs[name]).norm() ** 2) for name in theirs)
    return (square / sum(float(t.norm() ** 2) for t in theirs.values())) ** 0.5
