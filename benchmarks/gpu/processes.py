"""One call of `python -m benchmarks gpu`: what is installed, and a process for each part."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import END_SECONDS, limit
from benchmarks.memory import ROOT

MODULES = (
    *("torch", "transformers", "allennlp", "pytorch_metric_learning", "_jsonnet"),
    *("numpy", "scipy", "sklearn", "pyarrow", "h5py", "safetensors", "xxhash"),
    *("huggingface_hub", "filelock", "fsspec", "cached_path", "base58", "more_itertools"),
    *("tensorboardX", "termcolor", "tqdm", "pytest"),
)
"""What nothing can be measured without, and nothing stands in for."""

_ERRORS = 20_000  # characters of what a process said that are kept


class Call:
    """Runs parts one after the other, each within its share of the time.

    The process of the next part is started while one runs, and imports meanwhile: some seconds of
    one core, which a GPU's minutes would otherwise be spent on. It touches no device before its
    turn.

    Args:
        work: an empty folder for everything that is made.
        device: "cuda" or "cpu".
        tiny: sizes of a rehearsal.
        seconds: for all of it.
        wheels: a folder of wheels to install into `work`.
        repository: a checkout whose package and recipes are measured instead of this one's.

    Raises:
        FileNotFoundError: without wheels in `wheels`, or a package in `repository`.
        RuntimeError: if pip could not install the wheels, if a module is missing, or if a GPU is
            asked for and there is none.
    """

    def __init__(
        self,
        work: Path,
        *,
        device: str,
        tiny: bool,
        seconds: float,
        wheels: str | None = None,
        repository: str | None = None,
    ) -> None:
        self._end = time.monotonic() + seconds
        self._work = work
        self._settings = {"device": device, "tiny": tiny, "work": str(work)}
        self._repository = repository
        if device == "cuda":
            _require_gpu()
        self._root = ROOT if repository is None else linked(Path(repository), work / "measured")
        paths = [str(self._root), os.environ.get("PYTHONPATH", "")]
        if wheels is not None:
            paths.insert(1, str(install(Path(wheels), work / "site")))
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "TOKENIZERS_PARALLELISM": "false",
            "DECLUTR_CACHE": str(work / "cache"),
        }
        require_modules(MODULES, self._environment)

    def take_parts(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """All findings so far, after each part."""
        found: dict[str, Any] = {
            "settings": {**self._settings, "repository": self._repository is not None},
            "parts": {},
        }
        waiting = self._start(names[0]) if names else None
        try:
            for number, name in enumerate(names):
                process, following = waiting, names[number + 1 :]
                waiting = self._start(following[0]) if following else None
                assert process is not None
                found["parts"][name] = self._finish(name, following, process)
                yield found
        finally:
            if waiting is not None:
                _kill(waiting)

    def errors(self) -> str:
        """The ends of what the processes wrote to standard error."""
        names = sorted(file.stem for file in self._work.glob("*.err"))
        return "".join(f"==== {name}\n{self._errors_of(name)}" for name in names)

    def _errors_of(self, name: str) -> str:
        return (self._work / f"{name}.err").read_text(errors="replace")[-_ERRORS:]

    def _start(self, name: str) -> subprocess.Popen:
        with (self._work / f"{name}.err").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu.worker", name, str(self._work)],
                stdin=subprocess.PIPE,
                stderr=errors,
                cwd=self._root,
                env=self._environment,
                text=True,
                start_new_session=True,  # so that its children end with it
            )

    def _wait_for(self, process: subprocess.Popen, ready: Path) -> None:
        """Imports of the first part are of no part's time."""
        while not ready.exists() and process.poll() is None and time.monotonic() < self._end:
            time.sleep(0.05)

    def _finish(
        self, name: str, following: Sequence[str], process: subprocess.Popen
    ) -> dict[str, Any]:
        """Let a waiting process do its part; what it found."""
        self._wait_for(process, self._work / f"{name}.ready")
        left = self._end - time.monotonic() - END_SECONDS
        seconds = limit(name, following, left)
        print(f"== {name}: at most {seconds:.0f} s", flush=True)
        began = time.monotonic()
        file = self._work / f"{name}.json"
        # The clock is the same in all processes of a machine.
        told = json.dumps({**self._settings, "file": str(file), "end": began + seconds})
        status: int | str
        try:
            # It stops by itself between two checks; this is for one that hangs.
            process.communicate(told, timeout=seconds + 2)
            status = process.returncode
        except subprocess.TimeoutExpired:
            status = "out of time"
        finally:
            _kill(process)
        found = json.loads(file.read_text()) if file.exists() else {"checks": []}
        if status:
            lines = self._errors_of(name).strip().splitlines() or ["no words"]
            why = str(status) if isinstance(status, str) else f"status {status}: {lines[-1]}"
            found["checks"].append({"check": name, "failed": why})
            print(f"{name}: {why}", flush=True)
        took = round(time.monotonic() - began, 1)
        print(f"== {name}: {took} s", flush=True)
        return {**found, "status": status, "seconds": took, "limit": round(seconds, 1)}


def install(wheels: Path, folder: Path) -> Path:
    """Install wheels into a folder of their own, without a registry and what they need."""
    files = sorted(map(str, wheels.resolve().glob("*.whl")))
    if not files:
        raise FileNotFoundError(f"--wheels {wheels}: expected a folder with .whl files.")
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *files],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"pip could not install the wheels of {wheels}:\n{done.stderr[-2000:]}")
    return folder


def require_modules(names: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise a `RuntimeError` that names those a Python in this environment does not find."""
    code = (
        "import importlib.util, sys; "
        "print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n) is None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        env={**environment},
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stdout.split():
        version = ".".join(map(str, sys.version_info[:2]))
        raise RuntimeError(
            f"Not installed here: {done.stdout.strip()}. Nothing was measured. On a machine with a "
            "registry, `pip download --no-deps --only-binary=:all: --python-version "
            f"{version} --dest WHEELS NAMES` gets their wheels for --wheels WHEELS."
        )


def linked(repository: Path, folder: Path) -> Path:
    """A folder with the package and recipes of a checkout, and benchmarks and tests of this one."""
    if not (repository / "declutr").is_dir():
        raise FileNotFoundError(f"--repository {repository}: expected a checkout with declutr/.")
    folder.mkdir()
    for name in ("declutr", "training_config"):
        (folder / name).symlink_to(repository.resolve() / name)
    for name in ("benchmarks", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _require_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            "torch sees no CUDA device here, so nothing was measured. `python -m benchmarks gpu "
            "--dry` rehearses on the CPU."
        )


def _kill(process: subprocess.Popen) -> None:
    """A process and its children, finished or not."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
