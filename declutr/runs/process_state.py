"""The state of a Python process around a training: as in a new process, and afterwards as before.

AllenNLP's command has a process of its own, whose logging, random numbers and caches it changes
freely. A training that is called from Python gives all of that back.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import allennlp.common.logging as allennlp_logging
import allennlp.common.tqdm as allennlp_tqdm
import numpy as np
import torch
from allennlp.common import cached_transformers
from tqdm import tqdm

from declutr.system.kernel_choices import CHOICES
from declutr.system.processors import set_threads

_LINE = "%(asctime)s - %(levelname)s - %(name)s - %(message)s"  # as AllenNLP writes it


@contextmanager
def random_numbers_restored() -> Iterator[None]:
    """Restore the random numbers of Python, numpy and torch after this context."""
    had_cuda = torch.cuda.is_initialized()
    devices = list(range(torch.cuda.device_count())) if had_cuda else []
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if not had_cuda and torch.cuda.is_initialized():
            # The seed that they would have had, if the caller had been the first to use a GPU.
            torch.cuda.manual_seed_all(torch.initial_seed())


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Set what earlier work in this process has left, and a new process would not have, aside.

    AllenNLP keeps the transformers that it has loaded. To load one draws random numbers for layers
    that its checkpoint lacks, so that later layers of a second model would begin with others.
    """
    kernels, threads = CHOICES.taken(), torch.get_num_threads()
    CHOICES.forget()
    try:
        with (
            _replaced(cached_transformers, "_model_cache", {}),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        gc.collect()  # models and trainers refer to each other, and may fill a GPU
        CHOICES.forget()
        CHOICES.adopt(kernels)
        if torch.get_num_threads() != threads:
            set_threads(threads)


@contextmanager
def logging_to_file() -> Iterator[None]:
    """Let a training write its log to its files, and leave the logging of the caller as it is.

    AllenNLP removes the handlers of the root logger and writes all messages to standard output.
    Instead, the handlers of the caller get what they would have got: warnings, by default.
    Processes of a distributed training log no more than warnings, too, unless `ALLENNLP_LOG_LEVEL`
    is set.
    """
    root, bars = logging.getLogger(), allennlp_tqdm.logger
    asked, level = os.environ.get("ALLENNLP_LOG_LEVEL"), root.level
    of_caller, of_bars = list(root.handlers), list(bars.handlers)
    told = of_caller or [logging.lastResort or logging.NullHandler()]
    would_pass = _LevelsOf(level)
    files: list[logging.Handler] = []

    def prepare(serialization_dir: Any, rank: int = 0, world_size: int = 1) -> None:
        file = logging.FileHandler(Path(serialization_dir, "out.log"))
        file.setFormatter(logging.Formatter(_LINE))
        file.setLevel("DEBUG" if os.environ.get("ALLENNLP_DEBUG") else asked or "INFO")
        files.append(file)
        root.addHandler(file)
        root.setLevel(min(file.level, level))
        bars.handlers = [file]

    for handler in told:
        handler.addFilter(would_pass)
        root.addHandler(handler)
    os.environ.setdefault("ALLENNLP_LOG_LEVEL", "WARNING")
    try:
        with (
            _replaced(allennlp_logging, "prepare_global_logging", prepare),
            _replaced(allennlp_logging, "FILE_FRIENDLY_LOGGING", False),
            _replaced(allennlp_tqdm, "_tqdm", _bar()),
        ):
            yield
    finally:
        if asked is None:
            del os.environ["ALLENNLP_LOG_LEVEL"]
        bars.handlers = of_bars
        root.setLevel(level)
        for handler in [*told, *files]:
            handler.removeFilter(would_pass)
            if handler not in of_caller:
                root.removeHandler(handler)
        for file in files:
            file.close()


class _LevelsOf(logging.Filter):
    """A filter of records that pass the levels of loggers when the root logger has this level."""

    def __init__(self, root_level: int) -> None:
        super().__init__()
        self._root_level = root_level

    def filter(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger.parent is not None and not logger.level:
            logger = logger.parent
        own = logger.level if logger is not None and logger.parent is not None else 0
        return record.levelno >= (own or self._root_level)


def _bar() -> Any:
    """Return AllenNLP's class of progress bars, or the plain one in a notebook without widgets."""
    bar = allennlp_tqdm._tqdm
    if bar.__module__ == "tqdm.notebook" and importlib.util.find_spec("ipywidgets") is None:
        return tqdm
    return bar


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
