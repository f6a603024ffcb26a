"""The manifest of a folder of embeddings: its shards, their settings and digests of their rows.

    FOLDER/manifest.json            the manifest
    FOLDER/embeddings-00000.npy     the first of the shards, or .parquet, .jsonl

A shard is finished once the manifest lists it. Interruptions of a run do not change the manifest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from declutr.inference.bulk.shard_files import FORMATS
from declutr.system.files import UNFINISHED, json_checksum, write_whole

VERSION = 1
MANIFEST = "manifest.json"
LOCK = ".lock"
ANEW = "begin anew with --overwrite (overwrite=True)"
_OURS = re.compile(rf"embeddings-\d{{5,}}\.({'|'.join(FORMATS)})(\.tmp)?")


class EmbeddingFolderError(ValueError):
    """An error of a folder of embeddings that cannot be written, resumed or read."""


class OtherRelease(EmbeddingFolderError):
    """An error of a folder whose manifest has the version of another release of declutr."""


class DamagedManifest(EmbeddingFolderError):
    """An error of a manifest whose content does not match its checksum."""


@dataclass
class Counts:
    """The numbers of unusual rows. A row may be counted more than once."""

    blank_rows: int = 0
    """The number of rows that are empty or only white space."""
    replaced_rows: int = 0
    """The number of rows with U+FFFD, most often for bytes that were not UTF-8."""
    unreadable_rows: int = 0
    """The number of rows that could not be read as records, and were embedded as blank texts."""
    truncated_rows: int = 0
    """The number of rows that the encoder cut, so that a part of them was not embedded."""
    not_finite_rows: int = 0
    """The number of rows whose embedding was not finite, and was stored as NaN."""

    def __add__(self, other: Counts) -> Counts:
        ours, theirs = asdict(self), asdict(other)
        return Counts(**{name: ours[name] + theirs[name] for name in ours})


@dataclass(frozen=True)
class Shard:
    """The entry of a finished shard in a manifest."""

    file: str
    """The name of the file in the folder."""
    rows: int
    """The number of rows."""
    bytes: int
    """The size of the file in bytes."""
    input: str
    """A digest of the rows that were embedded."""
    counts: Counts
    """The numbers of unusual rows."""
    checksums: str | None = None
    """The checksums of the file, see `declutr.system.files`; `None` if release 1.5 wrote it."""


@dataclass
class Manifest:
    """A list of the shards in a folder of embeddings, with the settings that they share.

    # Parameters

    settings : plain JSON values that the embeddings depend on; a resumed run must have the same.
    about : further plain JSON values, which a resumed run may change.
    shards : the finished shards by their numbers, from 0.
    finished : whether all rows are embedded.
    """

    settings: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)
    shards: dict[int, Shard] = field(default_factory=dict)
    finished: bool = False

    @property
    def rows(self) -> int:
        """The number of rows of all finished shards."""
        return sum(shard.rows for shard in self.shards.values())

    @property
    def counts(self) -> Counts:
        """The numbers of unusual rows of all finished shards."""
        return sum((shard.counts for shard in self.shards.values()), Counts())

    def in_order(self) -> list[Shard]:
        """Return the finished shards in the order of their rows."""
        return [self.shards[number] for number in sorted(self.shards)]

    def save(self, folder: Path) -> None:
        """Write the manifest into a folder, whole or not at all."""
        entries = [asdict(shard) for shard in self.in_order()]
        # Not in the entries of shards: release 1.5 accepts no unknown keys there.
        checksums = {entry["file"]: entry.pop("checksums") for entry in entries}
        content = {
            "version": VERSION,
            "finished": self.finished,
            "rows": self.rows,
            "counts": asdict(self.counts),
            "settings": self.settings,
            "about": self.about,
            "shards": entries,
            "checksums": {file: sums for file, sums in checksums.items() if sums is not None},
        }
        content["checksum"] = json_checksum(content)
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(folder / MANIFEST, text + "\n")

    @classmethod
    def load(cls, folder: Path) -> Manifest | None:
        """Read the manifest of a folder; return `None` if there is none.

        # Raises

        `OtherRelease` : another release of declutr wrote the manifest.
        `DamagedManifest` : its content does not match its checksum.
        `EmbeddingFolderError` : the file is not the manifest of a folder of embeddings.
        """
        path = folder / MANIFEST
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not {"version", "settings", "shards"} <= content.keys():
                raise KeyError(f"only {sorted(content)}")
            if content["version"] != VERSION:
                raise OtherRelease(
                    f"'{path}' is of version {content['version']}, expected {VERSION}: it was "
                    f"written by another release of declutr. Choose another folder, or {ANEW}."
                )
            if content.pop("checksum", None) not in (None, json_checksum(content)):
                raise DamagedManifest(
                    f"'{path}' is damaged: its content is not what its checksum says. Begin anew "
                    "with --overwrite (overwrite=True), or choose another folder."
                )
            shards, checksums = {}, content.get("checksums", {})
            for entry in content["shards"]:
                entry["counts"] = Counts(**entry["counts"])
                shard = Shard(**entry, checksums=checksums.get(entry["file"]))
                shards[shard_number(shard.file)] = shard
            return cls(content["settings"], content["about"], shards, content["finished"])
        except EmbeddingFolderError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EmbeddingFolderError(
                f"'{path}' is not the manifest of a folder of embeddings ({error!r}), and is left "
                "as it is. Choose another folder, or remove it yourself."
            ) from error


def shard_name(number: int, format: str) -> str:
    """Return the name of the file of a shard."""
    return f"embeddings-{number:05d}.{format}"


def shard_number(name: str) -> int:
    """Return the number of a shard from the name of its file.

    # Raises

    `KeyError` : no shard has such a name.
    """
    if not _OURS.fullmatch(name):  # the name will be opened, so it must not lead to other folders
        raise KeyError(f"a shard called {name!r}")
    return int(name.split("-")[1].split(".")[0])


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make the folder that a run writes to, and lock it against other runs while the context lasts.

    # Raises

    `EmbeddingFolderError` : the folder is a file, cannot be written to, or another run uses it.
    """
    if folder.exists() and not folder.is_dir():
        raise EmbeddingFolderError(f"'{folder}' is a file, expected a folder or a new name.")
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise EmbeddingFolderError(
            f"Another run is writing to '{folder}'. Wait for it, or choose another folder."
        ) from error
    except OSError as error:
        raise EmbeddingFolderError(
            f"'{folder}' cannot be written to ({error.strerror or error}). Choose another folder."
        ) from error
    try:
        yield
    finally:
        lock.release()


