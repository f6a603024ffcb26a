"""Selection of the fastest among equivalent kernels on this processor.

torch computes float32 matrix products with MKL, which uses no more than AVX2 on processors that are
not Intel's. oneDNN, which torch includes as well, uses all instructions of a processor. Which one
is faster depends on the processor, the shape, the build of torch and the number of threads.
Therefore it is measured once, for up to some seconds, and stored in `kernels.json` of the cache
folder. The environment variable `DECLUTR_KERNELS=plain` selects torch's own kernels everywhere.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from declutr._version import __version__
from declutr.system.cache_folder import default_cache_dir
from declutr.system.files import json_object, locked, write_whole
from declutr.system.processors import processor_model, processor_name

logger = logging.getLogger(__name__)

VARIABLE = "DECLUTR_KERNELS"
"""The environment variable that switches the selection of kernels off."""
PLAIN = "plain"
"""The name of torch's own kernel, and the value of `VARIABLE` that selects it everywhere."""

_LEAST_GAIN = 1.03  # The speedup over the plain kernel below which the plain kernel is kept.

FILE_NAME = "kernels.json"
"""The name of the file with measured times in the cache folder."""
_TURNS, _LEAST_TURNS = 4, 2  # the minimum of timed turns, and the minimum if turns take long
# Measurements take at least _SHORT seconds, because other programs take the processor for some
# milliseconds at a time, which must not affect a result that is stored for good. No further turn
# begins after _LONG seconds, up to which kernels are timed whose times differ by less than _CLOSE.
_SHORT, _LONG = 0.1, 0.5
_CLOSE = 1.1
_PATIENCE = 60  # seconds to wait for other processes that measure
_HOPELESS = 8.0  # the multiple of the least time above which a kernel is not timed again

_DECIDING = (
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", VARIABLE),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
)

Ways = Mapping[str, Callable[[], object]]
"""Equivalent kernels by name, each as a function that runs it once."""


class KernelChoices:
    """The fastest kernel for each computation that this process has asked for.

    The answer for a computation never changes within a process. Processes that share a writable
    cache folder give the same answers, as do processes that have adopted the answers of another
    one (`adopt`).
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def quickest(self, question: str, ways: Callable[[], Ways]) -> str:
        """Return the name of the fastest kernel for a computation.

        # Parameters

        question : a description of the computation with its shape. With processor and number of
            threads it is the key of stored times, so that a new wording means a new measurement.
        ways : a function that returns the kernels, as in `kept_seconds`. `PLAIN` is among them, and
            is returned unless another one is at least 3 % faster.
        """
        if switched_off():
            return PLAIN
        asked = _with_threads(question)
        if asked not in self._taken:
            seconds = kept_seconds(question, ways)
            best = min(seconds, key=lambda name: seconds[name], default=PLAIN)
            gained = best != PLAIN and seconds[best] * _LEAST_GAIN <= seconds.get(PLAIN, 0.0)
            self._taken[asked] = best if gained else PLAIN
        return self._taken[asked]

    def taken(self) -> dict[str, str]:
        """Return the answers of this process by description and number of threads."""
        return dict(self._taken)

    def adopt(self, answers: Mapping[str, str], threads: int | None = None) -> None:
        """Use the answers of another process from now on.

        # Parameters

        answers : the result of `taken` in the other process.
        threads : the number of threads of the other process, if this process should use its answers
            with another number of threads.
        """
        theirs = f", {threads} threads"
        for asked, answer in answers.items():
            if threads is not None and asked.endswith(theirs):
                asked = _with_threads(asked.removesuffix(theirs))
            self._taken[asked] = answer

    def record(self) -> dict[str, Any]:
        """Return JSON values by which `resume` reproduces the computations of this process."""
        return {
            "release": f"declutr {__version__}",  # Another release may compute differently.
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "kernels": self.taken(),
        }

    def resume(self, record: Mapping[str, Any] | None) -> str | None:
        """Adopt the kernels of a run that is resumed.

        Kernels that were chosen by another release, on another processor, or for another number of
        threads are not adopted: they may be slow here, and would not give the same bits.

        # Parameters

        record : the result of `record` when the run began; `None` for a run of an early release.

        # Returns

        The reason why the run cannot be continued bit for bit, or `None` if it can.
        """
        if record is None:  # Releases before 1.8 always used torch's own kernels.
            return "it was begun by declutr 1.7 or before, which did not choose kernels"
        now = self.record()
        for what in ("release", "processor", "threads"):
            if record.get(what) != now[what]:
                return f"its {what} was {record.get(what, 'another')}, and is {now[what]} now"
        self.adopt(record["kernels"])
        return None

    def forget(self) -> None:
        """Drop the answers of this process, so that stored times are read again."""
        self._taken.clear()


CHOICES = KernelChoices()
"""The kernel choices of this process."""


def switched_off() -> bool:
    """Return whether the environment variable `DECLUTR_KERNELS` is `plain`.

    # Raises

    `ValueError` : if the variable has any other value.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in ("", PLAIN):
        raise ValueError(
            f"{VARIABLE}={value} in the environment is not understood. Set it to '{PLAIN}', which "
            "takes torch's own kernels everywhere, or leave it away, which takes the quickest."
        )
    return value == PLAIN


