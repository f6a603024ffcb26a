"""The devices and the dtype that an encoder computes with."""

from collections.abc import Sequence

import torch

from declutr.inference import EncoderError
from declutr.transformer.dtype_speed import gains, has_bfloat16, worthwhile_dtype

DTYPES = ("auto", "float32", "bfloat16", "int8")


def chosen_device(name: str | None) -> torch.device:
    """Return the device of that name; by default the first GPU if there is any, else the CPU.

    # Raises

    `EncoderError` : the name is not that of a CPU or GPU, or there is no such GPU.
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


def chosen_devices(
    device: str | Sequence[str] | None, cuda_device: int | None
) -> list[torch.device]:
    """Return the devices that either of two arguments names; at least one.

    # Parameters

    device : the name of a device, or a list of names; `None` chooses a device.
    cuda_device : the number of a GPU, or -1 for the CPU; `None` if `device` is to be used.

    # Raises

    `EncoderError` : both are given, the list is empty, or there is no such device.
    """
    if cuda_device is not None:
        if device is not None:
            raise EncoderError("Got device and cuda_device; give one of them.")
        device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
    names = [device] if device is None or isinstance(device, str) else list(device)
    if not names:
        raise EncoderError("Expected at least one device, got an empty list.")
    return [chosen_device(name) for name in names]


def chosen_dtype(name: str, device: torch.device) -> str:
    """Return the name of the dtype to compute in on a device.

    # Parameters

    name : one of `DTYPES`. `"auto"` is bfloat16 if the device has instructions for it (and, on a
        CPU, gains by them), else float32. A CPU that is not faster in the bfloat16 or int8 asked
        for than in float32 computes in float32, with a warning
        (`declutr.transformer.dtype_speed`).
    device : the device of the model.

    # Raises

    `EncoderError` : the name is unknown, or int8 is asked for on something else than a CPU.
    """
    if name not in DTYPES:
        raise EncoderError(f"Expected a dtype of {', '.join(DTYPES)}, got {name!r}.")
    if name == "int8" and device.type != "cpu":
        raise EncoderError(f'int8 is for CPUs, got device {device}; choose dtype "bfloat16".')
    if name == "auto":
        if device.type == "cuda":
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        else:  # devices that are neither GPU nor CPU may emulate bfloat16, which is slow
            native = device.type == "cpu" and has_bfloat16() and gains("bfloat16")
        return "bfloat16" if native else "float32"
    if device.type == "cpu" and name != "float32":
        return worthwhile_dtype(name)
    return name
