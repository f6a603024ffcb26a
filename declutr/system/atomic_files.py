"""Files that hold either all of their content or what they held before, even if the power fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".tmp"
"""The suffix of what is being written, beside the file that it becomes."""


def write_whole(
    path: str | os.PathLike,
    content: bytes | str | Callable[[BinaryIO], object],
    shared: bool = False,
) -> None:
    """Write a file, which appears under its name when all of it is on the disk.

    # Parameters

    path : of the file, in a folder that is there.
    content : bytes, text (UTF-8; a lone surrogate becomes an escape), or a function that writes
        into the file it is given. If that raises, nothing stays behind; what a killed process
        leaves is overwritten by the next one.
    shared : other processes may write this file at the same time; the last one wins.
    """
    path = Path(path)
    beside = path.with_name(
        f"{path.name}.{os.getpid()}{UNFINISHED}" if shared else path.name + UNFINISHED
    )
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    try:
        with open(beside, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if os.name == "nt":  # cannot open folders
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to but not listed
        return
    try:
        os.fsync(opened)
    except OSError:  # a file system without it
        pass
    finally:
        os.close(opened)
