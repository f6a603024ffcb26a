"""Findings on the caches, the free space of disks, and the way to the Hugging Face hub."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from declutr.environment.cache_entries import entries
from declutr.environment.findings import ERROR, OK, WARNING, Finding, first_line
from declutr.environment.probe import Answer
from declutr.system.cache_folder import CACHE_VARIABLE, default_cache_dir

DISK, HUB = "Disk", "Hugging Face hub"
_LITTLE, _NOTHING = 5 << 30, 100 << 20  # bytes of free space for a warning, for an error
_PATIENCE = 5.0  # seconds to wait for the hub
_WALK = 3.0  # seconds for the size of a large folder


def disk(hub: Answer) -> Iterator[Finding]:
    """Yield sizes and free space of the folders that this package and the hub write to."""
    ours = default_cache_dir()
    size = sum(entry.size for entry in entries(ours)) if os.access(ours, os.R_OK) else None
    yield _cache("cache of declutr", ours, size, True, f"set {CACHE_VARIABLE} to another folder")
    if hub.value is not None:
        folder = Path(hub.value["folder"])
        size, whole = _size(folder)
        cure = "set HF_HOME to another folder"
        yield _cache("cache of the hub", folder, size, whole, cure)
    places = (("temporary files", Path(tempfile.gettempdir())), ("here", Path.cwd()))
    for name, folder in places:
        yield _free(name, folder)


def _cache(name: str, folder: Path, size: int | None, whole: bool, cure: str) -> Finding:
    exists, parent = folder.exists(), _existing(folder)
    more = "" if whole else "more than "
    held = "not there yet" if not exists else f"{more}{(size or 0) / 2**30:.2f} GiB"
    details: dict[str, Any] = {"folder": str(folder), "bytes": size}
    writable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    details["writable"] = writable
    if not writable:
        said = f"{folder}, {held}, cannot be written: nothing is kept for the next start"
        return Finding(DISK, name, WARNING, said, cure, details)
    free = shutil.disk_usage(parent).free
    level, cured = _level(free, cure)
    said = f"{folder}, {held}, {free / 2**30:.1f} GiB free"
    return Finding(DISK, name, level, said, cured, {**details, "free": free})


def _free(name: str, folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    level, cure = _level(free, "make room, or work in a folder of another disk")
    said = f"{folder}, {free / 2**30:.1f} GiB free"
    return Finding(DISK, name, level, said, cure, {"folder": str(folder), "free": free})


def _level(free: int, cure: str) -> tuple[str, str | None]:
    if free >= _LITTLE:
        return OK, None
    return (ERROR if free < _NOTHING else WARNING), f"{cure}; `declutr cache prune` makes room, too"


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next((place for place in (folder, *folder.parents) if place.exists()), folder)


def _size(folder: Path) -> tuple[int, bool]:
    """Return the size of a folder on disk, and whether the time was enough to see all of it."""
    total, end = 0, time.monotonic() + _WALK
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                stat = os.lstat(os.path.join(place, name))
            except OSError:  # It has just been removed.
                continue
            total += getattr(stat, "st_blocks", 0) * 512 or stat.st_size
        if time.monotonic() > end:
            return total, False
    return total, True


def hub_access(hub: Answer, asks: bool) -> Iterator[Finding]:
    """Yield whether the hub can be reached; it is not asked if the user wants no network."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if offline or (hub.value and hub.value["offline"]):
        said = "not asked: HF_HUB_OFFLINE is set, and only downloaded models are used"
        yield Finding(HUB, "access", OK, said)
        return
    if not asks:
        yield Finding(HUB, "access", OK, "not asked (--offline)")
        return
    endpoint = hub.value["endpoint"] if hub.value else "https://huggingface.co"
    began = time.monotonic()
    problem = _problem_with(endpoint)
    if problem is None:
        said = f"{endpoint} answers within {time.monotonic() - began:.1f} seconds"
        yield Finding(HUB, "access", OK, said)
    else:
        cure = "look at HTTPS_PROXY; without a network, set HF_HUB_OFFLINE=1 and use local folders"
        yield Finding(HUB, "access", WARNING, f"{endpoint} does not answer: {problem}", cure)


def _problem_with(endpoint: str) -> str | None:
    """Return why an address does not answer within some seconds, or `None` if it does."""
    found: list[str | None] = [f"nothing within {_PATIENCE:g} seconds"]

    def ask() -> None:
        try:
            request = urllib.request.Request(f"{endpoint}/api/models?limit=1", method="GET")
            with urllib.request.urlopen(request, timeout=_PATIENCE):
                found[0] = None
        except urllib.error.HTTPError as error:  # It answers, whatever it says.
            found[0] = None if error.code < 500 else f"status {error.code}"
        except Exception as error:
            found[0] = first_line(str(getattr(error, "reason", error)))

    # The time that looking up a name takes has no limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE + 1)
    return found[0]
