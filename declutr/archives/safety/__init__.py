"""Safe loading of untrusted archives: none of their code runs, and no file outside is touched.

There are three barriers:

1. Extraction (`extraction`) writes nothing but regular files and folders into a folder of its own.
2. `check_content` inspects the content before anything is built from it. It accepts plain JSON,
   tensors and text, and refuses code, references to other archives, and files outside.
3. While AllenNLP builds a model (`building`), it imports nothing for the sake of a name, and builds
   no more parameters than the weights account for.

`trust` lifts the second and the third for archives that the user made, except that weight files
must always hold nothing but tensors; it never lifts the first. A transformer without an archive is
inspected in the same way (`check_transformer`).

Registered classes are trusted with the arguments they take. A plugin of the user that executes an
argument therefore does so for every archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
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
from declutr.archives.safety.files import check_no_pickle, check_transformer, check_transformer_file
from declutr.system import raised_as

if TYPE_CHECKING:  # Inspecting a transformer needs no AllenNLP, whose import takes seconds.
    from allennlp.models.archival import Archive


def __getattr__(name: str) -> Any:
    """Return a name of `declutr.archives.safety.extraction`, which a folder needs none of."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.extraction"), name)


@contextmanager
def opened_archive(place: str | os.PathLike, trust: bool = False) -> Iterator[Path]:
    """Return a context with a folder of checked content, from which AllenNLP may build a model.

    A `model.tar.gz` is extracted into a temporary folder that is deleted on exit, so everything has
    to be read inside the context. A folder is used in place.

    # Parameters

    place : a serialization directory, an archive, or the URL of one.
    trust : whether to allow Jsonnet, types that must be imported, other archives, and remote code.

    # Raises

    `UnsafeArchive` : if the archive is refused; the message says why. Inside the context, AllenNLP
        raises it for a name that it would have to import.
    `BrokenArchive` : if a file is not a gzipped tar file, is damaged, or is truncated.
    `declutr.archives.NoModel` : if there is no model at `place`.
    """
    name = os.fspath(place)
    path = local_place(name).expanduser()
    require_model(path, name)
    with ExitStack() as stack:
        try:
            folder = path if path.is_dir() else stack.enter_context(_extracted(path))
        # Messages name the local copy of a download, which means nothing to the user.
        except (BrokenArchive, UnsafeArchive) as error:
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


def _extracted(archive: Path) -> AbstractContextManager[Path]:
    from declutr.archives.safety.extraction import extracted  # not needed for a folder

    return extracted(archive)


def safely_loaded_archive(
    place: str | os.PathLike,
    *,
    cuda_device: int = -1,
    overrides: str | Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Archive:
    """Load an untrusted archive and return AllenNLP's `Archive` of it.

    # Parameters

    place : a serialization directory, an archive, or the URL of one.
    cuda_device : the GPU to load the model to; -1 is the CPU.
    overrides : changes of the configuration, as JSON or a dictionary; the caller vouches for them.
    trust : whether to allow Jsonnet, types that must be imported, other archives, and remote code.

    # Raises

    `UnsafeArchive`, `BrokenArchive`, `declutr.archives.NoModel` : under the conditions of
        `opened_archive`.
    """
    from allennlp.models.archival import load_archive

    changes = overrides if isinstance(overrides, str) else dict(overrides or {})
    with opened_archive(place, trust) as folder:
        return load_archive(folder, cuda_device=cuda_device, overrides=changes)


def check_content(folder: Path, trust: bool = False, everything: bool = True) -> None:
    """Refuse a folder if loading a model from it would run code or read files elsewhere.

    # Parameters

    folder : an extracted archive, a serialization directory, or the folder of a transformer, with
        its `config.json` or `modules.json`.
    trust : whether to allow everything that the configuration names and the code it brings. Weight
        files must hold nothing but tensors all the same.
    everything : whether to check every file. Otherwise only those that loading reads are checked,
        because a serialization directory also holds other files, such as checkpoints.

    # Raises

    `UnsafeArchive` : if the folder is refused; the message names the file and the reason.
    `BrokenArchive` : if a file of tensors is damaged.
    `declutr.archives.NoModel` : if there is no `config.json`.
    """
    require_model(folder)
    configurations = _check_configurations(folder, trust)
    for file in sorted(_every_file(folder) if everything else _loaded_files(folder)):
        name = file.relative_to(folder).as_posix()
        if name.startswith(f"{VOCABULARY}/"):
            _require_text(file, name)
        check_no_pickle(file, name)
        # Elsewhere in an archive, a file with the name of transformer settings is never read.
        if not trust and name.startswith(f"{TRANSFORMERS}/") and file not in configurations:
            check_transformer_file(file, name)
    if not trust and is_transformer(folder):
        from declutr.archives.sentence_transformers_folder import NotFollowed, transformer_folder

        with raised_as(UnsafeArchive, NotFollowed):
            inside = transformer_folder(str(folder))
        check_transformer(str(folder), folder=inside)


def _check_configurations(folder: Path, trust: bool) -> list[Path]:
    """Check the configurations of a model and of the archives it carries; return their files."""
    config = folder / CONFIG
    if not config.is_file():  # a sentence-transformers folder, which has `modules.json` instead
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
    """Return the folders that `declutr.archives.carried` put into an archive, by name."""
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
