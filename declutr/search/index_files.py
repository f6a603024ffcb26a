"""The files in the folder of a search index.

They are recognised by their exact names; other files in the folder are never touched.
`index.json`, the description of the index, is written last, so that its existence tells that the
index is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from declutr._version import __version__
from declutr.inference.bulk import manifest as manifests
from declutr.system.files import CheckedFile, DamagedFile, json_checksum, write_whole

DESCRIPTION = "index.json"
"""The name of the file with the description of the index."""
TEXT, OFFSETS = "lines.utf8", "lines.offsets"
"""The names of the files with the text of all lines and with the offset of each line."""
EMBEDDINGS, LEFT_OUT = "embeddings", "left_out.npy"
"""The names of the folder of embeddings and of the file with row numbers that are never found."""
UNFINISHED = ".declutr-lines"
"""The name of the folder for files that do not belong to the index yet."""

MARK = {"index": True}
"""The entry in the manifest of embeddings which tells that they are part of an index."""

_APPROXIMATE = ("faiss", "hnswlib")
_FORMAT = 1


class SearchError(ValueError):
    """Raised if an index cannot be built or searched; the message says what to do about it."""


class OtherIndex(SearchError):
    """Raised for an index that another release of this package wrote in another format."""


@dataclass(frozen=True)
class IndexDescription:
    """The content of `index.json`.

    # Parameters

    rows : the number of lines.
    left_out : the number of lines that are never found, because they are blank or their embeddings
        are not finite.
    model : the model as `Encoder` takes it; an absolute path if it is a local file or folder.
    options : the arguments of `Encoder` by which it embeds queries in the way of lines.
    encoder : `Encoder.describe()` when the lines were embedded. It lacks the prompt if `prompts`
        records it.
    backend : one of `BACKENDS` except `"auto"`.
    approximate : whether a search compares the query with a part of the lines only.
    effort : the effort of an approximate search, in units of the backend.
    recall : the share of the ten nearest lines that an approximate search finds.
    prompts : the prompts before lines (key `document`) and before queries (key `query`); `None` if
        both have the prompt of the encoder.
    checksums : the checksums of the files beside it, by name (see `declutr.system.files`); release
        1.5 wrote none.
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
        """Write `index.json` to `folder`."""
        content = {"format": _FORMAT, "declutr": __version__, **asdict(self)}
        content["checksum"] = json_checksum(content)
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(folder / DESCRIPTION, text)

    @classmethod
    def load(cls, folder: Path) -> IndexDescription:
        """Return the description of the finished index in `folder`.

        # Raises

        `OtherIndex` : if another release wrote it in another format.
        `SearchError` : if there is no finished index, or `index.json` is not a valid description.
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
    """Return the path of the search structure of an approximate backend."""
    return folder / f"search.{backend}"


def structure_files(folder: Path) -> list[Path]:
    """Return the paths of the search structures of all approximate backends, existing or not."""
    return [structure_file(folder, backend) for backend in _APPROXIMATE]


def require_sound(file: Path, recorded: Mapping[str, str]) -> None:
    """Raise if a file does not match its checksums.

    # Parameters

    file : the path of the file.
    recorded : the checksums of files by name; a file without an entry passes.

    # Raises

    `SearchError` : if the file is damaged.
    """
    if file.name not in recorded:
        return
    try:
        CheckedFile(file, recorded[file.name]).require_all()
    except DamagedFile as error:
        raise SearchError(f"{error} Repeat the command that built the index.") from error


def require_ours(folder: Path) -> None:
    """Raise unless `folder` is missing, empty, or an index, so that an index may be written there.

    # Raises

    `SearchError` : if the folder holds anything else, which could be overwritten or confused with
        an index.
    """
    if not folder.is_dir():
        return
    own = (manifests.LOCK, UNFINISHED)
    others = sorted(path.name for path in folder.iterdir() if path.name not in own)
    if not others or _is_index(folder):
        return
    raise SearchError(
        f"'{folder}' is not empty and holds no index of ours (it has {', '.join(others[:3])}"
        f"{', …' if len(others) > 3 else ''}): nothing in it was touched. Choose a new folder."
    )


def _is_index(folder: Path) -> bool:
    """Return whether a folder holds an index, possibly unfinished or of another release."""
    try:
        IndexDescription.load(folder)
        return True
    except OtherIndex:
        return True
    except (SearchError, OSError):
        pass
    try:
        manifest = manifests.Manifest.load(folder / EMBEDDINGS)
    except manifests.OtherRelease:
        return False  # Whether the embeddings are part of an index is unknown.
    except manifests.DamagedManifest:  # It may be an unfinished index if no file has another name.
        ours = {EMBEDDINGS, LEFT_OUT, UNFINISHED, manifests.LOCK, DESCRIPTION, TEXT, OFFSETS}
        ours.update(file.name for file in structure_files(folder))
        return ours.issuperset(path.name for path in folder.iterdir())
    except (manifests.EmbeddingFolderError, OSError):
        return False
    return manifest is not None and MARK.items() <= manifest.about.items()
