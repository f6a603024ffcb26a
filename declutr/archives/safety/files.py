"""Checks of the single files of an untrusted model: weights and settings of transformers.

torch saves tensors as pickles, which can run any code when they are loaded. Weight files must hold
nothing but tensors.
"""

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

TOKENIZER_SETTINGS_BYTES = 2**23
"""The maximum size of a file of tokenizer settings, which may list thousands of added tokens."""
VOCABULARY_BYTES = 2**26
"""The maximum size of a vocabulary file."""

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
# Keys of tokenizer settings that transformers never reads, and keys whose values are plain text.
_NOT_READ = ("special_tokens_map_file", "name_or_path", "_name_or_path")
_TEXT = re.compile(r"^(added_tokens_decoder|chat_template|.*special_tokens|.*_tokens?)$")
_TENSORS = (".th", ".pt", ".pth", ".bin", ".ckpt")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill")
_ZIP = b"PK\x03\x04"  # torch, too, tells its format since 1.6 by this from the earlier one
_STARTS_AS_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_GLOBAL = re.compile(r"GLOBAL (\S+)")


def check_transformer(place: str, *, folder: str = "", revision: str | None = None) -> None:
    """Refuse a transformer that brings code or names files elsewhere, before it is loaded.

    For a transformer on the hub only the settings are checked, as transformers itself loads weights
    from there as nothing but tensors.

    # Parameters

    place : a folder, or a name on the hub.
    folder : the folder of the transformer relative to `place`.
    revision : the branch, tag or commit of a repository on the hub.

    # Raises

    `UnsafeArchive` : if it is refused; the message names the file and the reason.
    """
    if Path(place).is_dir():
        below = Path(place, folder)
        for file in sorted(below.iterdir()):
            if file.is_file():
                check_transformer_file(file, f"{place}: {(PurePosixPath(folder) / file.name)}")
        for file in _weights(below):
            check_no_pickle(file, f"{place}: {(PurePosixPath(folder) / file.name)}")
        return
    from declutr.archives.model_files import ModelFiles

    files = ModelFiles(place, revision)
    for name in (CONFIG, _TOKENIZER, _ADAPTER):
        found = files.find(f"{folder}/{name}")
        if found is not None:
            check_transformer_file(found, f"{place}: {name}")


def check_transformer_file(file: Path, name: str) -> None:
    """Refuse a file in the folder of a transformer if loading the transformer from there is unsafe.

    Files that loading does not read pass unchecked.

    # Raises

    `UnsafeArchive` : if it names code, other files or another model, or is larger than such a file
        should be.
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
    """Return the size in bytes of the weights in the folder of a transformer."""
    return sum(file.stat().st_size for file in _weights(folder))


def _weights(folder: Path) -> list[Path]:
    """Return the weight files that transformers loads: pickles only without safetensors files."""
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
        if path[0] == "auto_map":  # `check_no_remote_code` has refused it already unless empty
            continue
        # Some releases of transformers prefer files that the settings name to those beside them.
        if key.endswith("_file") or (leads_outside(value) and any(c.isalnum() for c in value)):
            refuse_if(f"names a file, {value!r}; expected it beside the settings", path, name)
        if key == "mecab_option" and value.strip():
            refuse_if(f"is {value!r}; options of MeCab can name files", path, name)


def _check_index(index: dict[str, Any], name: str) -> None:
    """Refuse the index of weights in several files if it names files elsewhere."""
    shards = index.get("weight_map")
    for shard in set(shards.values()) if isinstance(shards, dict) else ():
        if not isinstance(shard, str) or not _WEIGHTS.fullmatch(PurePosixPath(shard).name):
            raise UnsafeArchive(f"{name} names weights in {shard!r}, which is no file of weights.")
        if PurePosixPath(shard).name != shard:
            raise UnsafeArchive(f"{name} names weights in '{shard}'; expected them beside it.")


def check_no_pickle(file: Path, name: str) -> None:
    """Refuse a file that is a pickle of anything but tensors, judged by its name and first bytes.

    # Raises

    `UnsafeArchive` : if it holds, or could hold, more than tensors. None of its code has run.
    `BrokenArchive` : if tensors do not match their checksums.
    """
    # A safetensors file begins with a length, whose bytes can look like any other format.
    if file.suffix == ".safetensors":
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
    """Refuse a file that torch does not load with `weights_only=True`.

    Loading it later is then safe with every release of torch, whatever its default for that option.
    Tensors are mapped into memory, and read once to verify checksums, except in the format before
    torch 1.6.
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
    except Exception as error:  # A malformed file can raise nearly any error.
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
