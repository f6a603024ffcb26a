"""What `rivals` found, and the tables made of it."""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.flops import forward_flops
from benchmarks.results import Plot, Row, record
from benchmarks.rival_texts import Texts
from benchmarks.rival_ways import BASELINE
from benchmarks.timing import Timing, ratio

_STATE = ("MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "DECLUTR_KERNELS")


@dataclass
class Found:
    """What was found of a way, besides its speed."""

    computed_in: str
    """The dtype of its products; a way may choose another one than it was asked for."""
    cosines: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """With the baseline's vectors of all texts, `(n,)`."""
    spearman: float | None = None
    memory: dict[int, float] = field(default_factory=dict)
    """MiB by number of threads."""
    starts: list[float] = field(default_factory=list)
    """Seconds to the first vector; the first with nothing prepared."""


class RivalTables:
    """Records speeds by number of threads, and then all else.

    Args:
        args: of the command.
        model: the folder of the model.
        texts: by kind.
        quality: the name of what quality is measured on, if it is.
    """

    def __init__(
        self, args: argparse.Namespace, model: Path, texts: Mapping[str, Texts], quality: str
    ) -> None:
        self.found: dict[str, Found] = {}
        self._args, self._model, self._texts, self._quality = args, model, texts, quality
        self._config = json.loads((model / "config.json").read_text(encoding="utf-8"))

    def record_speed(
        self, threads: int, timings: Mapping[str, list[Timing]], peaks: Mapping[str, float]
    ) -> None:
        """Record how fast all ways embedded all kinds of texts.

        Args:
            threads: of each way.
            timings: of all ways by kind of texts, the baseline first.
            peaks: of the processor with so many threads, in gigaoperations a second, by dtype.
        """
        rows = [
            self._speed(kind, timing, each[0], peaks)
            for kind, each in timings.items()
            for timing in each
        ]
        name, title = f"rivals_{threads}", f"Texts embedded a second, {threads_of(threads)}"
        counts = ", ".join(f"{len(each.texts)} {kind}" for kind, each in self._texts.items())
        rates = ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in peaks.items())
        record(
            name,
            f"Embedding against rivals, {threads_of(threads)}",
            rows,
            note=(
                f"{counts} texts a round, in turns, each way in a process of its own that is held "
                f"to {threads} of the cores; {self._model.parent.name}/{self._model.name}, texts "
                "cut alike, all else as each library has it by default. Short: 5 to 15 words; "
                "mixed: 3 tokens to what the model takes, log-uniform (libraries that sort texts "
                "by length pad more the fewer there are); long: 200 to 900 words. "
                "The peak is what large products reach with the best kernel that torch has, here "
                f"in gigaoperations a second: {rates}. Of a model's operations those of tokens "
                f"count, not those of padding.{_state()}"
            ),
            settings={**self._settings(), "peaks": dict(peaks)},
            plots=[Plot(name, title, "bars", "texts", "texts/s", "way", BASELINE)],
            processor=self._args.processor,
        )

    def record_the_rest(self) -> None:
        """Record agreement, quality, memory and start-up."""
        record(
            "rivals_rest",
            "Rivals: agreement, quality, memory, start-up",
            [self._rest(name, found) for name, found in self.found.items()],
            note=(
                f"Cosines are with what {BASELINE} gives for the same text, over all short, mixed "
                "and long ones. Memory is the most that a process allocates, from the bare "
                "interpreter until it has embedded them all. Start-up is from the start of the "
                "process to its first vector, the median of all starts but the first, in turns; "
                "in the first one files are not in memory yet, and this package measures which "
                f"kernels to take.{_state()}"
            ),
            settings=self._settings(),
            processor=self._args.processor,
        )

    def _speed(self, kind: str, timing: Timing, first: Timing, peaks: Mapping[str, float]) -> Row:
        texts, computed_in = self._texts[kind], self.found[timing.name].computed_in
        config = self._config
        operations = forward_flops(
            config["num_hidden_layers"],
            config["hidden_size"],
            config["intermediate_size"],
            texts.lengths,
        )
        return {
            "texts": kind,
            "way": timing.name,
            "computed in": computed_in,
            "texts/s": len(texts.texts) / timing.median,
            f"speed, {BASELINE} = 1": str(ratio(first, timing)),
            "share of the peak, %": operations / timing.median / 1e7 / peaks[computed_in],
        }

    def _rest(self, name: str, found: Found) -> Row:
        quality = {f"Spearman, {self._quality}": found.spearman} if self._quality else {}
        return {
            "way": name,
            "computed in": found.computed_in,
            "lowest cosine": float(found.cosines.min()),
            "mean cosine": float(found.cosines.mean()),
            **quality,
            **{f"MiB, {threads_of(count)}": size for count, size in found.memory.items()},
            "start-up, s": statistics.median(found.starts[1:] or found.starts),
            "first start-up, s": found.starts[0],
        }

    def _settings(self) -> dict[str, Any]:
        state = {name: os.environ[name] for name in _STATE if name in os.environ}
        return {**vars(self._args), **state}


def threads_of(count: int) -> str:
    """The number of threads in words."""
    return f"{count} thread" + "s" * (count > 1)


def _state() -> str:
    """The settings of the environment that change which instructions are used, as a sentence."""
    found = [f"{name}={os.environ[name]}" for name in _STATE if name in os.environ]
    return f" Measured with {', '.join(found)}." if found else ""
