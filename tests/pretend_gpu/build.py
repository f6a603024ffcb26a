"""Compiles `hooks.cpp` once for each release of torch, and loads it before torch is imported."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("hooks.cpp")
COMPILED = Path(__file__).resolve().parents[2] / "build" / "pretend_gpu"
_ASKED = """
import json, torch
device = torch.version.cuda or torch.version.hip
print(json.dumps([device, torch._C._GLIBCXX_USE_CXX11_ABI]))
"""


class CannotBuild(RuntimeError):
    """There is no pretend GPU here: no C++ compiler, no headers, or a torch with CUDA."""


def build_hooks() -> Path:
    """The compiled hooks, made at the first call for this torch and this source.

    # Raises

    `CannotBuild` : with the reason.
    """
    version = importlib.metadata.version("torch")
    digest = hashlib.sha256(SOURCE.read_bytes() + version.encode()).hexdigest()[:12]
    library = COMPILED / f"hooks-{version}-{digest}.so"
    if library.exists():
        return library
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if compiler is None:
        raise CannotBuild("there is no C++ compiler.")
    answer = subprocess.run([sys.executable, "-c", _ASKED], capture_output=True, check=True)
    other, abi = json.loads(answer.stdout)
    if other is not None:
        raise CannotBuild(f"torch {version} has hooks of its own: it needs a build for CPUs.")
    root = _torch_folder()
    COMPILED.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(f".{os.getpid()}")  # another process may compile it as well
    command = [compiler, "-shared", "-fPIC", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(abi)}"]
    command += [f"-I{root / 'include'}", str(SOURCE), "-o", str(unfinished)]
    command += [f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{compiler} does not compile {SOURCE.name}:\n{done.stderr[-2000:]}")
    unfinished.replace(library)
    return library


def load_hooks() -> None:
    """Give this process its CUDA device, before torch is imported: torch asks for it once.

    # Raises

    `RuntimeError` : torch is imported already.
    """
    if "torch" in sys.modules:
        raise RuntimeError("The hooks of the pretend GPU must be loaded before torch is imported.")
    library = build_hooks()
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(_torch_folder() / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CannotBuild("torch is not installed.")
    return Path(spec.origin).parent
