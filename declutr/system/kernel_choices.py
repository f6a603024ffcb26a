"""The quickest of several ways to compute the same thing on this processor.

torch sends products of float32 to MKL, which on other processors than Intel's keeps to AVX2;
oneDNN, which torch brings too, uses all that a processor has. What wins depends on processor,
shape, build of torch and number of threads. So it is measured, once, for some milliseconds, and
kept in `kernels.json` of the cache folder. The environment variable `DECLUTR_KERNELS=plain` takes
torch's own way everywhere.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from declutr._version import __version__
from declutr.system.files import default_cache_dir, write_whole
from declutr.system.processors import processor_model, processor_name

logger = logging.getLogger(__name__)

VARIABLE = "DECLUTR_KERNELS"
PLAIN = "plain"
"""What torch does by itself: the first of all ways."""

GAIN = 1.1
"""Times as fast as the plain way: less is not told from noise, and is no reason to change."""

FILE_NAME = "kernels.json"
_TURNS, _LEAST_TURNS = 4, 2  # timed ones at least; and where each takes long
# Measure for at least _SHORT seconds, since other programs take the processor for some milliseconds
# at a time, which must not decide what is kept for ever; begin no further turn after _LONG.
_SHORT, _LONG = 0.1, 0.5
_PATIENCE = 60  # seconds for others that measure
_HOPELESS = 8.0  # times as long as the quickest: it need not be known any better

_DECIDING = (
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", VARIABLE),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
)

Ways = Mapping[str, Callable[[], object]]
"""What is to be timed, by name."""


class KernelChoices:
    """The quickest way for each question that was asked, measured where nobody knows it yet.

    A process gives one answer to a question as long as it lives. Processes with the same cache
    folder give the same if that can be written, and so do those that were told the answers of
    another (`adopt`).
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def quickest(self, question: str, ways: Callable[[], Ways]) -> str:
        """Return the name of the quickest way.

        # Parameters

        question : what is computed, with its shape; processor and threads are added. It is the key
            in the file: in other words, it is another question.
        ways : as of `kept_seconds`, `PLAIN` among them. What is near to it stays plain.
        """
        if switched_off():
            return PLAIN
        asked = _with_threads(question)
        if asked not in self._taken:
            seconds = kept_seconds(question, ways)
            best = min(seconds, key=lambda name: seconds[name], default=PLAIN)
            gained = best != PLAIN and seconds[best] * GAIN <= seconds.get(PLAIN, 0.0)
            self._taken[asked] = best if gained else PLAIN
        return self._taken[asked]

    def taken(self) -> dict[str, str]:
        """Return the answers so far, by question and number of threads."""
        return dict(self._taken)

    def adopt(self, answers: Mapping[str, str], threads: int | None = None) -> None:
        """Give these answers of `taken` from now on.

        `threads` is the number of the process that gave them, if this one has another.
        """
        theirs = f", {threads} threads"
        for asked, answer in answers.items():
            if threads is not None and asked.endswith(theirs):
                asked = _with_threads(asked.removesuffix(theirs))
            self._taken[asked] = answer

    def record(self) -> dict[str, Any]:
        """Return what `resume` needs to compute as this process does, as JSON values."""
        return {
            "release": f"declutr {__version__}",  # which may compute other things in other ways
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "kernels": self.taken(),
        }

    def resume(self, record: Mapping[str, Any] | None) -> str | None:
        """Take the kernels of a `record` of a resumed run; return why it cannot go on to the bit.

        Kernels that were chosen on another processor, or for another number of threads, are not
        taken: they may be slow on this one, and would not give the same bits.
        """
        if record is None:  # releases before 1.8 always took torch's own kernels
            return "it was begun by declutr 1.7 or before, which did not choose kernels"
        now = self.record()
        for what in ("release", "processor", "threads"):
            if record.get(what) != now[what]:
                return f"its {what} was {record.get(what, 'another')}, and is {now[what]} now"
        self.adopt(record["kernels"])
        return None

    def forget(self) -> None:
        """Drop the answers of this process: the next question goes to the file again."""
        self._taken.clear()


CHOICES = KernelChoices()
"""The choices of this process."""


def switched_off() -> bool:
    """Return whether `DECLUTR_KERNELS=plain` is in the environment.

    # Raises

    `ValueError` : another value than that.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in ("", PLAIN):
        raise ValueError(
            f"{VARIABLE}={value} in the environment is not understood. Set it to '{PLAIN}', which "
            "takes torch's own kernels everywhere, or leave it away, which takes the quickest."
        )
    return value == PLAIN


def processor() -> str:
    """Return what a measurement holds for: processor, instructions in use, release of torch."""
    said = [processor_name(), processor_model(), torch.backends.cpu.get_cpu_capability()]
    said.append(f"torch {torch.__version__}")
    said += [f"{name}={os.environ[name]}" for name in _DECIDING if os.environ.get(name)]
    if torch.get_float32_matmul_precision() != "highest":
        said.append(f"float32 products in {torch.get_float32_matmul_precision()} precision")
    return " ".join(said)


def kept_seconds(question: str, ways: Callable[[], Ways]) -> dict[str, float]:
    """Return the least seconds of each way, measured once for a processor and number of threads.

    # Parameters

    question : what is computed, with its shape; processor and threads are added.
    ways : makes what is to be timed; it is called only if the answer is not known, and must not
        draw random numbers. It may ask other questions itself, its ways may not: a file is locked
        while they are timed. A way that raises is left out.
    """
    asked = _with_threads(question)
    folder, machine = default_cache_dir(), processor()
    known = _read(folder).get(machine, {}).get(asked)
    if known is None:
        ready = ways()
        with _locked(folder):  # of several processes one measures, undisturbed by the others
            everything = _read(folder)
            known = everything.get(machine, {}).get(asked)
            if known is None:
                took = least_seconds(ready)
                known = {name: took.get(name) for name in ready}
                if took:  # that none worked at all is not for ever
                    everything.setdefault(machine, {})[asked] = known
                    _write(folder, everything)
                told = ", ".join(f"{name} {1000 * each:.2f} ms" for name, each in took.items())
                logger.info("Measured on this processor: %s: %s.", asked, told)
    return {name: each for name, each in known.items() if each is not None}


def _with_threads(question: str) -> str:
    return f"{question}, {torch.get_num_threads()} threads"


def least_seconds(ways: Ways) -> dict[str, float]:
    """Return the least seconds of each way, of turns by all of them, but for those that raise."""
    seconds: dict[str, float] = {}
    left = dict(ways)
    turn, began = 0, time.perf_counter()
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        while True:
            if turn == 1:  # in the first one libraries get ready
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
            if turn >= _LEAST_TURNS and (passed > _LONG or (turn >= _TURNS and passed > _SHORT)):
                return seconds
            turn += 1


def _read(folder: Path) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the seconds of each way, by question, by processor."""
    try:
        known = json.loads((folder / FILE_NAME).read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(known, dict) and all(
        isinstance(part, dict) and all(isinstance(answer, dict) for answer in part.values())
        for part in known.values()
    )
    return known if good else {}


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    try:
        write_whole(folder / FILE_NAME, json.dumps(known, indent=1, sort_keys=True), shared=True)
    except OSError as error:
        logger.info("What is quickest here is not kept for the next start: %s", error)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / f"{FILE_NAME}.lock")
    # A cache that may only be read, or cannot be locked; or others take too long: each for itself.
    with suppress(OSError, NotImplementedError):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=_PATIENCE)
    try:
        yield
    finally:
        lock.release()
