"""What lies at a place: a trained model, an archive of one, a transformer, or nothing of these."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from declutr.archives.layout import CONFIG, MODULES
from declutr.archives.refusal import UnsafeArchive
from declutr.archives.tar_members import named_as_archive
from declutr.system.bounded_json import JSONError, read_bounded_json

EXPECTED = (
    "Expected the folder that `allennlp train … -s FOLDER` wrote, its model.tar.gz or a URL of "
    "one, or a folder written by `declutr export`."
)
_GZIP = b"\x1f\x8b"


class Kind(Enum):
    """What kind of model lies at a place."""

    ARCHIVE = "the model.tar.gz of a trained model"
    TRAINED = "the folder of a trained model"
    TRANSFORMER = "a transformer of Hugging Face"
    SENTENCE_TRANSFORMERS = "a model of sentence-transformers"


class NoModel(FileNotFoundError):
    """Nothing lies at a place, or something that is no model."""


def local_place(place: str | os.PathLike) -> Path:
    """Return where a model is on this machine; what a URL names is downloaded, once."""
    name = os.fspath(place)
    if "://" not in name:
        return Path(name)
    from allennlp.common.file_utils import cached_path

    return Path(cached_path(name))


def require_model(place: Path, name: str = "") -> None:
    """Raise `NoModel` unless there is an archive, or a folder of some model.

    # Parameters

    name : how the place is called in the message, if not by its path.
    """
    name = name or str(place)
    if not place.exists():
        raise NoModel(f"No model at '{name}'. {EXPECTED}")
    if place.is_file():
        if not named_as_archive(place) and not _is_gzip(place):
            raise NoModel(f"'{name}' is not an archive. {EXPECTED}")
    elif not (place / CONFIG).is_file() and not (place / MODULES).is_file():
        raise NoModel(f"'{name}' holds no {CONFIG}. {EXPECTED}")


def kind_of(place: Path) -> Kind:
    """Return what lies at a place on this machine.

    # Raises

    `NoModel` : no model.
    `UnsafeArchive` : a folder whose `config.json` is larger or nested deeper than such files are.
    """
    require_model(place)
    if place.is_file():
        return Kind.ARCHIVE
    if (place / MODULES).is_file():
        return Kind.SENTENCE_TRANSFORMERS
    try:
        content = read_bounded_json(place / CONFIG)
    except JSONError as error:
        if error.text:  # Jsonnet, perhaps: said when the archive is opened
            return Kind.TRAINED
        raise UnsafeArchive(f"'{place}': {CONFIG} {error}.") from None
    has_type = isinstance(content, dict) and "model_type" in content
    return Kind.TRANSFORMER if has_type else Kind.TRAINED


def is_transformer(place: Path) -> bool:
    """Return whether a folder holds a transformer of Hugging Face or sentence-transformers.

    # Raises

    `UnsafeArchive` : as `kind_of` does.
    """
    try:
        return kind_of(place) in (Kind.TRANSFORMER, Kind.SENTENCE_TRANSFORMERS)
    except NoModel:
        return False


def _is_gzip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP
