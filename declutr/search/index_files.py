"""What lies in the folder of an index, by exact names: these files are ours, and no others."""

from __future__ import annotations

from pathlib import Path

from declutr.inference.bulk.manifest import (
    LOCK,
    DamagedManifest,
    EmbeddingFolderError,
    Manifest,
    OtherRelease,
)
from declutr.search.description import FILE, IndexDescription, OtherIndex, SearchError
from declutr.search.stored_lines import OFFSETS, TEXT

EMBEDDINGS, LEFT_OUT = "embeddings", "left_out.npy"
UNFINISHED = ".declutr-lines"
"""A folder of lines that are not known yet to be those of the embeddings."""

MARK = {"index": True}
"""What the manifest of the embeddings says about itself: they are part of an index."""

_APPROXIMATE = ("faiss", "hnswlib")


def structure_file(folder: Path, backend: str) -> Path:
    """Where an approximate searcher is kept."""
    return folder / f"search.{backend}"


def structure_files(folder: Path) -> list[Path]:
    """Where approximate searchers of any backend are kept, whether they are there or not."""
    return [structure_file(folder, backend) for backend in _APPROXIMATE]


def require_ours(folder: Path) -> None:
    """See that an index may be written to `folder`: it is new, empty, or an index already.

    # Raises

    `SearchError` : it holds something else, which would be mixed up with an index or overwritten.
    """
    if not folder.is_dir():
        return
    others = sorted(path.name for path in folder.iterdir() if path.name not in (LOCK, UNFINISHED))
    if not others or _is_index(folder):
        return
    raise SearchError(
        f"'{folder}' is not empty and holds no index of ours (it has {', '.join(others[:3])}"
        f"{', …' if len(others) > 3 else ''}): nothing in it was touched. Choose a new folder."
    )


def _is_index(folder: Path) -> bool:
    """Whether there is an index, be it of another release, or one that is not finished."""
    try:
        IndexDescription.load(folder)
        return True
    except OtherIndex:
        return True
    except (SearchError, OSError):
        pass
    try:
        manifest = Manifest.load(folder / EMBEDDINGS)
    except OtherRelease:
        return False  # what it is part of cannot be told
    except DamagedManifest:  # of an unfinished one
        ours = {EMBEDDINGS, LEFT_OUT, UNFINISHED, LOCK, FILE, TEXT, OFFSETS}
        ours.update(file.name for file in structure_files(folder))
        return ours.issuperset(path.name for path in folder.iterdir())
    except (EmbeddingFolderError, OSError):
        return False
    return manifest is not None and MARK.items() <= manifest.about.items()
