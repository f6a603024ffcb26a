"""Runs a function in W processes with a gloo group; importable, so that new ones find it."""

import os
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

    `function` must be importable. It returns what `torch.save` takes.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.save(args, Path(folder, "arguments.pt"))  # tensors would each open a file
        arguments, how = (processes, folder, function), {"start_method": "forkserver"}
        mp.start_processes(_worker, arguments, nprocs=processes, **how)
        files = [Path(folder, f"{rank}.pt") for rank in range(processes)]
        return [torch.load(file, weights_only=False) for file in files]


def _worker(rank: int, processes: int, folder: str, function: Callable) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    place = {"init_method": f"file://{folder}/group", "timeout": timedelta(seconds=120)}
    dist.init_process_group("gloo", rank=rank, world_size=processes, **place)
    try:
        args = torch.load(Path(folder, "arguments.pt"), weights_only=False)
        torch.save(function(*args), Path(folder, f"{rank}.pt"))
    finally:
        dist.destroy_process_group()
