"""What a trained model is on disk and carries, and opening one that is not trusted (`safety`).

Here: the names of its files, what lies at a place, and JSON that others wrote, within bounds.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Union

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.archives.carried")  # it was a module, up to release 1.8

ARCHIVE = "model.tar.gz"
CONFIG = "config.json"
RUN = "run.json"
"""What was run (`declutr.training.run_record`)."""
METRICS = "metrics.json"
BEST_WEIGHTS = "best.th"

MODULES = "modules.json"
"""Of sentence-transformers: the modules of a model."""
SETTINGS = "config_sentence_transformers.json"
"""Of sentence-transformers: prompts, and what embeddings are compared by."""
LENGTHS = "sentence_bert_config.json"
"""Of sentence-transformers, beside the transformer: how long texts may be, and their case."""

VOCABULARY = "vocabulary"
WHITENING = "whitening.safetensors"

TRANSFORMERS = "transformer"
"""The folder of transformers, and of trained archives, that an archive carries."""
NAMES = "names.json"
"""In that folder: which transformer lies where."""
ARCHIVES = "archives.json"
"""In that folder: which trained archive lies where."""

WEIGHTS = ("weights.th", BEST_WEIGHTS)
"""Of these AllenNLP loads the first that is there."""

KeyPath = tuple[Union[str, int], ...]
CONFIGURATION_BYTES = 2**20
"""The largest configuration; those of transformers have some KB."""
MAX_DEPTH = 100
TRUST = "If you made it yourself, or trust who did, allow it with --trust (trust=True)."
GET_ANEW = (
    "Copy it anew from where it came from; or, where the folder of its training is, make it again: "
    "python -c \"from allennlp.models import archive_model; archive_model('FOLDER')\"."
)
"""What to do about an archive that is damaged."""

EXPECTED = (
    "Expected the folder that `allennlp train … -s FOLDER` wrote, its model.tar.gz or a URL of "
    "one, or a folder written by `declutr export`."
)
_GZIP = b"\x1f\x8b"


class UnsafeArchive(ValueError):
    """An archive or folder of a model that could run code or reach files outside it.

    The message says what was found, in which file and under which key, and what to do.
    """


class BrokenArchive(ValueError, tarfile.ReadError):
    """A file that is no `model.tar.gz`, is damaged, or is only the beginning of one."""


class NoModel(FileNotFoundError):
    """Nothing lies at a place, or something that is no model."""


class JSONError(ValueError):
    """A file that is no JSON, or more of it than is read. Its message follows the file's name.

    `text` is what the file holds, as far as that was read.
    """

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class Kind(Enum):
    """What kind of model lies at a place."""

    ARCHIVE = "the model.tar.gz of a trained model"
    TRAINED = "the folder of a trained model"
    TRANSFORMER = "a transformer of Hugging Face"
    SENTENCE_TRANSFORMERS = "a model of sentence-transformers"


def weights_of(folder: Path) -> Path | None:
    """Return the file of weights that AllenNLP would load, or `None`."""
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def named_as_archive(file: Path) -> bool:
    """Return whether a file is a tar, or is called like one: a damaged one may look like none."""
    return file.name.endswith((".tar.gz", ".tgz")) or tarfile.is_tarfile(file)


def local_place(place: str | os.PathLike) -> Path:
    """Return where a model is on this machine; what a URL names is downloaded, once."""
    name = os.fspath(place)
    if "://" not in name:
        return Path(name)
    from allennlp.common.file_utils import cached_path

    return Path(cached_path(name))


def require_model(place: Path, name: str = "") -> None:
    """Raise `NoModel` unless there is an archive, or a folder of some model.

    The message calls the place by `name`, if not by its path.
    """
    name = name or str(place)
    if not place.exists():
        raise NoModel(f"No model at '{name}'. {EXPECTED}")
    if place.is_file():
        if not named_as_archive(place) and not is_gzip(place):
            raise NoModel(f"'{name}' is not an archive. {EXPECTED}")
    elif not (place / CONFIG).is_file() and not (place / MODULES).is_file():
        raise NoModel(f"'{name}' holds no {CONFIG}. {EXPECTED}")


def is_gzip(file: Path) -> bool:
    """Return whether a file begins as gzip does."""
    with file.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP


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


def read_bounded_json(
    file: Path, *, limit: int = CONFIGURATION_BYTES, constants: bool = True
) -> Any:
    """Return what a file of JSON holds, in UTF-8 and of `limit` bytes at most.

    `constants` allows `NaN` and `Infinity`, which Python reads and JSON has not.

    # Raises

    `JSONError` : it is larger, nested deeper than `MAX_DEPTH`, names a key twice in one object (so
        that readers would not agree on its value), or is no JSON.
    """
    size = file.stat().st_size
    if size > limit:
        raise JSONError(
            f"has {size / 2**20:,.1f} MiB; expected at most {limit / 2**20:,.0f} MiB of such a file"
        )
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise JSONError(f"is no UTF-8 text ({error})") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_without_repetition,
            parse_constant=None if constants else _no_constant,
        )
    except RecursionError:
        raise JSONError("is nested too deeply") from None
    except JSONError:
        raise
    except ValueError as error:
        raise JSONError(f"is not plain JSON: {error}", text) from None
    _require_shallow(value)
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise JSONError(f"has the key '{key}' twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}")


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for held in level for _, item in _inside(held)]
        if not level:
            return
    raise JSONError("is nested too deeply")


def entries(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value inside a JSON value, with the keys and positions that lead to it."""
    left = [(path, value)]  # a stack: what others nest is not followed by calls
    while left:
        where, held = left.pop()
        if where != path:
            yield where, held
        left += [((*where, key), item) for key, item in reversed(_inside(held))]


def _inside(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