def shard_files(folder: Path) -> list[Path]:
    """Return the files in a folder that have names of shards, finished or not, in order."""
    return sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name))


def remove_unfinished(folder: Path) -> None:
    """Remove the files that a killed run left half written."""
    for path in [*shard_files(folder), folder / (MANIFEST + UNFINISHED)]:
        if path.name.endswith(UNFINISHED):
            path.unlink(missing_ok=True)


def require_ours(folder: Path) -> None:
    """Raise `EmbeddingFolderError` if a folder holds embeddings that no run of declutr wrote.

    A manifest that is damaged, or of another release, shows that declutr wrote them.
    """
    try:
        manifest = Manifest.load(folder)
    except (OtherRelease, DamagedManifest):
        return
    if manifest is None and folder.is_dir() and (strange := shard_files(folder)):
        raise EmbeddingFolderError(
            f"'{folder}' holds {strange[0].name} but no {MANIFEST} that says what it is. Choose "
            "another folder, or remove it yourself."
        )


def remove_all(folder: Path) -> None:
    """Remove the manifest and all shards, and nothing else; call `require_ours` first."""
    # The manifest goes last: a run resumes without shards, but refuses shards without a manifest.
    for path in [*shard_files(folder), folder / MANIFEST]:
        path.unlink(missing_ok=True)
