"""Whether a file that `torch.save` wrote is still what was written."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import torch

_DIRECTORY = 0x10  # among a record's attributes


def damage_of(file: str | Path) -> str | None:
    """What is wrong with a file of `torch.save`, in words; None if it is whole.

    torch writes a zip archive with a checksum (CRC-32) of each record, tensors and all else, and
    compares none of them when it loads. This reads the whole file and compares all, in about half
    the time that loading takes. A file in the format before torch 1.6 is called damaged: it has no
    checksums. One that was written without (`torch.serialization.set_crc32_options(False)`) has
    zeros in their place, and only its structure is looked at.
    """
    damage = damage_of_records(file)
    if damage is not None:
        return damage
    try:  # torch compares parts of the list of records that Python does not
        torch.load(file, map_location="cpu", mmap=True)
    except pickle.UnpicklingError:
        return None  # objects that torch does not load unasked, but the bytes are right
    except Exception as error:  # a broken file can raise nearly anything
        return _cut_off(error)
    return None


def damage_of_records(file: str | Path) -> str | None:
    """The same for the records alone, of any zip archive: torch need not be able to load it."""
    try:
        with zipfile.ZipFile(file) as opened:
            entries = opened.infolist()
            # torch reads nothing of these, and gives what happens to lie in memory.
            strange = [e.filename for e in entries if e.external_attr & _DIRECTORY or e.is_dir()]
            wrong = strange[0] if strange else None
            if wrong is None and any(entry.CRC for entry in entries):
                wrong = opened.testzip()
    except OSError as error:  # its text repeats the name of the file
        return f"it cannot be read ({error.strerror or error})"
    except Exception as error:  # a broken file can raise nearly anything
        return _cut_off(error)
    return None if wrong is None else f"its record {wrong} is not what was written"


def _cut_off(error: Exception) -> str:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"it is cut off or overwritten ({reason})"
