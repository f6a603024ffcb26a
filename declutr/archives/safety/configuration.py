"""What a configuration may say: a `config.json` of AllenNLP, and settings of a transformer.

AllenNLP evaluates `config.json` as Jsonnet, a language that reads files; only plain JSON is taken.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from declutr.archives import (
    CONFIGURATION_BYTES,
    TRUST,
    JSONError,
    KeyPath,
    UnsafeArchive,
    entries,
    read_bounded_json,
)
from declutr.archives.safety.building import import_refused, is_registered

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
_CODE_SWITCHES = ("trust_remote_code", "allow_all_kernels", "use_kernels")

# What Jsonnet has and JSON has not, outside of strings.
_JSONNET = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<comment>//|/\*|\#)|(?P<text>'|\|\|\|)"
    r"|\b(?P<word>importstr|importbin|import|function|local|std|self|super|error|assert|for|if)\b"
)
_JSONNET_KINDS = {"comment": "the comment", "text": "text in", "word": "the Jsonnet"}
_OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]|\.{1,2}([/\\]|$)")


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
    types: dict[KeyPath, Any] = {}
    for path, value in entries(config):
        _check_type(path, value, file.name)
        refuse_if(_nested_archive(path, value), path, file.name)
        if isinstance(value, dict):
            types[path] = value.get("type")

    def _is_carried(path: KeyPath, name: str) -> bool:
        """Return whether `declutr.archives.carried` puts a folder of the archive in its place."""
        if path[-1] == "archive" and types.get(path[:-1]) == "declutr":
            return name in archives
        return path[-1] == "model_name" and name in transformers

    named = set()
    for section in _BUILT:
        for path, value in entries(config.get(section), (section,)):
            if _is_stripped(path):
                continue
            if isinstance(value, str):
                if _is_synonyms(path, types) or _is_carried(path, value):
                    continue
                if path[-1] == "model_name" and value:
                    named.add(value)
            refuse_if(_options_that_run(path, value) or _outside(path, value), path, file.name)
    return named


def refuse_if(reason: str | None, path: KeyPath, file: str) -> None:
    """Raise `UnsafeArchive` if there is a reason why what stands at a path is not safe."""
    if reason:
        raise UnsafeArchive(f"{file}: '{dotted(path)}' {reason}. {TRUST}")


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
    leads = leads_outside(value) or ("/" in value and os.path.exists(value))
    # Punctuation alone is what tokenizers split at.
    leads = leads and any(character.isalnum() for character in value)
    if leads or any(_FILE_KEY.search(key) for key in path if isinstance(key, str)):
        return f"names a place outside the archive, '{value}'"
    return None


def _is_stripped(path: KeyPath) -> bool:
    """Return whether AllenNLP leaves this out of a model when it loads; inside lists nothing is."""
    for key in path[1:] if path[0] == "model" else ():
        if isinstance(key, int):
            return False
        if key in _STRIPPED:
            return True
    return False


def _is_synonyms(path: KeyPath, types: dict[KeyPath, Any]) -> bool:
    """Return whether this is the file of synonyms of a reader "augmented".

    No more than its name is kept when it is built, and what is built from an archive without trust
    augments nothing (`is_untrusted`). The value has to be the name itself, in this one place: parts
    of other types may take the same key for something that they read.
    """
    if path[0] not in _READERS or path[1:] != ("augmentation", "synonyms"):
        return False
    return types.get(path[:1]) == "augmented" and types.get(path[:2]) == "eda"


def check_no_remote_code(content: Any, file: str) -> None:
    """Look for keys by which transformers runs code that is not its own, anywhere in settings.

    # Raises

    `UnsafeArchive` : `auto_map`, which names classes in Python files beside a checkpoint; a switch
        that lets such files run; an attention implementation from the hub.
    """
    for path, value in entries(content):
        refuse_if(_remote_code(path, value), path, file)


def _remote_code(path: KeyPath, value: Any) -> str | None:
    key = nearest_key(path)
    if key == "auto_map" and value:
        return "names Python code that transformers would run"
    # Any other value is true for `if`, the text "false" as well.
    if key in _CODE_SWITCHES and value not in (False, None):
        return f"is {value!r}, which lets code from the web run"
    chooses_attention = any("attn_implementation" in str(part) for part in path)
    if chooses_attention and isinstance(value, str) and "/" in value:
        return f"is {value!r}: attention from there is code, loaded from the web"
    return None


def read_plain_json(file: Path, limit: int = CONFIGURATION_BYTES) -> Any:
    """Return what a file of plain JSON holds, of `limit` bytes at most.

    # Raises

    `UnsafeArchive` : it is something else; the message names what stands there.
    """
    try:
        return read_bounded_json(file, limit=limit, constants=False)
    except JSONError as error:
        if not error.text:
            raise UnsafeArchive(f"{file.name} {error}. {TRUST}") from None
        found = _what_stands_there(error.text)
        wrong = f"is not plain JSON: {found}" if found else error
        raise UnsafeArchive(
            f"{file.name} {wrong}. A configuration in Jsonnet can read files, so it is not "
            f"evaluated. {TRUST}"
        ) from None


def _what_stands_there(text: str) -> str | None:
    for match in _JSONNET.finditer(text):
        if match.lastgroup:
            line = text.count("\n", 0, match.start()) + 1
            return f"line {line} has {_JSONNET_KINDS[match.lastgroup]} `{match[match.lastgroup]}`"
    return None


def dotted(path: KeyPath) -> str:
    """Return the path as in AllenNLP's overrides: `model.encoders.0.type`."""
    return ".".join(str(key) for key in path)


def nearest_key(path: KeyPath) -> str:
    """Return the last key of a path, past the positions in lists."""
    return next((key for key in reversed(path) if isinstance(key, str)), "")


def leads_outside(value: str) -> bool:
    """Return whether a text is a path to somewhere else, or a URL."""
    return bool(_OUTSIDE.match(value) or "://" in value or ".." in re.split(r"[/\\]", value))
