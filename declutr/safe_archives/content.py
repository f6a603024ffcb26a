"""What an extracted archive, or a serialization folder, may hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from declutr.archives import FOLDER as TRANSFORMERS
from declutr.safe_archives.configuration import check_configuration
from declutr.safe_archives.plain_json import read_plain_json
from declutr.safe_archives.refusal import TRUST, UnsafeArchive
from declutr.safe_archives.remote_code import check_no_remote_code
from declutr.safe_archives.tensor_files import check_no_pickle

_CONFIG = "config.json"
_NAMES = "names.json"  # these two as `declutr.archives` writes them
_ARCHIVES = "archives.json"
_VOCABULARY = "vocabulary"
_NOT_READ = ("special_tokens_map_file",)  # which saved tokenizers may still hold
_WEIGHTS = ("weights.th", "best.th")  # as AllenNLP chooses: the first that is there


def check_content(folder: Path, trust: bool = False, everything: bool = True) -> None:
    """Refuse files that would run code or name others when a model is loaded from `folder`.

    # Parameters

    folder : an extracted archive or a serialization folder, with its `config.json`.
    trust : allow what the configuration names and the code it brings; tensors are still tensors.
    everything : look at every file; otherwise at what loading reads, as in a folder in which other
        things, such as checkpoints of the training, may lie too.

    # Raises

    `UnsafeArchive` : it is refused; the message says which file and why.
    `FileNotFoundError` : there is no `config.json`.
    """
    config = folder / _CONFIG
    if not config.is_file():
        raise FileNotFoundError(f"'{folder}' holds no {_CONFIG}. Expected that of a trained model.")
    try:
        _check(folder, config, trust, everything)
    except RecursionError:
        raise UnsafeArchive("A JSON file in it is nested too deeply.") from None


def _check(folder: Path, config: Path, trust: bool, everything: bool) -> None:
    _check_configurations(folder, trust)
    for file in sorted(_every_file(folder) if everything else _loaded_files(folder)):
        name = file.relative_to(folder).as_posix()
        if name.startswith(f"{_VOCABULARY}/"):
            _require_text(file, name)
        check_no_pickle(file, name)
        if not trust and file != config and file.match("*config*.json"):
            settings = read_plain_json(file)
            check_no_remote_code(settings, name)
            if file.name == "tokenizer_config.json":
                _check_tokenizer(settings, name)


def _check_configurations(folder: Path, trust: bool) -> None:
    """Of a model, and of the trained archives it carries parts of."""
    config = folder / _CONFIG
    transformers = _carried(folder / TRANSFORMERS, _NAMES)
    archives = _carried(folder / TRANSFORMERS, _ARCHIVES)
    if not trust:
        check_configuration(config, set(transformers), set(archives))
    for inner in archives.values():
        if not (inner / _CONFIG).is_file():
            raise UnsafeArchive(f"The archive it carries in '{inner.name}' holds no {_CONFIG}.")
        try:
            _check_configurations(inner, trust)
        except UnsafeArchive as error:
            raise UnsafeArchive(f"In '{inner.name}', which it carries, {error}") from None


def _carried(transformers: Path, file: str) -> dict[str, Path]:
    """Folders of what `declutr.archives` put in, by name."""
    if not (transformers / file).is_file():
        return {}
    called = f"{TRANSFORMERS}/{file}"
    names = read_plain_json(transformers / file)
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        raise UnsafeArchive(f"{called} should map names to folders beside it.")
    folders = {}
    for name, place in names.items():
        target = (transformers / place).resolve() if place.isprintable() else transformers
        if transformers.resolve() not in target.parents or not target.is_dir():
            raise UnsafeArchive(
                f"{called} says that '{name}' lies in '{place}', which is no folder beside it."
            )
        folders[name] = target
    return folders


def _check_tokenizer(settings: Any, name: str) -> None:
    """transformers takes a tokenizer's files from its settings, before those beside them."""
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key.endswith("_file") and key not in _NOT_READ and value is not None:
            raise UnsafeArchive(
                f"{name}: '{key}' names a file, {value!r}; expected it beside the settings. {TRUST}"
            )


def _every_file(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())


def _loaded_files(folder: Path) -> Iterator[Path]:
    weights = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    yield from weights[:1]
    for name in (_VOCABULARY, TRANSFORMERS):
        yield from _every_file(folder / name)


def _require_text(file: Path, name: str) -> None:
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafeArchive(f"{name} is no UTF-8 text ({error}), as vocabularies are.") from None
    if "\0" in text:
        raise UnsafeArchive(f"{name} holds zero bytes; vocabularies are text.")
