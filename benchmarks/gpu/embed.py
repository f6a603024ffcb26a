"""Embedding texts: `Encoder` against `encode` of sentence-transformers with the same weights."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.findings import Findings, Settings
from benchmarks.gpu.models import LARGE, SMALL, texts, transformer

_BASELINE = "sentence-transformers float32"
_Ways = dict[str, Callable[[list[str]], Any]]


def run(findings: Findings, settings: Settings) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # of both; nothing forks here
    count, longest = (40, 60) if settings.tiny else (4000, 350)
    rng = random.Random(0)
    kinds = {
        "mixed lengths": texts([int(longest ** rng.random()) for _ in range(count)]),
        "sentences": texts([rng.randint(5, 30) for _ in range(count)], seed=1),
    }
    for shape in ["check"] if settings.tiny else [SMALL, LARGE]:
        ways: _Ways = {}
        findings.check(f"{shape}: loaded", _load, settings, shape, ways)
        for kind, given in kinds.items():
            base: tuple[float, np.ndarray] | None = None
            for way, embed in ways.items():
                measured: list[tuple[float, np.ndarray]] = []
                findings.check(
                    f"{shape}: {kind}: {way}",
                    _timed,
                    embed,
                    given,
                    base,
                    measured,
                    row={"texts": f"{shape}, {kind}", "way": way},
                )
                if way == _BASELINE and measured:
                    base = measured[0]


def _load(settings: Settings, shape: str, ways: _Ways) -> dict[str, Any]:
    """Fills `ways`, the one compared with first."""
    from sentence_transformers import SentenceTransformer

    from declutr.inference.encoder import Encoder

    folder, device = transformer(settings, shape), settings.device

    def theirs(dtype: torch.dtype) -> Callable[[list[str]], Any]:
        loaded = _sentence_transformer(SentenceTransformer, folder, device, dtype)
        # Sentence-transformers of 2026 takes what a configuration gives.
        loaded.max_seq_length = 128 if settings.tiny else 512
        return lambda given: loaded.encode(given, batch_size=128, show_progress_bar=False)

    ways[_BASELINE] = theirs(torch.float32)
    ways["sentence-transformers bfloat16"] = theirs(torch.bfloat16)
    for dtype in ("float32", "bfloat16"):
        ways[f"declutr {dtype}"] = Encoder(folder, device=device, dtype=dtype, normalize=False)
    return {"ways": list(ways)}


def _sentence_transformer(kind: Any, folder: Path, device: str, dtype: torch.dtype) -> Any:
    try:
        return kind(str(folder), device=device, model_kwargs={"dtype": dtype})
    except TypeError:  # before transformers 4.56
        return kind(str(folder), device=device, model_kwargs={"torch_dtype": dtype})


def _timed(
    embed: Callable[[list[str]], Any],
    given: list[str],
    base: tuple[float, np.ndarray] | None,
    measured: list[tuple[float, np.ndarray]],
) -> dict[str, Any]:
    """The better of two passes, vectors compared first; both return arrays of the host."""
    rows = np.asarray(embed(given[:: max(1, len(given) // 256)]), dtype=np.float32)
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        rows = np.asarray(embed(given), dtype=np.float32)
        taken.append(time.perf_counter() - began)
    measured.append((min(taken), rows))
    seconds, theirs = base or measured[0]
    cosines = (rows * theirs).sum(axis=1)
    cosines /= np.linalg.norm(rows, axis=1) * np.linalg.norm(theirs, axis=1)
    return {
        "texts/s": len(given) / min(taken),
        "speed, sentence-transformers float32 = 1": seconds / min(taken),
        "mean cosine": float(cosines.mean()),
        "least cosine": float(cosines.min()),
        "holds": bool(cosines.min() > 0.99),
    }
