"""Files of tensors that are nothing else. torch writes them as pickles, which are programs."""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path

from declutr.archives.refusal import BrokenArchive, UnsafeArchive
from declutr.system.torch_files import damage_of_records

_TENSORS = (".th", ".pt", ".pth", ".bin", ".ckpt")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill")
_ZIP = b"PK\x03\x04"  # by which torch, too, tells its format since 1.6 from the one before
_STARTS_AS_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_GLOBAL = re.compile(r"GLOBAL (\S+)")


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
            _require_stored(file, name)
            _require_sound(file, name)
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


def _require_stored(file: Path, name: str) -> None:
    with zipfile.ZipFile(file) as opened:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in opened.infolist()):
            raise UnsafeArchive(
                f"{name} holds compressed records, as torch writes none: they could be of any size."
            )


def _require_sound(file: Path, name: str) -> None:
    damage = damage_of_records(file)
    if damage is not None:
        raise BrokenArchive(f"{name} is damaged: {damage}. Get it anew.")


def _require_plain_array(file: Path, name: str) -> None:
    import numpy as np

    try:
        np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise UnsafeArchive(f"{name} is no plain array: {error} Take it out.") from None
