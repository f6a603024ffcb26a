"""Where an export is written: beside its place, and moved there in one step."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from declutr.archives import MODULES
from declutr.export.exportable import ExportError


def check_place(place: str, folder: Path, overwrite: bool) -> None:
    """Whether an export may be written to `folder`.

    # Raises

    `ExportError` : it may not.
    """
    source = Path(place).absolute().resolve()
    target = folder.resolve()
    if target == source or target in source.parents or source in target.parents:
        raise ExportError(
            f"'{folder}' and the model '{place}' lie in each other; export to another place."
        )
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not (folder / MODULES).is_file():
        raise ExportError(
            f"There is something at '{folder}' that is no export. Remove it, or export to another "
            "place."
        )
    if not overwrite:
        raise ExportError(
            f"There is an export at '{folder}' already. Replace it with --overwrite, or export to "
            "another place."
        )


def made_beside(folder: Path) -> Path:
    """An empty folder beside a place, so that moving it there is one step.

    # Raises

    `ExportError` : none can be made there.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ExportError(
            f"Nothing can be written to '{folder}' ({error.strerror or error}). Export to another "
            "place."
        ) from error


def move(beside: Path, folder: Path) -> None:
    """Put a finished export at its place; what was there goes, or comes back if that fails."""
    if not folder.exists():
        os.rename(beside, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    os.rename(folder, old)
    try:
        os.rename(beside, folder)
    except OSError:
        os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
