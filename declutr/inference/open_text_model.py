"""Opening of models of all kinds, and the devices and the dtype that they compute with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.archives.static_folder import is_static
from declutr.bridge.deferral import garbage
from declutr.inference import KINDS, EncoderError, kind_at
from declutr.inference.text_model import TextModel
from declutr.system import LOADING
from declutr.system.processors import keep_to_quota, one_thread_if_forked
from declutr.system.releases import warn_of_untested_releases

if TYPE_CHECKING:  # a static encoder need not wait for torch
    import torch

__all__ = ["KINDS", "EncoderError", "TextModel", "open_text_model"]

DTYPES = ("auto", "float32", "bfloat16", "int8")


@garbage()  # imports take most of the time, and garbage collection would slow them down
def open_text_model(
    place: str,
    *,
    device: torch.device | str | None,
    kind: str | None = None,
    pooling: str | None = None,
    revision: str | None = None,
    overrides: dict[str, Any] | str | None = None,
    trust: bool = False,
) -> TextModel:
    """Open the model at a place, which is a file, a folder, a URL or a name on the hub.

    # Parameters

    place : a file or URL is a trained archive; a folder holds a trained archive, a transformer or
        a sentence-transformers model; anything else is a name on the Hugging Face hub.
    device : the device of the model, or its name; by default the first GPU if there is any. Static
        encoders compute on the CPU.
    kind : one of `KINDS`; by default it is recognised from what lies at the place.
    pooling, revision : for transformers; see
        `declutr.inference.transformer_model.TransformerModel`.
    overrides : for archives, changes to their configuration.
    trust : open models that would be refused as unsafe, and run the code that they bring.

    # Raises

    `FileNotFoundError` : there is no model at that place.
    `EncoderError` : this kind of model does not have one of the settings, or the model is broken.
    `declutr.archives.safety.UnsafeArchive` : the model would run code, or touch other files.
    """
    warn_of_untested_releases()
    if (kind or kind_at(place)) == "transformer":
        if overrides:
            raise EncoderError(f"overrides are for archives; '{place}' is a transformer.")
        if revision and Path(place).is_dir():
            raise EncoderError(
                f"revision is for names on the hub; '{place}' is a folder, of which there is but "
                "what is in it. Leave it out, or check out that revision there."
            )
        if is_static(Path(place)):
            return _static_model(place, device, pooling)
        from declutr.inference.transformer_model import TransformerModel
        from declutr.system.kernel_choices import usual_defaults

        keep_to_quota()
        one_thread_if_forked()
        on = chosen_device(device)
        with LOADING, usual_defaults():
            return TransformerModel(
                place, device=on, pooling=pooling, revision=revision, trust=trust
            )
    if pooling or revision:
        name = "pooling" if pooling else "revision"
        raise EncoderError(
            f"{name} is for transformers; '{place}' is a trained archive, which has its own."
        )
    on = chosen_device(device)
    from declutr.inference.trained_model import TrainedModel  # importing AllenNLP takes seconds
    from declutr.system.kernel_choices import usual_defaults

    keep_to_quota()
    one_thread_if_forked()
    with LOADING, usual_defaults():
        return TrainedModel(place, device=on, overrides=overrides, trust=trust)


def _static_model(place: str, device: torch.device | str | None, pooling: str | None) -> TextModel:
    from declutr.inference.static_model import StaticModel

    if pooling:
        raise EncoderError(f"pooling is for transformers; '{place}' is a static encoder.")
    if device not in (None, "cpu"):
        chosen_device(device)  # which tells that there is no such device
    return StaticModel(place)


def chosen_device(name: torch.device | str | None) -> torch.device:
    """Return the device of that name; by default the first GPU if there is any, else the CPU.

    # Raises

    `EncoderError` : the name is not that of a CPU or GPU, or there is no such GPU.
    """
    import torch

    if name is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EncoderError(f"Expected a device cpu, cuda or cuda:N, got {name!r}.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EncoderError(f"No device {name!r}: there are {torch.cuda.device_count()} GPUs.")
    return device


def device_names(device: str | Sequence[str] | None, cuda_device: int | None) -> list[str | None]:
    """Return the names of the devices that either of two arguments names; at least one.

    # Parameters

    device : the name of a device, or a list of names; `None` chooses a device.
    cuda_device : the number of a GPU, or -1 for the CPU; `None` if `device` is to be used.

    # Raises

    `EncoderError` : both are given, the list is empty, or one of several devices is not there.
    """
    if cuda_device is not None:
        if device is not None:
            raise EncoderError("Got device and cuda_device; give one of them.")
        device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
    names: Sequence[str | None]
    names = [device] if device is None or isinstance(device, str) else list(device)
    if not names:
        raise EncoderError("Expected at least one device, got an empty list.")
    return list(names) if len(names) == 1 else [str(chosen_device(name)) for name in names]


def chosen_dtype(name: str, on: torch.device | str | None) -> str:
    """Return the name of the dtype to compute in on a device.

    # Parameters

    name : one of `DTYPES`. `"auto"` is bfloat16 if the device has instructions for it (and, on a
        CPU, gains by them), else float32. A CPU that is not faster in the bfloat16 or int8 asked
        for than in float32 computes in float32, with a warning
        (`declutr.transformer.dtype_speed`).
    on : the device, or its name, as in `chosen_device`.

    # Raises

    `EncoderError` : int8 is asked for on something else than a CPU.
    """
    import torch

    from declutr.transformer.dtype_speed import gains, has_bfloat16, worthwhile_dtype

    device = chosen_device(on)
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
