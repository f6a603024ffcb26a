"""The quickstart: corpus, training and embeddings on text that every machine has."""

from pathlib import Path

from declutr.earlier_paths import names_of

__getattr__ = names_of(__name__)  # this package was a module up to release 1.8

MARK = ".quickstart"
"""The name of an empty file in each folder that a quickstart has made."""


def is_own(folder: Path) -> bool:
    """Return whether a quickstart has made a folder; releases up to 2.4.7 marked the first step."""
    return any((folder / mark).exists() for mark in (MARK, ".make_corpus.done"))


def require_own(folder: Path) -> None:
    """Raise `FileExistsError` if a folder holds files that no quickstart has written."""
    if is_own(folder) or not folder.exists():
        return
    held = sorted(place.name for place in folder.iterdir())
    if held:
        raise FileExistsError(
            f"'{folder}' holds {', '.join(held[:3])}, which no quickstart has written, and could "
            "be overwritten. Choose a new folder, or an empty one."
        )
