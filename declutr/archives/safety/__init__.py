"""Archives of others: loading one runs none of its code and touches no file outside it.

Three walls. Extraction (`extraction`) writes regular files into a folder of its own. The content is
looked at before anything is built from it (`check_content`): plain JSON, tensors, text; no code of
others, no other archives, no files outside. And while AllenNLP builds, it imports nothing that a
name asks for, and builds no more than there are weights for (`building`). `trust` opens the second
and the third for what one made oneself, except that tensors are tensors; the first stands. A
transformer alone is looked at in the same way (`check_transformer`).

Registered classes are trusted with the arguments they take: a plugin of one's own that runs what an
argument says does so for any archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.archives import (
    ARCHIVES,
    CONFIG,
    NAMES,
    TRANSFORMERS,
    VOCABULARY,
    BrokenArchive,
    UnsafeArchive,
    is_transformer,
    local_place,
    require_model,
    weights_of,
)
from declutr.archives.safety.building import parameters_in_proportion, registered_names_only
from declutr.archives.safety.configuration import check_configuration, read_plain_json
from declutr.archives.safety.extraction import extract as extract
from declutr.archives.safety.extraction import extracted
from declutr.archives.safety.files import (
    check_no_pickle,
    check_transformer,
    check_transformer_file,
)

if TYPE_CHECKING:  # looking at a transformer needs no AllenNLP, which takes seconds
    from allennlp.models.archival import Archive


@contextmanager
def opened_archive(place: str | os.PathLike, trust: bool = False) -> Iterator[Path]:
    """Return a context with a folder whose content has been checked; AllenNLP may build from it.

    A `model.tar.gz` is extracted into a temporary folder, which is gone on exit: what is read from
    it must have been read by then. A folder is used as it is.

    # Parameters

    place : a serialization folder, an archive, or a URL of one.
    trust : allow Jsonnet, types that are imported, other archives and remote code.

    # Raises

    `UnsafeArchive` : it is refused; the message says why. Inside, AllenNLP raises it for a name
        that it would have to import.
    `BrokenArchive` : a file that is no gzipped tar, damaged, or cut off.
    `declutr.archives.NoModel` : there is nothing, or something else.
    """
    name = os.fspath(place)
    path = local_place(name).expanduser()
    require_model(path, name)
    with ExitStack() as stack:
        try:
            folder = path if path.is_dir() else stack.enter_context(extracted(path))
        except (BrokenArchive, UnsafeArchive) as error:  # by the name it was given
            raise type(error)(str(error).replace(str(path), name)) from error.__cause__
        require_model(folder, name)
        try:
            check_content(folder, trust, everything=folder != path)
        except (BrokenArchive, UnsafeArchive) as error:
            raise type(error)(f"{name}: {error}") from None
        if not trust:
            weights = weights_of(folder)
            stack.enter_context(parameters_in_proportion(weights.stat().st_size if weights else 0))
            stack.enter_context(registered_names_only())
        yield folder


def safely_loaded_archive(
    place: str | os.PathLike,
    *,
    cuda_device: int = -1,
    overrides: str | Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Archive:
    """Return AllenNLP's `Archive` of a model that others may have made: see `opened_archive`.

    # Parameters

    place, trust : as for `opened_archive`.
    cuda_device : where the model goes; -1 is the CPU.
    overrides : keys of the configuration to change, from the caller and not from the archive.

    # Raises

    As `opened_archive` does.
    """
    from allennlp.models.archival import load_archive

    changes = overrides if isinstance(overrides, str) else dict(overrides or {})
    with opened_archive(place, trust) as folder:
        return load_archive(folder, cuda_device=cuda_device, overrides=changes)


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
    `declutr.archives.NoModel` : there is no `config.json`.
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
        from declutr.archives.sentence_transformers_folder import NotFollowed, transformer_folder

        try:
            inside = transformer_folder(str(folder))
        except NotFollowed as error:
            raise UnsafeArchive(str(error)) from error
        check_transformer(str(folder), folder=inside)


def _check_configurations(folder: Path, trust: bool) -> list[Path]:
    """Check those of a model, and of trained archives it carries parts of; return their files."""
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
    """Return the folders of what `declutr.archives.carried` put in, by name."""
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
