"""Where this package keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "DECLUTR_CACHE"


def default_cache_dir() -> Path:
    """Return `$DECLUTR_CACHE`, or `~/.cache/declutr`."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "declutr"
