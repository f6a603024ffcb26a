"""`timed_worker` from outside: starts it, asks it, and looks at its memory."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import timed_worker
from benchmarks.memory import INTERVAL, Usage, usage

STEP = "step"
"""The kind of texts that a training step is timed with, which looks at none."""

STEP_TEXTS = {STEP: ["one call"]}
"""What the file of texts has of that kind."""


class TimedProcess:
    """What `timed_worker` opens, in a process of its own.

    Args:
        settings: of `timed_worker.serve`.
        path: folders that Python looks for packages in before all others.
        folder: where the process runs, and writes its log.
        watch: look at memory, which costs the process some time.

    Raises:
        RuntimeError: if the process ends early, with the end of its log.
        ValueError: if it took this package from another place than `path` says.
    """

    def __init__(
        self, settings: Mapping[str, Any], path: Sequence[Path], folder: Path, watch: bool = False
    ) -> None:
        self._watch, self._peak = watch, Usage()
        descriptor, log_file = tempfile.mkstemp(".log", dir=folder)
        self._log = Path(log_file)
        start = time.perf_counter()
        with open(descriptor, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, timed_worker.__file__, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,  # what has been read ahead would be hidden from `select`
                cwd=folder,
                env=_environment(settings["threads"], path, folder),
            )
        self._answer()
        self._begun = usage([self._process.pid]).private if watch else 0
        self.told = self._answer()
        """What the process told of what it opened."""
        self.seconds_to_first = time.perf_counter() - start
        """From the start of the process until it has done its task once."""
        found = self.told.get("at")
        if found is not None and Path(found).parent != path[0]:
            self.close()
            raise ValueError(f"declutr was imported from {found}, expected it from {path[0]}.")

    def seconds(self, kind: str, save: Path | None = None, size: int | None = None) -> float:
        """Embed all texts of a kind, or take a step; the seconds of that, without saving.

        Args:
            kind: of the texts.
            save: a file for the vectors of the last call.
            size: texts of a call; by default there is one call.
        """
        question = {"kind": kind, "save": None if save is None else str(save), "size": size}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        return float(self._answer()["seconds"])

    @property
    def peak(self) -> int:
        """Highest private memory so far beyond that of the bare interpreter, in bytes."""
        return self._peak.highest(usage([self._process.pid])).private - self._begun

    def stop_watching(self) -> int:
        """Look at memory no more, and return `peak`."""
        self._watch = False
        return self._peak.private - self._begun

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        while self._watch and not select.select([stream], [], [], INTERVAL)[0]:
            self._peak = self._peak.highest(usage([self._process.pid]))
        line = stream.readline()
        if line:
            return json.loads(line)
        status, log = self._process.wait(), self._log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(
            f"A process that is timed ended with exit status {status}:\n{log[-3000:]}"
        )


def _environment(threads: int, path: Sequence[Path], folder: Path) -> dict[str, str]:
    """That of this process, with the number of threads of every library."""
    known = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        **{f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS", "RAYON")},
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        "PYTHONPATH": os.pathsep.join([*map(str, path), *([known] if known else [])]),
        "DECLUTR_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",  # a start-up is not to wait for a hub
    }
