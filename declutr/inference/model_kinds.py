"""The two kinds of models, told by what lies at a place, without opening it."""

import re
from pathlib import Path

from declutr.archives import is_transformer

KINDS = ("archive", "transformer")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def kind_at(place: str) -> str:
    """Return the kind, of `KINDS`, of the model at a place, as `Encoder` takes it.

    A name on the hub, and any folder that Hugging Face or sentence-transformers wrote, is a
    transformer, static encoders included. Anything else counts as a trained archive.

    # Raises

    `declutr.archives.UnsafeArchive` : a configuration there is larger than configurations are.
    """
    path = Path(place)
    on_hub = not path.exists() and _HUB_NAME.fullmatch(place) is not None
    return "transformer" if on_hub or is_transformer(path) else "archive"


def is_archive(place: str) -> bool:
    """Return whether a model is a trained archive, which AllenNLP opens."""
    return kind_at(place) == "archive"
