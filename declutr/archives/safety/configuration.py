"""What a `config.json` may make AllenNLP do when a model is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from declutr.archives.refusal import TRUST, UnsafeArchive
from declutr.archives.safety.plain_json import (
    KeyPath,
    dotted,
    entries,
    leads_outside,
    read_plain_json,
)
from declutr.archives.safety.registered_names import import_refused, is_registered
from declutr.archives.safety.remote_code import check_no_remote_code

_READERS = ("dataset_reader", "validation_dataset_reader")
# What loading builds. The other sections may name the files of the machine that trained: nothing
# reads them. Of the vocabulary only the type counts.
_BUILT = ("model", *_READERS)
_SECTIONS = (*_BUILT, "vocabulary")
_STRIPPED = ("initializer", "pretrained_file")  # AllenNLP's `remove_keys_from_params`
_FILE_KEY = re.compile(r"(^|_)(file|path|dir|directory|folder)s?$")
_COMPILE = ("mode", "dynamic", "fullgraph", "disable")
# AllenNLP has spaCy import, or else download and install, the package of this name.
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[a-z]+_[a-z]+_(sm|md|lg|trf))?")


def check_configuration(file: Path, transformers: set[str], archives: set[str]) -> set[str]:
    """Refuse a configuration that names anything outside its archive, or code.

    Returns the transformers of the hub that it names, which the archive does not carry.

    # Parameters

    file : a `config.json`.
    transformers, archives : names of those that the archive itself holds.

    # Raises

    `UnsafeArchive` : it is not plain JSON, names a class that would have to be imported, another
        archive, code from the web, options by which the compiler runs programs, or local files.
    """
    config = read_plain_json(file)
    if not isinstance(config, dict):
        raise UnsafeArchive(f"{file.name} holds no JSON object. Expected a configuration.")
    check_no_remote_code(config, file.name)
    for path, value in entries(config):
        _check_type(path, value, file.name)
        reason = _nested_archive(path, value)
        if reason:
            raise UnsafeArchive(f"{file.name}: '{dotted(path)}' {reason}. {TRUST}")
    config = _without_synonyms(_without_carried(config, transformers, archives))
    for path, value in _built_entries(config):
        reason = _options_that_run(path, value) or _outside(path, value)
        if reason:
            raise UnsafeArchive(f"{file.name}: '{dotted(path)}' {reason}. {TRUST}")
    return {
        value
        for path, value in _built_entries(config)
        if path[-1] == "model_name" and isinstance(value, str) and value
    }


def _check_type(path: KeyPath, value: Any, file: str) -> None:
    """Names without a dot import nothing: if they are not registered, AllenNLP lists those that
    are. They may also be values of something else, such as `"rope_scaling": {"type": "yarn"}`."""
    is_type = path[-1] == "type" or (len(path) == 1 and path[0] in _SECTIONS)
    if is_type and isinstance(value, str) and "." in value and not is_registered(value):
        raise import_refused(file, f"'{dotted(path)}'", value)


def _nested_archive(path: KeyPath, value: Any) -> str | None:
    root = len(path) == 1 and path[0] in _SECTIONS
    if value == "from_archive" and (path[-1] == "type" or root):
        return "loads another archive"
    if path[-1] in ("archive_file", "_pretrained"):
        return "names another archive"
    return None


def _options_that_run(path: KeyPath, value: Any) -> str | None:
    if path[-1] == "compile" and isinstance(value, dict):
        others = sorted(set(value) - set(_COMPILE))
        if others:
            return f"gives torch.compile {others}, which can name programs to run"
    if path[-1] == "language" and isinstance(value, str) and not _LANGUAGE.fullmatch(value):
        return f"is '{value}', a package that spaCy would import. Expected one of spaCy's models"
    return None


def _outside(path: KeyPath, value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    if path[-1] == "archive":
        return f"is '{value}', another archive, of which this one carries nothing"
    if path[-1] == "model_name":
        # transformers looks for a folder before it asks the hub.
        if not leads_outside(value) and not os.path.exists(value):
            return None
        return f"is '{value}', a place outside the archive, which does not carry this transformer"
    if path[0] in _READERS and path[1:] == ("cache_dir",):  # used by `read`, not by loading
        return None
    # Punctuation alone is what tokenizers split at.
    leads = leads_outside(value) or ("/" in value and os.path.exists(value))
    leads = leads and any(character.isalnum() for character in value)
    if leads or any(_FILE_KEY.search(key) for key in path if isinstance(key, str)):
        return f"names a place outside the archive, '{value}'"
    return None


def _built_entries(config: dict[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    for section in _BUILT:
        value = config.get(section)
        if section == "model":
            value = _without_stripped(value)
        yield from entries(value, (section,))


def _without_synonyms(config: dict[str, Any]) -> dict[str, Any]:
    """Without the file of synonyms of a reader "augmented".

    No more than its name is kept when it is built, and what is built from an archive without trust
    augments nothing (`declutr.system.untrusted_parts`). The value has to be the name itself, in
    this one place: parts of other types may take the same key for something that they read.
    """
    kept = dict(config)
    for section in _READERS:
        reader = config.get(section)
        if not isinstance(reader, dict) or reader.get("type") != "augmented":
            continue
        augmentation = reader.get("augmentation")
        if not isinstance(augmentation, dict) or augmentation.get("type") != "eda":
            continue
        if isinstance(augmentation.get("synonyms"), str):
            others = {key: item for key, item in augmentation.items() if key != "synonyms"}
            kept[section] = {**reader, "augmentation": others}
    return kept


def _without_carried(value: Any, transformers: set[str], archives: set[str]) -> Any:
    """Without the names in whose place `declutr.archives.carried` puts folders of the archive."""
    if isinstance(value, list):
        return [_without_carried(item, transformers, archives) for item in value]
    if not isinstance(value, dict):
        return value
    replaced = {"model_name": transformers}
    if value.get("type") == "declutr":
        replaced["archive"] = archives
    return {
        key: _without_carried(item, transformers, archives)
        for key, item in value.items()
        if not (isinstance(item, str) and item in replaced.get(key, ()))
    }


def _without_stripped(value: Any) -> Any:
    """Without what AllenNLP leaves out of a model when it loads; inside lists it leaves nothing."""
    if not isinstance(value, dict):
        return value
    return {key: _without_stripped(v) for key, v in value.items() if key not in _STRIPPED}
