"""What single files of a model may hold: tensors and nothing else, and settings of a transformer.

torch writes tensors as pickles, which are programs.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from declutr.archives import (
    CONFIG,
    CONFIGURATION_BYTES,
    TRUST,
    BrokenArchive,
    JSONError,
    UnsafeArchive,
    entries,
    read_bounded_json,
)
from declutr.archives.safety.configuration import (
    check_no_remote_code,
    leads_outside,
    nearest_key,
    refuse_if,
)
from declutr.system.files import damage_of_records

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
_TENSORS = (".th", ".pt", ".pth", ".bin", ".ckpt")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill")
_ZIP = b"PK\x03\x04"  # by which torch, too, tells its format since 1.6 from the one before
_STARTS_AS_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_GLOBAL = re.compile(r"GLOBAL (\S+)")


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
    if Path(place).is_dir():
        below = Path(place, folder)
        for file in sorted(below.iterdir()):
            if file.is_file():
                check_transformer_file(file, f"{place}: {(PurePosixPath(folder) / file.name)}")
        for file in _weights(below):
            check_no_pickle(file, f"{place}: {(PurePosixPath(folder) / file.name)}")
        return
    from declutr.archives.model_files import ModelFiles  # it is on the hub

    files = ModelFiles(place, revision)
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
    """Return how many bytes the weights in the folder of a transformer have."""
    return sum(file.stat().st_size for file in _weights(folder))


def _weights(folder: Path) -> list[Path]:
    """Return those that transformers loads: pickles only where there is nothing else."""
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
            refuse_if(f"names a file, {value!r}; expected it beside the settings", path, name)
        if key == "mecab_option" and value.strip():
            refuse_if(f"is {value!r}; options of MeCab can name files", path, name)


def _check_index(index: dict[str, Any], name: str) -> None:
    """Weights in several files are read from where their index says."""
    shards = index.get("weight_map")
    for shard in set(shards.values()) if isinstance(shards, dict) else ():
        if not isinstance(shard, str) or not _WEIGHTS.fullmatch(PurePosixPath(shard).name):
            raise UnsafeArchive(f"{name} names weights in {shard!r}, which is no file of weights.")
        if PurePosixPath(shard).name != shard:
            raise UnsafeArchive(f"{name} names weights in '{shard}'; expected them beside it.")


def check_no_pickle(file: Path, name: str) -> None:
    """Look at a file by its name and first bytes; pickles must be of tensors and nothing else.

    # Parameters

    file : where it is.
    name : what to call it.

    # Raises

    `UnsafeArchive` : it holds, or could hold, more than tensors. Nothing of it has been run.
    `BrokenArchive` : tensors are not those that were written.
    """
    if file.suffix == ".safetensors":  # its first bytes are a length, which can be anything
        return
    with file.open("rb") as opened:
        start = opened.read(6)
    if file.suffix in _PICKLES:
        raise UnsafeArchive(f"{name} is a pickle, which could run anything. Take it out.")
    if start == b"\x93NUMPY":
        _require_plain_array(file, name)
    elif file.suffix in _TENSORS or start.startswith(_ZIP) or _STARTS_AS_PICKLE.match(start):
        _require_tensors(file, name, packed=start.startswith(_ZIP))


def _require_tensors(file: Path, name: str, packed: bool) -> None:
    """Read a file as torch does with `weights_only=True`, whichever torch reads it afterwards.

    Tensors are mapped, and read once to compare checksums, except in the format before torch 1.6.
    """
    import torch

    try:
        if packed:
            _require_sound_records(file, name)
        torch.load(file, map_location="cpu", weights_only=True, mmap=packed)
    except (UnsafeArchive, BrokenArchive):
        raise
    except pickle.UnpicklingError as error:
        found = _GLOBAL.search(str(error))
        what = f"names {found[1]}" if found else "is a pickle of something else"
        raise UnsafeArchive(
            f"{name} should hold tensors only, but {what}: a pickle could run anything. Save it "
            "anew as a plain state dict."
        ) from None
    except Exception as error:  # a broken file can raise nearly anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UnsafeArchive(f"{name} cannot be read as tensors: {reason}. Get it anew.") from None


def _require_sound_records(file: Path, name: str) -> None:
    with zipfile.ZipFile(file) as opened:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in opened.infolist()):
            raise UnsafeArchive(
                f"{name} holds compressed records, as torch writes none: they could be of any size."
            )
    damage = damage_of_records(file)
    if damage is not None:
        raise BrokenArchive(f"{name} is damaged: {damage}. Get it anew.")


def _require_plain_array(file: Path, name: str) -> None:
    import numpy as np

    try:
        np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise UnsafeArchive(f"{name} is no plain array: {error} Take it out.") from None
