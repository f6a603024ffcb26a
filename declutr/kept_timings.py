"""Seconds that ways to compute something take on this processor, measured once and kept.

For what is told to users. `declutr.kernel_choices` keeps what is chosen by such measurements.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from declutr.cache_folder import default_cache_dir
from declutr.kernel_choices import PLAIN, VARIABLE, Ways, least_seconds, processor

logger = logging.getLogger(__name__)

FILE_NAME = "timings.json"


def kept_timings(question: str, ways: Callable[[], Ways]) -> dict[str, float]:
    """Return the least seconds of each way, by its name.

    # Parameters

    question : what is computed, with its shape; processor, threads and kernels are added.
    ways : makes what is to be timed; called only if this is not known for this processor yet. It
        must not draw random numbers.
    """
    kernels = PLAIN if os.environ.get(VARIABLE) == PLAIN else "quickest"
    asked = f"{question}, {torch.get_num_threads()} threads, {kernels} kernels, {processor()}"
    file = default_cache_dir() / FILE_NAME
    known = _read(file)
    if asked not in known:
        known[asked] = least_seconds(ways())
        _write(file, known)
    return known[asked]


def _read(file: Path) -> dict[str, dict[str, float]]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(file: Path, known: Mapping[str, Mapping[str, float]]) -> None:
    # Of two processes that write at once, one has its measurement made again some day.
    beside = file.with_name(f"{FILE_NAME}.{os.getpid()}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(known, indent=1))
        os.replace(beside, file)
    except OSError as error:
        logger.info("What was measured here is not kept for the next start: %s", error)
