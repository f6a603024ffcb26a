"""Findings on devices, processor, threads and settings of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from declutr.environment.findings import ERROR, OK, WARNING, Finding, first_line
from declutr.environment.probe import Answer

SECTION, SETTINGS = "Devices", "Settings"
KNOWN = {
    *("DECLUTR_BRIDGE", "DECLUTR_CACHE", "DECLUTR_KEEP_DTYPE", "DECLUTR_KERNELS"),
    *("DECLUTR_PLUGIN", "DECLUTR_SAFE", "DECLUTR_TRACEBACK", "DECLUTR_WORKERS"),
}
"""The environment variables that this package reads."""
_SWITCHES = ("DECLUTR_BRIDGE", "DECLUTR_KEEP_DTYPE", "DECLUTR_PLUGIN", "DECLUTR_TRACEBACK")
_DRIVER = Path("/proc/driver/nvidia/version")


def devices(answer: Answer) -> Iterator[Finding]:
    """Yield the GPUs that torch can use, with their memory and what they compute in."""
    if answer.value is None:
        error = answer.error or ""
        if "No module named 'torch'" in error:
            yield Finding(SECTION, "GPU", WARNING, "not examined without torch", "declutr setup")
            return
        said = f"torch cannot use its devices: {first_line(error)}"
        cure = "install a torch that fits the driver (https://pytorch.org/get-started/locally)"
        yield Finding(SECTION, "GPU", ERROR, said, cure)
        return
    found = answer.value
    for number, gpu in enumerate(found["gpus"]):
        said = (
            f"{gpu['name']}, {gpu['free'] / 2**30:.1f} of {gpu['total'] / 2**30:.1f} GiB free, "
            f"compute capability {gpu['capability']}, "
            f"{'' if gpu['bfloat16'] else 'no '}instructions for bfloat16"
        )
        level, cure = OK, ""
        if gpu["free"] < 2**30:
            level, cure = WARNING, "nvidia-smi shows which processes hold the memory"
        yield Finding(SECTION, f"cuda:{number}", level, said, cure or None, gpu)
    if found["gpus"]:
        return
    if found["mps"]:
        said = "Apple's GPU is not used; everything is computed on the CPU"
        yield Finding(SECTION, "GPU", OK, said, details=found)
    elif _DRIVER.exists() or shutil.which("nvidia-smi"):
        built = f"is built for CUDA {found['cuda']}" if found["cuda"] else "is built without CUDA"
        said = f"there is a driver of NVIDIA, but torch, which {built}, finds no GPU"
        cure = "compare nvidia-smi with the CUDA of torch, and look at CUDA_VISIBLE_DEVICES"
        yield Finding(SECTION, "GPU", WARNING, said, cure, found)
    else:
        yield Finding(SECTION, "GPU", OK, "none: everything is computed on the CPU", details=found)


def processor(answer: Answer) -> Iterator[Finding]:
    """Yield the processor, its instructions, and the threads and processes it is used with."""
    found: dict[str, Any] | None = answer.value
    if found is None:
        reason = answer.error or ""
        if reason.startswith("ValueError"):  # of a setting, which has its own finding
            reason = "a setting is not understood, see below"
        said = f"not examined: {first_line(reason)}"
        yield Finding(SECTION, "processor", WARNING, said, "correct the errors of this list first")
        return
    has = ", ".join(found["instructions"]) or "no known instruction sets"
    yield Finding(SECTION, "processor", OK, f"{found['name']}: {has}", details=found)
    fast = not {"avx512_bf16", "amx"}.isdisjoint(found["instructions"])
    integers = not {"vnni", "amx"}.isdisjoint(found["instructions"])
    native = [name for name, has_it in (("bfloat16", fast), ("int8", integers)) if has_it]
    said = f"instructions for {' and '.join(['float32', *native])} (--measure says what they gain)"
    yield Finding(SECTION, "number formats", OK, said)
    yield _threads(found)


def _threads(found: dict[str, Any]) -> Finding:
    quota = "no quota" if found["quota"] is None else f"a quota of {found['quota']:g}"
    said = (
        f"{found['threads']} for torch, {found['workers']} processes for tokenising; "
        f"{found['allowed']} of {found['processors']} processors ({found['cores']} cores), {quota}"
    )
    usable = found["allowed"] if found["quota"] is None else min(found["allowed"], found["quota"])
    if found["threads"] > max(1.0, usable + 0.99):
        cure = "unset OMP_NUM_THREADS and MKL_NUM_THREADS, or set them to the processors there are"
        return Finding(SECTION, "threads", WARNING, f"{said}: more threads than those", cure)
    return Finding(SECTION, "threads", OK, said)


def settings() -> Iterator[Finding]:
    """Yield the environment variables of this package that are set, and whether each is valid."""
    for name in sorted(name for name in os.environ if name.startswith("DECLUTR_")):
        value = os.environ[name]
        expected = _expected(name, value)
        if name not in KNOWN:
            cure = f"it may be misspelled; known are {', '.join(sorted(KNOWN))}"
            yield Finding(SETTINGS, name, WARNING, "no such setting is known", cure)
        elif expected is not None:
            said = f"{value!r} is not understood, expected {expected}"
            yield Finding(SETTINGS, name, ERROR, said, f"unset {name}, or correct it")
        else:
            yield Finding(SETTINGS, name, OK, repr(value))


def _expected(name: str, value: str) -> str | None:
    """Return what a variable expects if its value is not that."""
    if name in _SWITCHES and value not in ("", "0", "1"):
        return "0 or 1"
    if name == "DECLUTR_KERNELS" and value not in ("", "plain"):
        return "'plain'"
    if name == "DECLUTR_WORKERS" and value and not (value.isdecimal() and int(value) >= 1):
        return "a number of processes of at least 1"
    return None
