"""Whether ways to embed give the same vectors, and pairs of sentences to tell how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from declutr.evaluation.tasks import scored_pairs as sts
from declutr.evaluation.tasks.scored_pairs import ScoredPairs, read_benchmark, read_sts_subset

LARGEST_DIFFERENCE = 1e-3
"""From 1 of the cosine of float32 vectors of a text. One that is cut elsewhere differs by more."""


def require_alike(names: str, cosines: np.ndarray, texts: Sequence[str]) -> None:
    """Refuse ways in float32 that embed a text differently.

    Args:
        names: of the two.
        cosines: of their vectors of each text, `(n,)`.
        texts: n of them.

    Raises:
        ValueError: with the first such text.
    """
    different = np.flatnonzero(~(cosines >= 1 - LARGEST_DIFFERENCE))  # NaN is one of them
    if len(different):
        place = different[0]
        raise ValueError(
            f"{names} differ in {len(different)} of {len(texts)} texts, first in text {place} "
            f"of {len(texts[place])} characters (cosine {cosines[place]:.4f}), which begins "
            f"{texts[place][:60]!r}. They do not compute the same: look at where each cuts texts."
        )


def scored_pairs(data: Path, most: int | None = None) -> tuple[str, ScoredPairs]:
    """The test split of STS-B from SentEval's data, else STS12; with its name.

    Args:
        data: SentEval's folder.
        most: take no more than the first so many pairs, which the name then says.

    Raises:
        FileNotFoundError: if neither is there.
    """
    name, pairs = _all_pairs(data)
    if most is None or len(pairs) <= most:
        return name, pairs
    kept = ScoredPairs(pairs.first[:most], pairs.second[:most], pairs.gold[:most])
    return f"{name} ({most} pairs)", kept


def _all_pairs(data: Path) -> tuple[str, ScoredPairs]:
    folder = data / "downstream" / "STS"
    benchmark = folder / "STSBenchmark" / sts.STS_BENCHMARK["test"]
    if benchmark.is_file():
        return "STS-B", read_benchmark(benchmark)
    if not (folder / "STS12-en-test").is_dir():
        raise FileNotFoundError(
            f"--sts {data}: expected SentEval's folders, with downstream/STS/STSBenchmark or "
            "downstream/STS/STS12-en-test in it."
        )
    parts = [
        read_sts_subset(folder / "STS12-en-test", subset) for subset in sts.STS_SUBSETS["STS12"]
    ]
    return "STS12", ScoredPairs(
        [text for part in parts for text in part.first],
        [text for part in parts for text in part.second],
        np.concatenate([part.gold for part in parts]),
    )
