"""What the files of a transformer may say, in a folder, in an archive or on the hub."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from declutr.archives.layout import CONFIG
from declutr.archives.model_files import ModelFiles
from declutr.archives.refusal import TRUST, UnsafeArchive
from declutr.archives.safety.plain_json import dotted, entries, leads_outside, nearest_key
from declutr.archives.safety.remote_code import check_no_remote_code
from declutr.archives.safety.tensor_files import check_no_pickle
from declutr.system.bounded_json import CONFIGURATION_BYTES, JSONError, read_bounded_json

TOKENIZER_SETTINGS_BYTES = 2**23  # thousands of added tokens are listed in there
VOCABULARY_BYTES = 2**26

_TOKENIZER, _ADAPTER = "tokenizer_config.json", "adapter_config.json"
_SETTINGS = {
    CONFIG: CONFIGURATION_BYTES,
    "generation_config.json": CONFIGURATION_BYTES,
    _TOKENIZER: TOKENIZER_SETTINGS_BYTES,
    "special_tokens_map.json": TOKENIZER_SETTINGS_BYTES,
    "added_tokens.json": TOKENIZER_SETTINGS_BYTES,
}
_VOCABULARIES = (".json", ".txt", ".model", ".jinja")
_WEIGHTS = re.compile(r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)")
# Of a tokenizer's settings: what is not read, and what is text.
_NOT_READ = ("special_tokens_map_file", "name_or_path", "_name_or_path")
_TEXT = re.compile(r"^(added_tokens_decoder|chat_template|.*special_tokens|.*_tokens?)$")


def check_transformer(place: str, *, folder: str = "", revision: str | None = None) -> None:
    """Refuse a transformer that brings code or names files elsewhere, before it is loaded.

    Of one on the hub, the settings are looked at. Its weights are read as tensors in any case.

    # Parameters

    place : a folder, or a name on the hub.
    folder : where below it the transformer lies.
    revision : branch, tag or commit of a name.

    # Raises

    `UnsafeArchive` : it is refused; the message says which file and why.
    """
    files = ModelFiles(place, revision)
    if files.local:
        for file in sorted(Path(place, folder).iterdir()):
            if file.is_file():
                check_transformer_file(file, f"{place}: {(PurePosixPath(folder) / file.name)}")
        for file in _weights(Path(place, folder)):
            check_no_pickle(file, f"{place}: {(PurePosixPath(folder) / file.name)}")
        return
    for name in (CONFIG, _TOKENIZER):
        found = files.find(f"{folder}/{name}")
        if found is not None:
            check_transformer_file(found, f"{place}: {name}")


def check_transformer_file(file: Path, name: str) -> None:
    """Look at one file beside a transformer, if loading that would read it.

    # Parameters

    file : where it is.
    name : what to call it.

    # Raises

    `UnsafeArchive` : it names code, other files or another model, or is larger than such files are.
    """
    if file.name == _ADAPTER:
        raise UnsafeArchive(f"{name} has another model loaded, to which it belongs. {TRUST}")
    if file.name in _SETTINGS:
        settings = _read(file, name, _SETTINGS[file.name])
        check_no_remote_code(settings, name)
        if file.name == _TOKENIZER:
            _check_tokenizer(settings, name)
    elif file.name.endswith(".index.json"):
        _check_index(_read(file, name, VOCABULARY_BYTES), name)
    elif file.suffix in _VOCABULARIES and file.stat().st_size > VOCABULARY_BYTES:
        raise UnsafeArchive(
            f"{name} has {file.stat().st_size / 2**20:,.1f} MiB; expected at most "
            f"{VOCABULARY_BYTES / 2**20:,.0f} MiB of such a file. {TRUST}"
        )


def weights_bytes(folder: Path) -> int:
    """How large the weights in the folder of a transformer are."""
    return sum(file.stat().st_size for file in _weights(folder))


def _weights(folder: Path) -> list[Path]:
    """Those that transformers loads: pickles only where there is nothing else."""
    found = [file for file in sorted(folder.iterdir()) if _WEIGHTS.fullmatch(file.name)]
    tensors = [file for file in found if file.suffix == ".safetensors"]
    return tensors or found


def _read(file: Path, name: str, limit: int) -> Any:
    try:
        content = read_bounded_json(file, limit=limit)
    except JSONError as error:
        raise UnsafeArchive(f"{name} {error}. {TRUST}") from None
    if not isinstance(content, dict):
        raise UnsafeArchive(f"{name} should hold a JSON object. Get it anew.")
    return content


def _check_tokenizer(settings: dict[str, Any], name: str) -> None:
    for path, value in entries(settings):
        key = nearest_key(path)
        if path[0] in _NOT_READ or _TEXT.match(str(path[0])) or not isinstance(value, str):
            continue
        if path[0] == "auto_map":  # said to be code already, unless it is empty
            continue
        # transformers took a tokenizer's files from its settings, before those beside them.
        if key.endswith("_file") or (leads_outside(value) and any(c.isalnum() for c in value)):
            raise UnsafeArchive(
                f"{name}: '{dotted(path)}' names a file, {value!r}; expected it beside the "
                f"settings. {TRUST}"
            )
        if key == "mecab_option" and value.strip():
            raise UnsafeArchive(
                f"{name}: '{dotted(path)}' is {value!r}; options of MeCab can name files. {TRUST}"
            )


def _check_index(index: dict[str, Any], name: str) -> None:
    """Weights in several files are read from where their index says."""
    shards = index.get("weight_map")
    for shard in set(shards.values()) if isinstance(shards, dict) else ():
        if not isinstance(shard, str) or not _WEIGHTS.fullmatch(PurePosixPath(shard).name):
            raise UnsafeArchive(f"{name} names weights in {shard!r}, which is no file of weights.")
        if PurePosixPath(shard).name != shard:
            raise UnsafeArchive(f"{name} names weights in '{shard}'; expected them beside it.")
