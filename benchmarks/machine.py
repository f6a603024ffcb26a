"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

_LIBRARIES = ("torch", "transformers", "tokenizers", "allennlp", "pytorch-metric-learning", "numpy")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, GPU, threads and versions; everything JSON can hold."""
    import torch

    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in _LIBRARIES},
    }


def release_of(checkout: Path) -> str:
    """The release of the package in a checkout, as written there."""
    files = (Path(checkout, "declutr", name) for name in ("_version.py", "__init__.py"))
    texts = (file.read_text(encoding="utf-8") for file in files if file.exists())
    found = (text.partition('__version__ = "')[2].partition('"')[0] for text in texts)
    return next(filter(None, found))


def _cpu_model() -> str:
    """The processor, with its family and model: a virtual machine may name the maker alone."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    known = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    if "model name" not in known:
        return platform.processor() or platform.machine()
    numbers = (
        f"family {known['cpu family']}, model {known['model']}" if "cpu family" in known else ""
    )
    return f"{known['model name']} ({numbers})" if numbers else known["model name"]


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