def processor() -> str:
    """Return a description of everything but threads on which measured times depend.

    It consists of the processor, the instructions in use, the release of torch, and settings.
    """
    said = [processor_name(), processor_model(), torch.backends.cpu.get_cpu_capability()]
    said.append(f"torch {torch.__version__}")
    said += [f"{name}={os.environ[name]}" for name in _DECIDING if os.environ.get(name)]
    if torch.get_float32_matmul_precision() != "highest":
        said.append(f"float32 products in {torch.get_float32_matmul_precision()} precision")
    return " ".join(said)


class _UsualDtype:
    """float32 as torch's default, which all threads share, until the last thread is done.

    Where it is float32 already, nothing is set: another thread may set it meanwhile, as
    transformers does while it loads a model in bfloat16.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._before = torch.float32

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = torch.get_default_dtype()
                if self._before != torch.float32:
                    torch.set_default_dtype(torch.float32)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._before != torch.float32:
                torch.set_default_dtype(self._before)


_USUAL_DTYPE = _UsualDtype()


@contextmanager
def usual_defaults() -> Iterator[None]:
    """Let models and measurements begin in float32 on the CPU, whatever torch's defaults are here.

    A program may have set others for its own tensors.
    """
    with _USUAL_DTYPE, usual_device():
        yield


def usual_device() -> AbstractContextManager[Any]:
    """Return a context in which this thread makes tensors on the CPU, whatever torch's default is.

    Unlike `usual_defaults`, it changes nothing that other threads see.
    """
    # Within a context of `torch.device`, all that is measured would take longer.
    usual = torch.empty(0).device.type == "cpu"
    return nullcontext() if usual else torch.device("cpu")


@usual_defaults()
def kept_seconds(question: str, ways: Callable[[], Ways]) -> dict[str, float]:
    """Return the least time in seconds of each kernel, measured once and then stored.

    # Parameters

    question : a description of the computation with its shape. With processor and number of threads
        it is the key of stored times.
    ways : a function that returns the kernels to time. It is called only if no times are stored,
        and must not draw random numbers. The function itself may call this one for another
        computation, but its kernels may not, because the file is locked while they are timed.

    # Returns

    The times by the name of the kernel, without kernels that raised.
    """
    asked = _with_threads(question)
    folder, machine = default_cache_dir(), processor()
    known = _read(folder).get(machine, {}).get(asked)
    if known is None:
        ready = ways()
        # Only one of several processes measures at a time, so that they do not disturb each other.
        with locked(folder / f"{FILE_NAME}.lock", _PATIENCE):
            everything = _read(folder)
            known = everything.get(machine, {}).get(asked)
            if known is None:
                took = least_seconds(ready)
                known = {name: took.get(name) for name in ready}
                if took:  # If all kernels raised, the next process should try again.
                    everything.setdefault(machine, {})[asked] = known
                    _write(folder, everything)
                told = ", ".join(f"{name} {1000 * each:.2f} ms" for name, each in took.items())
                logger.info("Measured on this processor: %s: %s.", asked, told)
    return {name: each for name, each in known.items() if each is not None}


def _with_threads(question: str) -> str:
    return f"{question}, {torch.get_num_threads()} threads"


def least_seconds(ways: Ways) -> dict[str, float]:
    """Return the least time in seconds of each kernel that does not raise.

    The kernels take turns, so that a disturbance of the processor affects all of them.
    """
    seconds: dict[str, float] = {}
    left = dict(ways)
    turn, began = 0, time.perf_counter()
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        while True:
            if turn == 1:  # The turn before is not timed, as libraries initialise in it.
                began = time.perf_counter()
            for name, way in list(left.items()):
                if seconds.get(name, 0.0) > _HOPELESS * min(seconds.values(), default=0.0):
                    continue
                start = time.perf_counter()
                try:
                    way()
                except (RuntimeError, NotImplementedError) as error:
                    logger.info("No way %s here: %s", name, error)
                    left.pop(name)
                    seconds.pop(name, None)
                    continue
                took = time.perf_counter() - start
                if turn:
                    seconds[name] = min(took, seconds.get(name, took))
            passed = time.perf_counter() - began
            enough = turn >= _TURNS and passed > _SHORT and not _is_close(seconds)
            if turn >= _LEAST_TURNS and (passed > _LONG or enough):
                return seconds
            turn += 1


def _is_close(seconds: Mapping[str, float]) -> bool:
    """Return whether the two least times are so near that noise could change their order."""
    fastest = sorted(seconds.values())[:2]
    return len(fastest) == 2 and fastest[1] < _CLOSE * fastest[0]


def _read(folder: Path) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the stored times by processor, computation and kernel."""
    known = json_object(folder / FILE_NAME)
    good = all(
        isinstance(part, dict) and all(isinstance(answer, dict) for answer in part.values())
        for part in known.values()
    )
    return known if good else {}


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    try:
        write_whole(folder / FILE_NAME, json.dumps(known, indent=1, sort_keys=True), shared=True)
    except OSError as error:
        logger.info("What is quickest here is not kept for the next start: %s", error)
