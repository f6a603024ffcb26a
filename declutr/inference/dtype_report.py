"""A report of how fast this processor computes in each dtype, and of the dtypes chosen for it.

>>> print(as_table(dtype_report()))  # doctest: +SKIP
Intel(R) Xeon(R) Processor: avx2, avx512, vnni, avx512_bf16, amx
2 processors, no quota, 2 threads

work       dtype     instructions  GFLOP/s  times float32
embedding  float32   yes               310            1.0
embedding  bfloat16  yes              1490            4.8
...
Encoder(dtype="auto") computes in bfloat16: the processor has instructions for bfloat16.
"""

import logging
from typing import NamedTuple

import torch

from declutr.inference.open_text_model import chosen_dtype
from declutr.system import loggers_at
from declutr.system.kernel_choices import processor_name
from declutr.system.processors import cpu_quota, instructions, usable_processors
from declutr.transformer import dtype_speed
from declutr.transformer.dtype_speed import GAIN, TRAINING_FLOPS, has_bfloat16, training_seconds


class DtypeSpeed(NamedTuple):
    """The measured speed of a linear layer in one dtype.

    # Parameters

    work : `"embedding"`, the forward pass alone, or `"training"`, with the backward pass.
    dtype : `"float32"`, `"bfloat16"` or `"int8"`.
    native : whether the processor has instructions for this dtype.
    gflops : 10^9 floating-point operations a second, by all threads together.
    times : the speed relative to float32.
    """

    work: str
    dtype: str
    native: bool
    gflops: float
    times: float


class DtypeChoice(NamedTuple):
    """The dtype that a setting leads to on this processor.

    # Parameters

    setting : the setting, as a user writes it.
    chosen : the dtype that is computed in.
    why : the reason, as half a sentence.
    """

    setting: str
    chosen: str
    why: str


class DtypeReport(NamedTuple):
    """The result of `dtype_report`.

    # Parameters

    processor : the name of the processor.
    instructions : the instruction sets that it has, of `avx2`, `avx512`, `vnni`, `avx512_bf16` and
        `amx`.
    processors : the number of processors that this process can use.
    quota : the processor time that the container grants, in processors; `None` for no limit.
    threads : the number of threads that torch computes with.
    speeds : the speed of each kind of work in each dtype.
    choices : the dtypes that settings of `Encoder` and of training lead to.
    """

    processor: str
    instructions: tuple[str, ...]
    processors: int
    quota: float | None
    threads: int
    speeds: tuple[DtypeSpeed, ...]
    choices: tuple[DtypeChoice, ...]


def dtype_report() -> DtypeReport:
    """Return how fast a linear layer is in each dtype on this CPU, and which dtypes are chosen.

    The first call on a machine measures for some seconds; later calls return the measurements that
    were stored then (`declutr.system.kernel_choices`).

        report = dtype_report()
        {speed.dtype: speed.times for speed in report.speeds if speed.work == "embedding"}
    """
    has = instructions()
    embedding = _speeds("embedding", dtype_speed.dtype_seconds(), dtype_speed.FLOPS)
    training = _speeds("training", training_seconds(), TRAINING_FLOPS)
    choices = (*_of_encoder(embedding), _of_precision(training))
    machine = (processor_name(), has, usable_processors(), cpu_quota(), torch.get_num_threads())
    return DtypeReport(*machine, (*embedding, *training), choices)


def as_table(report: DtypeReport) -> str:
    """Return a report as a table for people to read, without a newline at the end."""
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


def _speeds(work: str, seconds: dict[str, float], flops: int) -> list[DtypeSpeed]:
    has = instructions()
    native = {"float32": True, "bfloat16": has_bfloat16(), "int8": "vnni" in has or "amx" in has}
    return [
        DtypeSpeed(work, dtype, native[dtype], flops / took / 1e9, seconds["float32"] / took)
        for dtype, took in seconds.items()
    ]


def _of_encoder(speeds: list[DtypeSpeed]) -> list[DtypeChoice]:
    found = {speed.dtype: speed for speed in speeds}
    choices = []
    # `chosen_dtype` warns that a dtype is slow when a model is opened; here the report says so.
    with loggers_at(logging.ERROR, "declutr.transformer.dtype_speed"):
        for dtype in ("auto", "bfloat16", "int8"):
            chosen = chosen_dtype(dtype, torch.device("cpu"))
            if dtype == "auto":
                has = "has" if has_bfloat16() else "has no"
                why = f"the processor {has} instructions for bfloat16"
                if has_bfloat16() and chosen != "bfloat16":
                    why += ", but gains nothing by them"
            elif dtype not in found:
                why = f"torch has no kernels for {dtype} here"
            elif chosen != dtype:
                why = f"{dtype} takes {1 / found[dtype].times:.1f} times as long"
            else:
                why = f"{found[dtype].times:.1f} times the speed of float32"
            choices.append(DtypeChoice(f'Encoder(dtype="{dtype}")', chosen, why))
    return choices


def _of_precision(speeds: list[DtypeSpeed]) -> DtypeChoice:
    times = max((speed.times for speed in speeds if speed.dtype == "bfloat16"), default=0.0)
    why = "so it is on every CPU, for the same weights everywhere"
    if times >= GAIN:
        why += f'; "bfloat16" would train linear layers {times:.1f} times as fast'
    return DtypeChoice('precision "auto"', "float32", why)
