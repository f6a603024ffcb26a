"""What lies in the folder of an index, by exact names: these files are ours, and no others.

`index.json`, which says what the index holds, is written last: where it is the rest is there too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from declutr._version import __version__
from declutr.inference.bulk.manifest import (
    LOCK,
    DamagedManifest,
    EmbeddingFolderError,
    Manifest,
    OtherRelease,
)
from declutr.system.files import CheckedFile, DamagedFile, json_checksum, write_whole

DESCRIPTION = "index.json"
TEXT, OFFSETS = "lines.utf8", "lines.offsets"
EMBEDDINGS, LEFT_OUT = "embeddings", "left_out.npy"
UNFINISHED = ".declutr-lines"
"""A folder of what does not belong to the index yet."""

MARK = {"index": True}
"""What the manifest of the embeddings says about itself: they are part of an index."""

_APPROXIMATE = ("faiss", "hnswlib")
_FORMAT = 1


class SearchError(ValueError):
    """An index that cannot be built or searched, or a query: the message says what to do."""


class OtherIndex(SearchError):
    """An index that another release of this package wrote."""


@dataclass(frozen=True)
class IndexDescription:
    """What `index.json` says.

    # Parameters

    rows, left_out : lines, and those among them that are never found.
    model : where the model is, as `Encoder` takes it; an absolute path if it is a file or folder.
    options : arguments of `Encoder` with which it embeds queries as it did lines.
    encoder : `Encoder.describe()` of then; a prompt is in `prompts`.
    backend : what searches, one of `BACKENDS` but `"auto"`.
    approximate : whether it looks at a part of the lines only; then `effort` says how hard it
        looks, and `recall` the share of the ten nearest lines that it finds.
    prompts : what was put before lines (`document`), and what is put before queries (`query`);
        `None` where the encoder decides, and does for both alike.
    checksums : of the files beside it, by name (see `declutr.system.files`); version 1.5 wrote
        none.
    """

    rows: int
    left_out: int
    model: str
    options: dict[str, Any]
    encoder: dict[str, Any]
    backend: str
    approximate: bool
    effort: int | None = None
    recall: float | None = None
    prompts: dict[str, str] | None = None
    checksums: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        content = {"format": _FORMAT, "declutr": __version__, **asdict(self)}
        content["checksum"] = json_checksum(content)
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(folder / DESCRIPTION, text)

    @classmethod
    def load(cls, folder: Path) -> IndexDescription:
        """Return the description of a finished index.

        # Raises

        `OtherIndex` : it is of another release.
        `SearchError` : there is none, or something else is called so.
        """
        path = folder / DESCRIPTION
        if not path.is_file():
            if (folder / EMBEDDINGS).is_dir():
                raise SearchError(
                    f"The index '{folder}' is not finished. Repeat the command that builds it: it "
                    "goes on where it stopped."
                )
            raise SearchError(
                f"There is no index at '{folder}'. `declutr index MODEL LINES -o {folder}` "
                "builds one."
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            damaged = content.pop("checksum", None) not in (None, json_checksum(content))
            version, release = content.pop("format"), content.pop("declutr")
            if version != _FORMAT:
                raise OtherIndex(
                    f"'{path}' was written by declutr {release}, in another format. Build it "
                    "again: `declutr index MODEL LINES -o INDEX --overwrite`."
                )
            if damaged:
                raise ValueError("it is damaged: its content is not what its checksum says")
            found = cls(**content)
            found._require_prompts_of_both_sides()
            return found
        except OtherIndex:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SearchError(
                f"'{path}' does not describe an index ({error}). Build it again: `declutr index "
                "MODEL LINES -o INDEX --overwrite`."
            ) from error

    def _require_prompts_of_both_sides(self) -> None:
        prompts = self.prompts
        if prompts is not None and (
            prompts.keys() != {"document", "query"}
            or not all(isinstance(text, str) for text in prompts.values())
        ):
            raise ValueError(f"prompts {prompts!r}")


def structure_file(folder: Path, backend: str) -> Path:
    """Return where an approximate searcher is kept."""
    return folder / f"search.{backend}"


def structure_files(folder: Path) -> list[Path]:
    """Return where approximate searchers of any backend are kept, whether they are there or not."""
    return [structure_file(folder, backend) for backend in _APPROXIMATE]


def require_sound(file: Path, recorded: Mapping[str, str]) -> None:
    """Compare a file with its checksums, if it was written with some.

    # Raises

    `SearchError` : it is not what was written.
    """
    if file.name not in recorded:
        return
    try:
        CheckedFile(file, recorded[file.name]).require_all()
    except DamagedFile as error:
        raise SearchError(f"{error} Repeat the command that built the index.") from error


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
    """Return whether there is an index, be it of another release, or one that is not finished."""
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
        ours = {EMBEDDINGS, LEFT_OUT, UNFINISHED, LOCK, DESCRIPTION, TEXT, OFFSETS}
        ours.update(file.name for file in structure_files(folder))
        return ours.issuperset(path.name for path in folder.iterdir())
    except (EmbeddingFolderError, OSError):
        return False
    return manifest is not None and MARK.items() <= manifest.about.items()
