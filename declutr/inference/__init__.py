"""Embed texts with trained models: open a model, cut and batch the texts, whiten the embeddings."""

import re
from collections.abc import Iterable
from pathlib import Path

from declutr.archives import ARCHIVE_NAMES, is_transformer, require_model

KINDS = ("archive", "transformer")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class EncoderError(ValueError):
    """An error of an encoder that cannot be opened, or does not return embeddings."""


def require_one_of(known: Iterable[str], **option: str) -> None:
    """Raise `EncoderError` unless the value of an option is one of the known values.

    # Parameters

    known : the values that are accepted.
    option : exactly one keyword argument: the name of the option, and its value.
    """
    ((name, value),) = option.items()
    if value not in known:
        raise EncoderError(f"Expected {name} to be one of {', '.join(known)}, got {value!r}.")


def kind_at(place: str) -> str:
    """Return the kind, of `KINDS`, of the model at a place, as `Encoder` takes it.

    A name on the hub, and any folder that Hugging Face or sentence-transformers wrote, is a
    transformer, static encoders included. Anything else counts as a trained archive, also a name
    such as `runs/model.tar.gz` where there is no such file.

    # Raises

    `declutr.archives.UnsafeArchive` : a configuration there is larger than configurations are.
    """
    path = Path(place)
    on_hub = (
        not path.exists()
        and _HUB_NAME.fullmatch(place) is not None
        and not place.endswith(ARCHIVE_NAMES)
    )
    return "transformer" if on_hub or is_transformer(path) else "archive"


def is_archive(place: str) -> bool:
    """Return whether a model is a trained archive, which AllenNLP opens.

    # Raises

    `declutr.archives.NoModel` : there is no model at a local path.
    `declutr.archives.UnsafeArchive` : a configuration there is larger than configurations are.
    """
    if kind_at(place) != "archive":
        return False
    if "://" not in place:
        require_model(Path(place), place)  # before AllenNLP is imported, or missed
    return True
