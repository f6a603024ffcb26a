"""Where an encoder computes, and in which numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from declutr.inference.errors import EncoderError
from declutr.transformer.dtype_speed import gains, has_bfloat16, worthwhile_dtype

DTYPES = ("auto", "float32", "bfloat16", "int8")


def chosen_device(name: str | None) -> torch.device:
    """The device of that name; by default the first GPU if there is any, else the CPU.

    # Raises

    `EncoderError` : there is no such device.
    """
    if name is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EncoderError(f"Expected a device cpu, cuda or cuda:N, got {name!r}.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EncoderError(f"No device {name!r}: there are {torch.cuda.device_count()} GPUs.")
    return device


def chosen_devices(device: str | Sequence[str] | None, cuda_device: int | None) -> list[str | None]:
    """The names of devices, each checked.

    # Raises

    `EncoderError` : both are given, or there is no such device.
    """
    if cuda_device is not None:
        if device is not None:
            raise EncoderError("Got device and cuda_device; give one of them.")
        return ["cpu" if cuda_device < 0 else f"cuda:{cuda_device}"]
    if device is None or isinstance(device, str):
        return [device]
    if not device:
        raise EncoderError("Expected at least one device, got an empty list.")
    for name in device:
        chosen_device(name)
    return list(device)


def chosen_dtype(name: str, device: torch.device) -> str:
    """`name`, or what `"auto"` stands for: bfloat16 where the device computes in it, else float32.

    On a CPU that is not faster in the bfloat16 or int8 asked for than in float32, it is float32,
    with a warning (`declutr.transformer.dtype_speed`).

    # Raises

    `EncoderError` : an unknown name, or int8 on something else than a CPU.
    """
    if name not in DTYPES:
        raise EncoderError(f"Expected a dtype of {', '.join(DTYPES)}, got {name!r}.")
    if name == "int8" and device.type != "cpu":
        raise EncoderError(f'int8 is for CPUs, got device {device}; choose dtype "bfloat16".')
    if name == "auto":
        return "bfloat16" if _computes_in_bfloat16(device) else "float32"
    if device.type == "cpu" and name != "float32":
        return worthwhile_dtype(name)
    return name


def _computes_in_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return has_bfloat16() and gains("bfloat16")  # elsewhere it is emulated
    return False
