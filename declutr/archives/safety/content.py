"""What an extracted archive, or a serialization folder, may hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from declutr.archives.layout import (
    ARCHIVES,
    CONFIG,
    NAMES,
    TRANSFORMERS,
    VOCABULARY,
    weights_of,
)
from declutr.archives.places import is_transformer, require_model
from declutr.archives.refusal import UnsafeArchive
from declutr.archives.safety.configuration import check_configuration
from declutr.archives.safety.plain_json import read_plain_json
from declutr.archives.safety.tensor_files import check_no_pickle
from declutr.archives.safety.transformer_files import check_transformer, check_transformer_file
from declutr.archives.sentence_transformers_folder import NotFollowed, transformer_folder


def check_content(folder: Path, trust: bool = False, everything: bool = True) -> None:
    """Refuse files that would run code or name others when a model is loaded from `folder`.

    # Parameters

    folder : an extracted archive, a serialization folder, or one of a transformer, with its
        `config.json` (or `modules.json`).
    trust : allow what the configuration names and the code it brings; tensors are still tensors.
    everything : look at every file; otherwise at what loading reads, as in a folder in which other
        things, such as checkpoints of the training, may lie too.

    # Raises

    `UnsafeArchive` : it is refused; the message says which file and why.
    `BrokenArchive` : a file of tensors is damaged.
    `declutr.archives.places.NoModel` : there is no `config.json`.
    """
    require_model(folder)
    configurations = _check_configurations(folder, trust)
    for file in sorted(_every_file(folder) if everything else _loaded_files(folder)):
        name = file.relative_to(folder).as_posix()
        if name.startswith(f"{VOCABULARY}/"):
            _require_text(file, name)
        check_no_pickle(file, name)
        # Of the files beside them, only those of a transformer are settings of one.
        if not trust and name.startswith(f"{TRANSFORMERS}/") and file not in configurations:
            check_transformer_file(file, name)
    if not trust and is_transformer(folder):
        try:
            inside = transformer_folder(str(folder))
        except NotFollowed as error:
            raise UnsafeArchive(str(error)) from error
        check_transformer(str(folder), folder=inside)


def _check_configurations(folder: Path, trust: bool) -> list[Path]:
    """Of a model, and of the trained archives it carries parts of; returns their files."""
    config = folder / CONFIG
    if not config.is_file():  # there are modules instead
        return []
    checked = [config]
    transformers = _carried(folder / TRANSFORMERS, NAMES)
    archives = _carried(folder / TRANSFORMERS, ARCHIVES)
    if not trust:
        for name in sorted(check_configuration(config, set(transformers), set(archives))):
            check_transformer(name)
    for inner in archives.values():
        if not (inner / CONFIG).is_file():
            raise UnsafeArchive(f"The archive it carries in '{inner.name}' holds no {CONFIG}.")
        try:
            checked += _check_configurations(inner, trust)
        except UnsafeArchive as error:
            raise UnsafeArchive(f"In '{inner.name}', which it carries, {error}") from None
    return checked


def _carried(transformers: Path, file: str) -> dict[str, Path]:
    """Folders of what `declutr.archives.carried` put in, by name."""
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


def _every_file(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())


def _loaded_files(folder: Path) -> Iterator[Path]:
    weights = weights_of(folder)
    if weights is not None:
        yield weights
    for name in (VOCABULARY, TRANSFORMERS):
        yield from _every_file(folder / name)


def _require_text(file: Path, name: str) -> None:
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafeArchive(f"{name} is no UTF-8 text ({error}), as vocabularies are.") from None
    if "\0" in text:
        raise UnsafeArchive(f"{name} holds zero bytes; vocabularies are text.")
