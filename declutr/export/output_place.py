"""Writing an export to a temporary folder and moving it to its target in one step."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from declutr.archives import MODULES
from declutr.system.files import locked, named_if_full

CARD = "README.md"
_ROOM, _LOCK, _OLD = ".declutr-", ".lock", "old"  # parts of names beside the target
_WRITTEN = re.compile(
    rf"{CARD}"
    r"|(config|generation_config|modules|config_sentence_transformers|sentence_bert_config)\.json"
    r"|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json|static_embedding\.json"
    # What tokenizers of all families write.
    r"|(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab[\w-]*)\.json"
    r"|(entity_vocab|word_shape|word_pronunciation|byte_maps)\.json"
    r"|(vocab|merges|dict)\.txt|bpe\.codes|[\w.-]+\.model|chat_template\.jinja"
    r"|\d+_(Pooling|Dense)/(config\.json|model\.safetensors|pytorch_model\.bin)"
    # The weights of large ONNX models lie beside them, in files that are named by the weights.
    r"|onnx/(model\.onnx|.*(?<!\.onnx))"
)
"""The files that exports have had, in this release and in earlier ones."""


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
    if not _is_export(folder):
        raise ExportError(
            f"There is something at '{folder}' that is no export. Remove it, or export to another "
            "place."
        )
    if not overwrite:
        raise ExportError(
            f"There is an export at '{folder}' already. Replace it with --overwrite, or export to "
            "another place."
        )
    if others := other_files(folder, _WRITTEN):
        raise ExportError(
            f"The export at '{folder}' has files that no export writes: {others}. Move them "
            "elsewhere, or export to another place."
        )


def other_files(folder: Path, written: re.Pattern[str]) -> str:
    """Return the names of files in a folder that do not match, the first three; `""` for none."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    found = [name for name in names if not written.fullmatch(name)]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def _is_export(folder: Path) -> bool:
    """Return whether a folder has the card of an export, which names declutr among its tags."""
    if not (folder / MODULES).is_file() or not (folder / CARD).is_file():
        return False
    header = (folder / CARD).read_text("utf-8", errors="replace").split("\n---\n")[0]
    return "- declutr" in header.splitlines()


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """Make an empty folder beside `folder`, on the same file system, while the context lasts.

    What killed processes left there is removed; a lock tells the folders of living ones.

    # Raises

    `ExportError` : if no folder can be created there or moved to `folder`, or the disk is full.
    """
    folder = folder.resolve()  # the files go where a link leads
    if os.path.ismount(folder):
        raise ExportError(
            f"'{folder}' is a mounted volume, which cannot be replaced as a whole. Name a folder "
            f"in it, such as '{folder / 'model'}'."
        )
    prefix = f".{folder.name}{_ROOM}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    except OSError as error:
        raise ExportError(
            f"Nothing can be written to '{folder}' ({error.strerror or error}). Export to another "
            "place."
        ) from error
    try:
        with named_if_full(folder), locked(room / _LOCK):
            _remove_left(folder, prefix)
            (room / "new").mkdir()
            yield room / "new"
    except Exception as error:
        if "Error while serializing" not in str(error):  # which safetensors says of a full disk
            raise
        raise ExportError(f"'{folder}' cannot be written: {error}") from error
    finally:
        if _is_dispensable(room, folder):
            shutil.rmtree(room, ignore_errors=True)


def _is_dispensable(room: Path, folder: Path) -> bool:
    """Return whether a room has no earlier export that is the only one there is."""
    return folder.exists() or not (room / _OLD).exists()


def _remove_left(folder: Path, prefix: str) -> None:
    """Remove what processes that were killed left beside `folder`."""
    with suppress(OSError):  # a parent that cannot be listed
        for left in folder.parent.iterdir():
            ours = left.name.startswith(prefix) and (left / _LOCK).is_file()
            if ours and _is_dispensable(left, folder):
                with suppress(OSError, NotImplementedError), FileLock(left / _LOCK, timeout=0):
                    shutil.rmtree(left, ignore_errors=True)


def move(beside: Path, folder: Path) -> None:
    """Move a finished export to its target.

    An earlier export there is deleted with the context of `folder_beside`, or put back if the move
    fails.

    # Raises

    `OSError` : if the move fails.
    """
    folder = folder.resolve()
    if not folder.exists():
        os.rename(beside, folder)
        return
    old = beside.with_name(_OLD)
    os.rename(folder, old)
    try:
        os.rename(beside, folder)
    except BaseException:  # also if it is interrupted
        os.rename(old, folder)
        raise
