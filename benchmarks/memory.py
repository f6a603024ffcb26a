"""Peak memory: of a function in a fresh process, and of a command with all its children (Linux)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
"""Where `benchmarks` can be imported from."""

INTERVAL = 0.03
"""Seconds between two looks at memory; a peak shorter than this may be missed."""


@dataclass(frozen=True)
class PeakMemory:
    """Bytes, of a process and its descendants together."""

    resident: int
    """Highest resident memory, pages of mapped files included."""

    private: int
    """Highest anonymous memory: what processes allocated themselves. Pages that they share after a
    fork count once."""

    private_before: int
    """Anonymous memory right before the call: interpreter and imported libraries."""

    cuda: int
    """Highest memory of tensors on the GPU, 0 without one."""


class Usage(NamedTuple):
    """Memory of a process tree in bytes; a page of several processes counts once."""

    resident: int = 0
    """Resident memory."""

    private: int = 0
    """Anonymous memory."""

    def highest(self, other: Usage) -> Usage:
        return Usage(max(self.resident, other.resident), max(self.private, other.private))


def in_fresh_process(
    function_path: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> tuple[Any, PeakMemory]:
    """Call a function in an interpreter of its own; return its result and its peak memory.

    Args:
        function_path: dotted path, such as "benchmarks.step.one_step". Its module is imported
            before memory is first looked at.
        kwargs: keyword arguments that JSON can hold. So must the result.
        environment: all of it; by default that of this process.

    Raises:
        RuntimeError: if the function failed; its traceback has gone to standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        request, begun, answer = (Path(folder, name) for name in ("request", "begun", "answer"))
        request.write_text(json.dumps({"function": function_path, "kwargs": dict(kwargs or {})}))
        command = [sys.executable, "-m", "benchmarks.memory", folder]
        process = subprocess.Popen(command, cwd=ROOT, env=_copied(environment))
        # From outside, for a thread inside would take time from what is measured there.
        peak = _watched(process, INTERVAL, begun)
        if process.returncode:
            raise RuntimeError(
                f"{function_path} failed in its own process, exit status {process.returncode}; the "
                "traceback stands above. A status of -9 means that it ran out of memory."
            )
        told = json.loads(answer.read_text(encoding="utf-8"))
    seen = peak.highest(Usage(told["resident"], max(told["before"], told["after"])))
    memory = PeakMemory(seen.resident, seen.private, told["before"], told["cuda"])
    return told["result"], memory


def run_and_watch(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> Usage:
    """Run a command to its end; return the highest memory of it and its descendants together.

    Args:
        command: as for `subprocess.Popen`.
        environment: all of it; by default that of this process.
        log: a file for its output; by default it is dropped.

    Raises:
        RuntimeError: if it fails, with the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(log) if log is not None else Path(folder, "log")
        with path.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=_copied(environment),
            )
            peak = _watched(process, INTERVAL)
        if process.returncode:
            end = path.read_text(encoding="utf-8", errors="replace")[-3000:]
            raise RuntimeError(
                f"{' '.join(command)} failed with exit status {process.returncode}:\n{end}"
            )
    return peak


def _copied(environment: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if environment is None else dict(environment)


def _watched(process: subprocess.Popen, interval: float, begun: Path | None = None) -> Usage:
    """Wait for the process; the highest memory of its tree, from when the file `begun` is there."""
    peak = Usage()
    try:
        while True:
            try:
                process.wait(interval)
                return peak
            except subprocess.TimeoutExpired:
                if begun is None or begun.exists():
                    peak = peak.highest(usage(process_tree(process.pid)))
    finally:
        if process.poll() is None:  # interrupted
            process.kill()
            process.wait()


def process_tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    tree = [pid]
    for known in tree:  # grows while it is walked
        tree += children.get(known, [])
    return tree


def usage(pids: Iterable[int]) -> Usage:
    """Memory of processes together; those that are gone count nothing."""
    seen = [sizes_in(f"/proc/{pid}/smaps_rollup") for pid in pids]
    return Usage(
        sum(sizes.get("Pss", 0) for sizes in seen),
        sum(sizes.get("Pss_Anon", 0) for sizes in seen),
    )


def _parent(entry: Path) -> int | None:
    try:
        # "pid (name) state parent ...", and the name may hold anything.
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def sizes_in(file: str) -> dict[str, int]:
    """The lines "name: number kB" of a file of the kernel, in bytes; nothing if it is gone."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {key: int(value.split()[0]) * 1024 for key, _, value in fields if value.endswith(" kB")}


def _serve(folder: Path) -> None:
    """The child of `in_fresh_process`."""
    request = json.loads((folder / "request").read_text(encoding="utf-8"))
    module, _, name = request["function"].rpartition(".")
    function = getattr(import_module(module), name)
    before = sizes_in("/proc/self/status")["RssAnon"]
    (folder / "begun").touch()
    result = function(**request["kwargs"])
    status = sizes_in("/proc/self/status")
    torch = sys.modules.get("torch")
    on_gpu = torch is not None and torch.cuda.is_available()
    told = {
        "result": result,
        # Not ru_maxrss: Linux lets that begin at what the *parent* had when it forked.
        "resident": status["VmHWM"],
        "before": before,
        "after": status["RssAnon"],
        "cuda": int(torch.cuda.max_memory_allocated()) if torch is not None and on_gpu else 0,
    }
    (folder / "answer").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
