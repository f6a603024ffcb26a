"""Linear layers in int8, on a CPU."""

from __future__ import annotations

import warnings

import torch

from declutr.text_models.text_model import EncoderError


def quantize_linear_layers(module: torch.nn.Module) -> None:
    """Replace every linear layer inside by one of int8 weights, a scale for each output channel.

    Inputs are quantised as they come, with one scale a batch: vectors then depend, a little, on
    what else is in a batch.

    # Raises

    `EncoderError` : this torch, or this processor, has no int8 layers.
    """
    try:
        from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
    except ImportError as error:
        raise EncoderError(
            "This release of torch has no int8 layers any more (torch.ao.quantization); choose "
            'dtype "bfloat16" or "float32".'
        ) from error
    if torch.backends.quantized.engine in (None, "none"):
        raise EncoderError(
            'torch computes no int8 on this processor; choose dtype "bfloat16" or "float32".'
        )
    with warnings.catch_warnings():
        # Its successor is a package of its own, which needs a compiler on the user's machine.
        warnings.simplefilter("ignore")
        quantize_dynamic(module, {torch.nn.Linear: per_channel_dynamic_qconfig}, inplace=True)
