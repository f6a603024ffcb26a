"""Where an encoder computes."""

from __future__ import annotations

import torch

from declutr.encoder_sources.source import EncoderError


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
