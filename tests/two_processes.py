"""Runs a function in W processes with a gloo group; importable, so that new ones find it."""

import faulthandler
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(function: Callable[..., Any], *args: Any, processes: int = 2) -> list[Any]:
    """What `function(*args)` returns in each process, by rank.

    `function` must be importable. It returns what `torch.save` takes. If a process fails, the error
    has the end of what each of them printed, and where it was if it crashed.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.save(args, Path(folder, "arguments.pt"))  # tensors would each open a file
        arguments, how = (processes, folder, function), {"start_method": "forkserver"}
        try:
            mp.start_processes(_worker, arguments, nprocs=processes, **how)
        except (mp.ProcessExitedException, mp.ProcessRaisedException) as error:
            logs = sorted(Path(folder).glob("*.log"))
            ends = [f"{log.stem}: {_end(log.read_text(errors='replace'))}" for log in logs]
            raise RuntimeError("\n".join([str(error), *ends])) from error
        files = [Path(folder, f"{rank}.pt") for rank in range(processes)]
        return [torch.load(file, weights_only=False) for file in files]


def _end(printed: str) -> str:
    """The last lines, and all of Python's threads if it crashed, but not its list of libraries."""
    before, crash, after = printed.partition("Fatal Python error")
    return before[-4000:] + crash + after.partition("Extension modules:")[0]


def _worker(rank: int, processes: int, folder: str, function: Callable) -> None:
    # What the server of forks was started with may be files that are closed by now.
    log = os.open(Path(folder, f"{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable(file=2)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    place = {"init_method": f"file://{folder}/group", "timeout": timedelta(seconds=120)}
    dist.init_process_group("gloo", rank=rank, world_size=processes, **place)
    try:
        args = torch.load(Path(folder, "arguments.pt"), weights_only=False)
        torch.save(function(*args), Path(folder, f"{rank}.pt"))
    finally:
        dist.destroy_process_group()
