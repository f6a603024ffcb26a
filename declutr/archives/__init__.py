"""Files of trained models: their names, their kinds, and bounded reading of their JSON.

The subpackage `safety` opens untrusted archives, and `carried` puts into an archive what it needs
on other machines.
"""

import json
import os
import tarfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Union

from declutr.earlier_paths import names_of
from declutr.system import local_path

__getattr__ = names_of(__name__)  # this package was a module up to release 1.8

ARCHIVE = "model.tar.gz"
ARCHIVE_NAMES = (".tar.gz", ".tgz")
"""What the names of archives end with."""
CONFIG = "config.json"
RUN = "run.json"
"""The name of the file that records a training run (`declutr.training.run_record`)."""
METRICS = "metrics.json"
BEST_WEIGHTS = "best.th"

MODULES = "modules.json"
"""The name of the file in which sentence-transformers lists the modules of a model."""
SETTINGS = "config_sentence_transformers.json"
"""The name of the file in which sentence-transformers keeps prompts and the similarity function."""
LENGTHS = "sentence_bert_config.json"
"""The name of the file in which sentence-transformers keeps the maximum length and lowercasing."""

VOCABULARY = "vocabulary"
WHITENING = "whitening.safetensors"
FITTED_TO = "weights"
"""The key, in the JSON of that file, of the digest of the weights that it was fitted to."""

TRANSFORMERS = "transformer"
"""The name of the folder in an archive that holds the transformers and archives it carries."""
NAMES = "names.json"
"""The name of the file in `TRANSFORMERS` that maps names of transformers to folders beside it."""
ARCHIVES = "archives.json"
"""The name of the file in `TRANSFORMERS` that maps places of archives to folders beside it."""

WEIGHTS = ("weights.th", BEST_WEIGHTS)
"""The names of weight files, of which AllenNLP loads the first that exists."""

KeyPath = tuple[Union[str, int], ...]
"""The keys and list positions that lead to a value inside a JSON value."""
CONFIGURATION_BYTES = 2**20
"""The maximum size of a configuration in bytes; that of a transformer has a few KB."""
MAX_DEPTH = 100
"""The maximum number of levels to which JSON may be nested."""
TRUST = "If you made it yourself, or trust who did, allow it with --trust (trust=True)."
GET_ANEW = (
    "Copy it anew from where it came from; or, where the folder of its training is, make it again: "
    "python -c \"from allennlp.models import archive_model; archive_model('FOLDER')\"."
)
"""The advice in error messages about damaged archives."""

EXPECTED = (
    "Expected the folder that `allennlp train … -s FOLDER` wrote, its model.tar.gz or a URL of "
    "one, or a folder written by `declutr export`."
)
_GZIP = b"\x1f\x8b"
_OF_SPECS = ("archive", "hf", "st")  # what `declutr evaluate-embeddings` puts before a place


class UnsafeArchive(ValueError):
    """Raised for an archive or model folder that could run code or reach files outside it.

    The message names what was found, in which file and under which configuration key, and what to
    do about it.
    """


class BrokenArchive(ValueError, tarfile.ReadError):
    """Raised for a file that is not a `model.tar.gz`, or is a damaged or truncated one."""


class NoModel(FileNotFoundError):
    """Raised if a path does not exist, or holds something that is not a model."""


class JSONError(ValueError):
    """Raised for a file that is not JSON, or exceeds the bounds of `read_bounded_json`.

    # Parameters

    message : a predicate without a subject; the code that catches the error puts the name of the
        file before it.
    text : the content of the file, as far as it was read.
    """

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class Kind(Enum):
    """The kinds of models that a path may hold."""

    ARCHIVE = "the model.tar.gz of a trained model"
    TRAINED = "the folder of a trained model"
    TRANSFORMER = "a transformer of Hugging Face"
    SENTENCE_TRANSFORMERS = "a model of sentence-transformers"


