"""Opening of models: trained archives, transformers, and folders of sentence-transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from declutr.archives import is_transformer
from declutr.bridge.deferral import garbage
from declutr.inference import EncoderError
from declutr.inference.text_model import TextModel
from declutr.system.releases import warn_of_untested_releases

__all__ = ["EncoderError", "TextModel", "open_text_model"]

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
KINDS = ("archive", "transformer")


@garbage()  # imports take most of the time, and garbage collection would slow them down
def open_text_model(
    place: str,
    *,
    device: torch.device,
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
    device : the device of the model.
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
    if kind is None:
        path = Path(place)
        on_hub = not path.exists() and _HUB_NAME.fullmatch(place) is not None
        kind = "transformer" if on_hub or is_transformer(path) else "archive"
    if kind == "transformer":
        from declutr.inference.transformer_model import TransformerModel

        if overrides:
            raise EncoderError(f"overrides are for archives; '{place}' is a transformer.")
        return TransformerModel(
            place, device=device, pooling=pooling, revision=revision, trust=trust
        )
    if pooling or revision:
        name = "pooling" if pooling else "revision"
        raise EncoderError(
            f"{name} is for transformers; '{place}' is a trained archive, which has its own."
        )
    from declutr.inference.trained_model import TrainedModel  # importing AllenNLP takes seconds

    return TrainedModel(place, device=device, overrides=overrides, trust=trust)
