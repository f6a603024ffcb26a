"""The ways to embed that `rivals` compares, and what of them can be had here."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import rival_onnx
from benchmarks.machine import release_of
from benchmarks.memory import ROOT

BASELINE = "sentence-transformers"


@dataclass(frozen=True)
class Way:
    """A library with its settings."""

    library: str
    """A key of `timed_worker.OPENERS`."""
    dtype: str
    """Of its products."""
    path: tuple[Path, ...] = ()
    """Where Python looks for packages before all other places."""
    file: str = ""
    """Its model, inside the folder of exported models."""

    def settings(self, model: Path, onnx: Path, dimension: int) -> dict[str, Any]:
        """What `timed_worker.serve` needs to know, without texts and threads."""
        return {
            "what": self.library,
            "dtype": self.dtype,
            "model": str(model),
            "onnx": str(onnx),
            "file": self.file,
            "dimension": dimension,
        }


def ways_of(args: argparse.Namespace, model: Path, onnx: Path, max_length: int) -> dict[str, Way]:
    """By name, the baseline first; a package that is missing is told of, with what to install.

    Args:
        args: `optimum` and `fastembed` (folders, or None), `earlier` (a checkout, or None).
        model: a folder that sentence-transformers opens.
        onnx: where the ONNX models are written.
        max_length: tokens of a text.
    """
    ways = {BASELINE: Way("sentence-transformers", "float32")}
    if args.earlier is not None:
        checkout = Path(args.earlier).resolve()
        for dtype in ("float32", "int8"):
            ways[f"declutr {release_of(checkout)} {dtype}"] = Way("declutr", dtype, (checkout,))
    if has_package("optimum", args.optimum):
        path = path_of(args.optimum)
        float32, int8 = _write_onnx(path, model, onnx, max_length)
        ways[f"{BASELINE}, ONNX"] = Way("sentence-transformers onnx", "float32", path, float32)
        if has_package("fastembed", args.fastembed):
            ways["fastembed"] = Way("fastembed", "float32", path_of(args.fastembed), float32)
        if Path(onnx, rival_onnx.OPENVINO).is_file():
            for dtype in ("float32", "auto"):
                name = f"{BASELINE}, OpenVINO{' float32' if dtype == 'float32' else ''}"
                library = "sentence-transformers openvino"
                ways[name] = Way(library, dtype, path, rival_onnx.OPENVINO)
        ways[f"{BASELINE}, ONNX int8"] = Way("sentence-transformers onnx", "int8", path, int8)
    for dtype in ("float32", "bfloat16", "int8"):
        ways[f"declutr {dtype}"] = Way("declutr", dtype, (ROOT,))
    return ways


def has_package(package: str, folder: str | None) -> bool:
    """Whether a package can be imported, here or from a folder; if not, it is told of."""
    if folder is not None:
        if not Path(folder, package).is_dir():
            raise FileNotFoundError(
                f"--{package} {folder}: expected a folder with {package} in it."
            )
        return True
    if importlib.util.find_spec(package) is None:
        print(
            f"Left out what needs {package}, which is not installed. Where this "
            f"environment cannot hold it: pip install --target FOLDER, and --{package} FOLDER."
        )
        return False
    return True


def path_of(folder: str | None) -> tuple[Path, ...]:
    """Where Python has to look first to find a package in that folder."""
    return () if folder is None else (Path(folder).resolve(),)


def _write_onnx(
    path: tuple[Path, ...], model: Path, onnx: Path, max_length: int
) -> tuple[str, str]:
    """The ONNX models in float32 and int8, as sentence-transformers exports them."""
    packages = os.pathsep.join([*map(str, path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, rival_onnx.__file__, str(model), str(onnx), str(max_length)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": packages}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"The export to ONNX failed:\n{done.stderr[-3000:]}")
    int8 = next(Path(onnx, "onnx").glob("*int8*.onnx"))
    return rival_onnx.FLOAT32, str(int8.relative_to(onnx))
