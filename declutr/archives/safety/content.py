"""Inspection of the content of an archive before anything is built from it."""

from collections.abc import Iterator
from pathlib import Path

from declutr.archives import (
    ARCHIVES,
    CONFIG,
    NAMES,
    TRANSFORMERS,
    TRUST,
    VOCABULARY,
    UnsafeArchive,
    is_transformer,
    require_model,
    weights_of,
)
from declutr.archives.safety.configuration import check_configuration
from declutr.archives.safety.files import check_no_pickle, check_transformer, check_transformer_file
from declutr.archives.safety.overrides import Overrides
from declutr.archives.safety.plain_json import read_plain_json
from declutr.system import raised_as


def check_content(
    folder: Path,
    trust: bool = False,
    everything: bool = True,
    *,
    overrides: Overrides = None,
    evaluation: bool = False,
) -> None:
    """Refuse a folder if loading a model from it would run code or read files elsewhere.

    # Parameters

    folder : an extracted archive, a serialization directory, or the folder of a transformer, with
        its `config.json` or `modules.json`.
    trust : whether to allow everything that the configuration names and the code it brings. Weight
        files must hold nothing but tensors all the same.
    everything : whether to check every file. Otherwise only those that loading reads are checked,
        because a serialization directory also holds other files, such as checkpoints.
    overrides, evaluation : see `declutr.archives.safety.configuration.check_configuration`.

    # Raises

    `UnsafeArchive` : if the folder is refused; the message names the file and the reason.
    `BrokenArchive` : if a file of tensors is damaged.
    `declutr.archives.NoModel` : if there is no `config.json`.
    """
    require_model(folder)
    if not trust:
        _refuse_links_out(folder)
    configurations = _check_configurations(folder, trust, overrides, evaluation)
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


def _check_configurations(
    folder: Path, trust: bool, overrides: Overrides = None, evaluation: bool = False
) -> list[Path]:
    """Check the configurations of a model and of the archives it carries; return their files."""
    # AllenNLP would extract a file there as an archive, through links and to any place.
    if (folder / VOCABULARY).exists() and not (folder / VOCABULARY).is_dir():
        raise UnsafeArchive(f"'{VOCABULARY}' is a file; expected a folder. Take it out.")
    config = folder / CONFIG
    if not config.is_file():  # a sentence-transformers folder, which has `modules.json` instead
        return []
    checked = [config]
    transformers = _carried(folder / TRANSFORMERS, NAMES)
    # Loading replaces nothing without the names of transformers, be there none.
    replaced = (folder / TRANSFORMERS / NAMES).is_file()
    archives = _carried(folder / TRANSFORMERS, ARCHIVES) if replaced else {}
    if not trust:
        names = check_configuration(
            config, set(transformers), set(archives), overrides=overrides, evaluation=evaluation
        )
        for name in sorted(names):
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


def _refuse_links_out(folder: Path) -> None:
    """Refuse links out of a folder, except into the blobs of the hub's cache that it lies in.

    Links that lead nowhere count as well: the lock of a vocabulary would be created where they do.
    """
    root = folder.resolve()
    caches = [
        above.parents[1] for above in (root, *root.parents) if above.parent.name == "snapshots"
    ]
    allowed = (root, *(cache / "blobs" for cache in caches))
    for name in (VOCABULARY, TRANSFORMERS):
        for file in (folder / name, *(folder / name).rglob("*")):
            place = file.resolve()
            if not any(inside in place.parents for inside in allowed):
                link = file.relative_to(folder).as_posix()
                raise UnsafeArchive(f"{link} is a link to '{place}', outside the folder. {TRUST}")


def _require_text(file: Path, name: str) -> None:
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafeArchive(f"{name} is no UTF-8 text ({error}), as vocabularies are.") from None
    if "\0" in text:
        raise UnsafeArchive(f"{name} holds zero bytes; vocabularies are text.")
