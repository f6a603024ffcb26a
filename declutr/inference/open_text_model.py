"""What embeds: trained archives, transformers, and folders of sentence-transformers, alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from declutr.archives import is_transformer
from declutr.bridge.deferral import garbage
from declutr.inference import EncoderError
from declutr.inference.text_model import TextModel

__all__ = ["EncoderError", "TextModel", "open_text_model"]

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
KINDS = ("archive", "transformer")


@garbage()  # most of the time goes to imports
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
    """Open a model: a file or URL is an archive; a folder what it holds; else a name on the hub.

    # Parameters

    kind : one of `KINDS`, where that is known; by default what lies there tells.
    pooling, revision : for transformers.
    overrides : for archives.
    trust : open what would be refused as unsafe, and run the code it brings.

    # Raises

    `FileNotFoundError` : there is no model at that place.
    `EncoderError` : a setting that this kind of model does not have, or a model that is broken.
    `declutr.archives.safety.UnsafeArchive` : it would run code, or touch other files.
    """
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
    from declutr.inference.trained_model import TrainedModel  # AllenNLP takes seconds

    return TrainedModel(place, device=device, overrides=overrides, trust=trust)
