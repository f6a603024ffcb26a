"""What a training step of a configuration holds in memory, and what the device has."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.training.optimizers import Optimizer

from declutr.bridge.component_names import short
from declutr.bridge.repairs import require_number
from declutr.data.collation import moved
from declutr.runs.check.findings import Setting
from declutr.runs.check.simulated_step import META, step_memory, without_contents
from declutr.system.processors import control_groups
from declutr.training.weight_decay import optimizing

# What a process takes relative to its tensors at the peak of a step, beside what it had before.
# On a CPU freed memory stays with the process: 1.35 to 1.9, measured with RoBERTa's architecture
# of 2 and 6 layers. On a GPU the allocator rounds up, and CUDA itself takes memory: not measured.
_ALLOCATED = {"cpu": 1.6, "cuda": 1.1}
_CONTEXT = {"cpu": 0.5e9, "cuda": 0.6e9}  # of Python with its libraries; of CUDA


@dataclass(frozen=True)
class Device:
    """The device that a run would train on.

    # Parameters

    kind : `"cpu"` or `"cuda"`.
    name : its name in words.
    memory : its memory in bytes; `None` if that is unknown.
    dtype : what products are computed in.
    processes : the number of processes, each on a device of its own.
    """

    kind: str
    name: str
    memory: int | None
    dtype: str
    processes: int


@dataclass(frozen=True)
class MemoryFigures:
    """The memory of a training step in each process, in bytes: an estimate.

    # Parameters

    weights, gradients, optimizer, activations : parts of the peak; activations are all else.
    peak : what tensors hold at the peak.
    process : what the process will take, with what its allocator keeps.
    parameters, trained : the numbers of all parameters, and of those that are trained.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int
    process: int
    parameters: int
    trained: int


def _number_of(device: Any) -> int:
    """Return the number of a device as the trainer takes it: of a GPU, or -1 for the CPU."""
    if device is None:
        return 0 if torch.cuda.is_available() else -1
    require_number(device, ConfigurationError)
    return int(device)


def device_of_run(config: Mapping[str, Any]) -> Device:
    """Return the device that a configuration would train on here.

    # Raises

    `ConfigurationError` : it asks for a GPU that is not here, or for a device by its name.
    """
    trainer = config.get("trainer") or {}
    distributed = config.get("distributed") or {}
    devices = distributed.get("cuda_devices") or [trainer.get("cuda_device")]
    numbers = [_number_of(device) for device in devices]
    number, processes = numbers[0], len(numbers) * distributed.get("num_nodes", 1)
    kind = "cpu" if number < 0 else "cuda"
    if max(numbers) >= torch.cuda.device_count():
        raise ConfigurationError(
            f"The recipe asks for GPU {max(numbers)}, and {torch.cuda.device_count()} are here. "
            "Name those that are here, by numbers from 0, or -1 for the CPU."
        )
    low = _low_precision(config, kind)
    dtype = f"{low or 'float32'}{' products' if low else ''}"
    if kind == "cpu":
        return Device(kind, "the CPU", memory_of_machine(), dtype, processes)
    properties = torch.cuda.get_device_properties(number)
    return Device(kind, properties.name, properties.total_memory, dtype, processes)


def _low_precision(config: Mapping[str, Any], kind: str) -> str | None:
    if (config.get("trainer") or {}).get("use_amp") and kind == "cuda":
        return "float16"
    model = config.get("model") or {}
    if short(model.get("type")) != "declutr":
        return None
    precision = model.get("precision", "auto")
    if precision == "auto" and kind == "cuda" and torch.cuda.is_bf16_supported():
        return "bfloat16"
    return "bfloat16" if precision == "bfloat16" else None


def memory_of_machine(root: Path = Path("/")) -> int | None:
    """Return the memory that processes may use, in bytes: that of the machine or of a container.

    The limits are those of this process's control group, such as a job of a scheduler has, and of
    its ancestors. Only tests change `root`, the root of the file system.
    """
    found = []
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for folder in control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # there may be no limit
                found.append(int((folder / name).read_text()))
    return min(found, default=None)


def model_without_contents(
    config: Mapping[str, Any], settings: list[Setting], vocabulary: Vocabulary
) -> Model:
    """Build the model of a configuration on "meta", without reading weights.

    # Parameters

    config : the configuration.
    settings : its effective settings, which tell where a transformer could load weights.
    vocabulary : the vocabulary of the data.

    # Raises

    `ConfigurationError` : parts of the model do not fit together.
    """
    given = copy.deepcopy(dict(config["model"]))
    for setting in settings:
        keys = setting.path.split(".")
        if keys[0] == "model" and keys[-1] == "load_weights":
            part: Any = given
            for key in keys[1:-1]:
                part = part[int(key)] if isinstance(part, list) else part[key]
            part["load_weights"] = False
    with without_contents():
        model = Model.from_params(Params(given), vocab=vocabulary)
    return model.to(META).train()


def optimizer_of(config: Mapping[str, Any], model: Model) -> Any:
    """Return the optimizer of a configuration for a model, with what either raises if it cannot."""
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    given = config["trainer"].get("optimizer") or {"type": "adam"}
    with optimizing(model):
        return Optimizer.from_params(Params(copy.deepcopy(given)), model_parameters=named)


def memory_figures(
    config: Mapping[str, Any], model: Model, optimizer: Any, batch: dict[str, Any], device: Device
) -> MemoryFigures:
    """Return the memory of a step of a model on "meta", with the largest batch of one process."""
    trainer = config["trainer"]
    found = step_memory(
        model,
        moved(batch, META),
        optimizer,
        device.kind,
        low_precision=not device.dtype.startswith("float32"),
        keeps_gradients=trainer.get("num_gradient_accumulation_steps", 1) > 1,
    )
    if device.processes > 1:  # DistributedDataParallel sends gradients from buffers of its own
        found["gradients"] *= 2
        found["peak"] += found["gradients"] // 2
    process = found["peak"] * _ALLOCATED[device.kind] + _CONTEXT[device.kind]
    return MemoryFigures(
        **found,
        process=int(process),
        parameters=sum(one.numel() for one in model.parameters()),
        trained=sum(one.numel() for one in model.parameters() if one.requires_grad),
    )
