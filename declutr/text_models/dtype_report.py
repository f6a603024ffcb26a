"""What each dtype gives on this processor, measured, and what is chosen here.

>>> print(as_table(dtype_report()))  # doctest: +SKIP
Intel(R) Xeon(R) Processor: avx2, avx512, vnni, avx512_bf16, amx
2 processors, no quota, 2 threads

work       dtype     instructions  GFLOP/s  times float32
embedding  float32   yes               310            1.0
embedding  bfloat16  yes              1490            4.8
...
Encoder(dtype="auto") computes in bfloat16: the processor has instructions for bfloat16.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

import torch

from declutr.kernel_choices import least_seconds, processor_name
from declutr.linear_products import QuickProducts
from declutr.processors import cpu_quota, usable_processors
from declutr.quiet_loggers import loggers_at
from declutr.text_models.devices import chosen_dtype
from declutr.text_models.dtype_speed import measured
from declutr.training_speed import FEATURES, FLOPS, ROWS, has_bfloat16, training_seconds

_CPU = torch.device("cpu")
_INSTRUCTIONS = {
    "avx2": ("_is_avx2_supported",),
    "avx512": ("_is_avx512_supported",),
    "vnni": ("_is_vnni_supported", "_is_avx512_vnni_supported"),
    "avx512_bf16": ("_is_avx512_bf16_supported",),
    "amx": ("_is_amx_tile_supported",),
}
_GAIN = 1.1  # times as fast; less is noise


class DtypeSpeed(NamedTuple):
    """A linear layer in one dtype.

    # Parameters

    work : `"embedding"`, its forward pass alone, or `"training"`, with the backward pass.
    dtype : `"float32"`, `"bfloat16"` or `"int8"`.
    native : whether the processor has instructions for it.
    gflops : 10^9 operations a second, by all threads together.
    times : how many times as fast as in float32.
    """

    work: str
    dtype: str
    native: bool
    gflops: float
    times: float


class DtypeChoice(NamedTuple):
    """What becomes of a setting on this processor: `setting`, the dtype `chosen`, and `why`."""

    setting: str
    chosen: str
    why: str


class DtypeReport(NamedTuple):
    """What `dtype_report` finds.

    # Parameters

    processor : its name.
    instructions : those of `avx2`, `avx512`, `vnni`, `avx512_bf16` and `amx` that it has.
    processors : how many this process can use.
    quota : processor time that the container grants, in processors; `None` if there is no limit.
    threads : that torch computes with.
    """

    processor: str
    instructions: tuple[str, ...]
    processors: int
    quota: float | None
    threads: int
    speeds: tuple[DtypeSpeed, ...]
    choices: tuple[DtypeChoice, ...]


def dtype_report() -> DtypeReport:
    """Measure a linear layer in every dtype on this CPU; it takes about a second.

    report = dtype_report()
    {speed.dtype: speed.times for speed in report.speeds if speed.work == "embedding"}
    """
    has = tuple(
        name
        for name, questions in _INSTRUCTIONS.items()
        if any(getattr(torch.cpu, question, bool)() for question in questions)
    )
    native = {"float32": True, "bfloat16": has_bfloat16(), "int8": "vnni" in has or "amx" in has}
    speeds = (*_of_embedding(native), *_of_training(native))
    return DtypeReport(
        processor_name(),
        has,
        usable_processors(),
        cpu_quota(),
        torch.get_num_threads(),
        speeds,
        (*_of_encoder(speeds), _of_precision(speeds)),
    )


def as_table(report: DtypeReport) -> str:
    """Return the report as lines of text."""
    quota = "no quota" if report.quota is None else f"a quota of {report.quota:g}"
    lines = [
        f"{report.processor}: {', '.join(report.instructions) or 'no known instruction sets'}",
        f"{report.processors} processors, {quota}, {report.threads} threads",
        "",
        f"{'work':<11}{'dtype':<10}{'instructions':<14}{'GFLOP/s':>7}  times float32",
    ]
    for speed in report.speeds:
        native = "yes" if speed.native else "no"
        start = f"{speed.work:<11}{speed.dtype:<10}{native:<14}"
        lines.append(f"{start}{speed.gflops:>7.0f}  {speed.times:>13.1f}")
    lines.append("")
    lines += [f"{setting} computes in {chosen}: {why}." for setting, chosen, why in report.choices]
    return "\n".join(lines)


def _of_embedding(native: dict[str, bool]) -> list[DtypeSpeed]:
    weight, rows = torch.full((FEATURES, FEATURES), 0.01), torch.full((ROWS, FEATURES), 0.01)
    with torch.inference_mode(), QuickProducts():
        layer = partial(torch.nn.functional.linear, rows, weight)
        seconds = least_seconds({"float32": layer})["float32"]
    gflops = FLOPS / 3 / seconds / 1e9  # one product of three
    speeds = [DtypeSpeed("embedding", "float32", True, gflops, 1.0)]
    for dtype in ("bfloat16", "int8"):
        state = ("for a report", torch.get_num_threads(), torch.backends.mkldnn.enabled)
        took, in_float32 = measured(dtype, *state)
        times = in_float32 / took
        speeds.append(DtypeSpeed("embedding", dtype, native[dtype], gflops * times, times))
    return speeds


def _of_training(native: dict[str, bool]) -> list[DtypeSpeed]:
    seconds = training_seconds(anew=True)
    return [
        DtypeSpeed("training", dtype, native[dtype], FLOPS / took / 1e9, seconds["float32"] / took)
        for dtype, took in seconds.items()
    ]


def _of_encoder(speeds: tuple[DtypeSpeed, ...]) -> list[DtypeChoice]:
    found = {speed.dtype: speed for speed in speeds if speed.work == "embedding"}
    choices = []
    # What would be a warning when a model is opened is an answer here.
    with loggers_at(logging.ERROR, "declutr.text_models.dtype_speed"):
        for dtype in ("auto", "bfloat16", "int8"):
            chosen = chosen_dtype(dtype, _CPU)
            if dtype == "auto":
                has = "has" if found["bfloat16"].native else "has no"
                why = f"the processor {has} instructions for bfloat16"
                if found["bfloat16"].native and chosen != "bfloat16":
                    why += ", but gains nothing by them"
            elif chosen != dtype:
                why = f"{dtype} takes {1 / found[dtype].times:.1f} times as long"
            else:
                why = f"{found[dtype].times:.1f} times the speed of float32"
            choices.append(DtypeChoice(f'Encoder(dtype="{dtype}")', chosen, why))
    return choices


def _of_precision(speeds: tuple[DtypeSpeed, ...]) -> DtypeChoice:
    (times,) = (s.times for s in speeds if (s.work, s.dtype) == ("training", "bfloat16"))
    why = "so it is on every CPU, for the same weights everywhere"
    if times >= _GAIN:
        why += f'; "bfloat16" would train linear layers {times:.1f} times as fast'
    return DtypeChoice('precision "auto"', "float32", why)
