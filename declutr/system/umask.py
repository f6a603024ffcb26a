"""Who may read what is written: what the user's umask says, whatever library wrote it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def use_umask(paths: Iterable[Path]) -> None:
    """Give files and folders the modes that `open` and `mkdir` would have given them.

    Temporary folders, and files that safetensors writes, are closed to all but their owner.
    """
    umask = os.umask(0)
    os.umask(umask)
    for path in paths:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
