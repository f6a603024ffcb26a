"""Writing an export to a temporary folder and moving it to its target in one step."""

import os
import shutil
import tempfile
from pathlib import Path

from declutr.archives import MODULES


class ExportError(ValueError):
    """Raised if a model cannot be exported, or nothing can be written to the target folder."""


def check_place(place: str, folder: Path, overwrite: bool) -> None:
    """Raise unless an export may be written to `folder`.

    # Parameters

    place : the path of the model, which the export must not overlap.
    folder : the target, which must be missing, empty, or an earlier export.
    overwrite : whether an earlier export may be replaced.

    # Raises

    `ExportError` : if nothing may be written there.
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
    """Create and return an empty folder beside `folder`, on the same file system.

    # Raises

    `ExportError` : if no folder can be created there.
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
    """Move a finished export to its target.

    An earlier export there is deleted, or put back if the move fails.

    # Parameters

    beside : the folder with the finished export.
    folder : the target.

    # Raises

    `OSError` : if the move fails.
    """
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
