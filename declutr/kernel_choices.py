"""Which of several ways to compute the same thing is the quickest on this processor.

torch sends products of float32 to MKL, which on other processors than Intel's keeps to AVX2;
oneDNN, which torch brings too, uses all that a processor has. What wins depends on processor,
shape, build of torch and number of threads. So it is measured, once, for some milliseconds, and
kept in `kernels.json` of the cache folder. The environment variable `DECLUTR_KERNELS=plain`
switches all of this off.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from declutr.cache_folder import default_cache_dir

logger = logging.getLogger(__name__)

VARIABLE = "DECLUTR_KERNELS"
PLAIN = "plain"
"""What torch does by itself: the first of all ways."""

FILE_NAME = "kernels.json"
_GAIN = 1.1  # times as fast as the plain way; what is near to even must not depend on noise
_TURNS = 4  # at least
# Seconds: a program beside this one holds a processor for some milliseconds at a time, which must
# not decide what is kept for ever. And those after which no further turn begins.
_SHORT, _LONG = 0.1, 0.5
_HOPELESS = 8.0  # times as long as the quickest: it need not be known any better

Ways = Mapping[str, Callable[[], object]]


class KernelChoices:
    """The quickest way for each question that was asked, measured where nobody knows it yet.

    A process gives one answer to a question as long as it lives. Processes with the same cache
    folder give the same, and so do those that were told the answers of another (`adopt`).
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def quickest(self, question: str, ways: Callable[[], Ways]) -> str:
        """Return the name of the quickest way.

        # Parameters

        question : what is computed, with its shape; processor and threads are added.
        ways : makes what is to be timed, by name, `PLAIN` among them. It is called only if the
            answer is not known, and must not draw random numbers. A way that raises is left out.
        """
        if os.environ.get(VARIABLE) == PLAIN:
            return PLAIN
        asked = f"{question}, {torch.get_num_threads()} threads"
        if asked not in self._taken:
            self._taken[asked] = self._kept(asked, ways)
        return self._taken[asked]

    def taken(self) -> dict[str, str]:
        """Return the answers so far, by question and number of threads."""
        return dict(self._taken)

    def adopt(self, answers: Mapping[str, str]) -> None:
        """Give these answers from now on."""
        self._taken.update(answers)

    def record(self) -> dict[str, Any]:
        """Return what `resume` needs to compute as this process does: JSON values."""
        return {
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "kernels": self.taken(),
        }

    def resume(self, record: Mapping[str, Any] | None) -> str | None:
        """Take the kernels of a run that is resumed, and return why it cannot go on to the bit.

        Kernels that were chosen on another processor, or for another number of threads, are not
        taken: they may be slow on this one, and would not give the same bits.

        # Parameters

        record : of `record`; `None` of a run that was begun by a release without one.
        """
        if record is None:  # torch's own
            return "it was begun by declutr 1.7 or before, which did not choose kernels"
        now = self.record()
        for what in ("processor", "threads"):
            if record[what] != now[what]:
                return f"its {what} was {record[what]}, and is {now[what]} now"
        self.adopt(record["kernels"])
        return None

    @property
    def all_plain(self) -> bool:
        """Whether torch's own way was the answer to every question so far."""
        return set(self._taken.values()) <= {PLAIN}

    def forget(self) -> None:
        """Ask the file again, and the processor where the file says nothing."""
        self._taken.clear()

    @staticmethod
    def _kept(asked: str, ways: Callable[[], Ways]) -> str:
        folder, machine = default_cache_dir(), processor()
        answer = _read(folder).get(machine, {}).get(asked)
        if answer is not None:
            return answer
        with _locked(folder):  # of several processes one measures, undisturbed by the others
            known = _read(folder)
            answer = known.get(machine, {}).get(asked)
            if answer is None:
                answer = _measured(asked, ways())
                known.setdefault(machine, {})[asked] = answer
                _write(folder, known)
        return answer


CHOICES = KernelChoices()
"""Those of this process."""


@cache
def processor() -> str:
    """Return what a measurement holds for: processor, instructions in use, release of torch."""
    restricted = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
    said = [f"{name}={os.environ[name]}" for name in restricted if name in os.environ]
    has = torch.backends.cpu.get_cpu_capability()
    return " ".join([processor_name(), has, f"torch {torch.__version__}", *said])


def processor_name() -> str:
    """Return the name that the processor gives itself, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (named or [platform.processor() or platform.machine()])[0]


def least_seconds(ways: Ways) -> dict[str, float]:
    """Return the least seconds that each way takes, of turns by all of them.

    A way that raises is left out, and the log says so.
    """
    seconds: dict[str, float] = {}
    left = dict(ways)
    began = time.perf_counter()
    with torch.no_grad():
        for turn in count():
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
                if turn:  # in the first one libraries get ready
                    seconds[name] = min(took, seconds.get(name, took))
            passed = time.perf_counter() - began
            if turn and (passed > _LONG or (turn >= _TURNS and passed > _SHORT)):
                return seconds
    raise AssertionError("turns do not end")


def _measured(asked: str, ways: Ways) -> str:
    seconds = least_seconds(ways)
    best = min(seconds, key=lambda name: seconds[name])
    answer = best if seconds[best] * _GAIN <= seconds[PLAIN] else PLAIN
    told = ", ".join(f"{name} {1000 * took:.2f} ms" for name, took in seconds.items())
    logger.info("%s: %s. Taken on this processor: %s.", asked, told, answer)
    return answer


def _read(folder: Path) -> dict[str, dict[str, str]]:
    try:
        known = json.loads((folder / FILE_NAME).read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(known, dict) and all(isinstance(part, dict) for part in known.values())
    return known if good else {}


def _write(folder: Path, known: dict[str, dict[str, str]]) -> None:
    beside = folder / f"{FILE_NAME}.{os.getpid()}.new"
    try:
        beside.write_text(json.dumps(known, indent=1, sort_keys=True))
        os.replace(beside, folder / FILE_NAME)
    except OSError as error:
        logger.info("What is quickest here is not kept for the next start: %s", error)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{FILE_NAME}.lock")
        lock.acquire()
    except (OSError, NotImplementedError):  # a cache that may only be read, or cannot be locked
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
