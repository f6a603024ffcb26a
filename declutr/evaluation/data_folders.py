"""The folder with the data of all tasks, and folders that are easily taken for it."""

from __future__ import annotations

from pathlib import Path

LAYOUT = ("downstream", "probing", "probing_surrogate", "retrieval", "extra")
"""Folders in it, of which some are there."""

_TASKS = ("MR", "CR", "MPQA", "SUBJ", "SST", "TREC", "MRPC", "SICK", "SNLI", "COCO", "STS")
_INSIDE = {
    "downstream": _TASKS,
    **{f"downstream/{task}": ("*",) for task in _TASKS},
    "probing": ("*.txt",),
    "probing_surrogate": ("*.txt",),
    "retrieval": ("*/corpus.jsonl",),
    "extra": ("ag_news_test", "cranfield"),
}
"""Folders further down, and what they hold, as patterns."""


def require_data_folder(folder: Path) -> None:
    """See that a folder is not one above or below that with the data, where nothing is found.

    One that looks like neither will do: it may be empty.

    # Raises

    `ValueError` : it is; the error names the right one.
    """
    if _is_laid_out(folder):
        return
    if _is_laid_out(folder / "data"):
        raise ValueError(
            f"'{folder}' has none of {_names()}; '{folder / 'data'}' has. Give that folder."
        )
    for inside, patterns in _INSIDE.items():
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            continue
        parts = Path(inside).parts
        for place in (folder.absolute(), folder.resolve()):
            if place.parts[-len(parts) :] == parts:
                raise ValueError(
                    f"'{folder}' is {inside}/ itself, expected the folder that it is in: "
                    f"'{place.parents[len(parts) - 1]}'. Give that folder."
                )
        if inside == "downstream":
            held = ", ".join(task for task in _TASKS if (folder / task).exists())
            raise ValueError(
                f"'{folder}' holds {held}, expected a folder laid out as SentEval's, with them in "
                "downstream/. Put them into a folder of that name, and give the one that it is in."
            )


def _is_laid_out(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in LAYOUT)


def _names() -> str:
    return ", ".join(f"{name}/" for name in LAYOUT)