def weights_of(folder: Path) -> Path | None:
    """Return the weight file in `folder` that AllenNLP would load, or `None` if there is none."""
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def named_as_archive(file: Path) -> bool:
    """Return whether `file` is a tar file, or has the name of one, as a damaged archive may."""
    return file.name.endswith(ARCHIVE_NAMES) or tarfile.is_tarfile(file)


def local_place(place: str | os.PathLike) -> Path:
    """Return the local path of a model, also of `~/name`; a URL is downloaded once and cached."""
    name = os.fspath(place)
    if "://" not in name:
        return local_path(name)
    from allennlp.common.file_utils import cached_path

    return Path(cached_path(name))


def require_model(place: Path, name: str = "") -> None:
    """Raise `NoModel` unless `place` is an archive or a model folder.

    # Parameters

    place : a local path.
    name : what the message calls it; the path by default.
    """
    name = name or str(place)
    if not place.exists():
        kind, _, rest = name.partition(":")
        named = f" Leave out '{kind}:', which is for evaluations." if kind in _OF_SPECS else ""
        raise NoModel(f"No model at '{name}'. {EXPECTED}{named if rest else ''}")
    if place.is_file():
        if not named_as_archive(place) and not is_gzip(place):
            raise NoModel(f"'{name}' is not an archive. {EXPECTED}")
    elif not (place / CONFIG).is_file() and not (place / MODULES).is_file():
        raise NoModel(f"'{name}' holds no {CONFIG}. {EXPECTED}")


def is_gzip(file: Path) -> bool:
    """Return whether `file` begins with the magic number of gzip."""
    with file.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP


def kind_of(place: Path) -> Kind:
    """Return the kind of the model at a local path.

    # Raises

    `NoModel` : if there is no model.
    `UnsafeArchive` : if `config.json` is larger or nested more deeply than a configuration is.
    """
    require_model(place)
    if place.is_file():
        return Kind.ARCHIVE
    if (place / MODULES).is_file():
        return Kind.SENTENCE_TRANSFORMERS
    try:
        content = read_bounded_json(place / CONFIG)
    except JSONError as error:
        # It may be Jsonnet, which is refused with a better message when the archive is opened.
        if error.text:
            return Kind.TRAINED
        raise UnsafeArchive(f"'{place}': {CONFIG} {error}.") from None
    has_type = isinstance(content, dict) and "model_type" in content
    return Kind.TRANSFORMER if has_type else Kind.TRAINED


def is_transformer(place: Path) -> bool:
    """Return whether `place` is a folder of Hugging Face transformers or sentence-transformers.

    # Raises

    `UnsafeArchive` : under the conditions of `kind_of`.
    """
    try:
        return kind_of(place) in (Kind.TRANSFORMER, Kind.SENTENCE_TRANSFORMERS)
    except NoModel:
        return False


def read_bounded_json(
    file: Path, *, limit: int = CONFIGURATION_BYTES, constants: bool = True
) -> Any:
    """Return the parsed content of a JSON file in UTF-8.

    # Parameters

    file : the path of the file.
    limit : its maximum size in bytes.
    constants : whether to accept `NaN` and `Infinity`, which Python parses and JSON does not have.

    # Raises

    `JSONError` : if the file is larger, is nested more deeply than `MAX_DEPTH`, repeats a key in
        one object (parsers would disagree about its value), or is not JSON.
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
    """Yield every value nested inside a JSON value, in depth-first order.

    # Parameters

    value : a JSON value; it is not yielded itself.
    path : the keys that lead to `value`; every yielded path begins with them.

    # Returns

    Pairs of a path and the value there:

        >>> list(entries({"a": [1]}))
        [(('a',), [1]), (('a', 0), 1)]
    """
    left = [(path, value)]  # A stack instead of recursion: input may be nested to any depth.
    while left:
        where, held = left.pop()
        if where != path:
            yield where, held
        left += [((*where, key), item) for key, item in reversed(_inside(held))]


def _inside(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
