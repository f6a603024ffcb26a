"""What a folder of embeddings holds, what they were made with, and from which rows.

    FOLDER/manifest.json            this
    FOLDER/embeddings-00000.npy     the first shard, or .parquet, .jsonl
    FOLDER/embeddings-00001.npy     …

A shard counts once the manifest lists it. Nothing in it depends on when or how often a run was
interrupted.
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

from declutr.system.files import UNFINISHED, json_checksum, write_whole

VERSION = 1
MANIFEST = "manifest.json"
LOCK = ".lock"
ANEW = "begin anew with --overwrite (overwrite=True)"
_OURS = re.compile(r"embeddings-\d{5,}\.(npy|parquet|jsonl)(\.tmp)?")


class EmbeddingFolderError(ValueError):
    """A folder of embeddings that cannot be written, gone on with, or read: says why."""


class OtherRelease(EmbeddingFolderError):
    """Embeddings that another release of this package wrote."""


class DamagedManifest(EmbeddingFolderError):
    """A manifest of ours that is not as it was written."""


@dataclass
class Counts:
    """Rows that are not like others. A row may be counted under several of these."""

    blank_rows: int = 0
    """Nothing but white space."""
    replaced_rows: int = 0
    """With U+FFFD, mostly where bytes were not UTF-8."""
    unreadable_rows: int = 0
    """That could not be read as records; embedded as blank texts."""
    truncated_rows: int = 0
    """Longer than the encoder takes; a part of them was not embedded."""
    not_finite_rows: int = 0
    """Whose embedding was not finite; stored as NaN."""

    def __add__(self, other: Counts) -> Counts:
        ours, theirs = asdict(self), asdict(other)
        return Counts(**{name: ours[name] + theirs[name] for name in ours})


@dataclass(frozen=True)
class Shard:
    """A finished shard."""

    file: str
    """Its name in the folder."""
    rows: int
    bytes: int
    """The size of the file."""
    input: str
    """A digest of the rows it was made from."""
    counts: Counts
    checksums: str | None = None
    """Of the file, see `declutr.system.files`; `None` if version 1.5 wrote it."""


@dataclass
class Manifest:
    """The contents of a folder of embeddings.

    # Parameters

    settings : plain JSON values that the embeddings depend on; those of a run that goes on must
        be the same.
    about : others that are worth knowing.
    shards : finished ones by their number.
    finished : whether these are all.
    """

    settings: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)
    shards: dict[int, Shard] = field(default_factory=dict)
    finished: bool = False

    @property
    def rows(self) -> int:
        """In all shards together."""
        return sum(shard.rows for shard in self.shards.values())

    @property
    def counts(self) -> Counts:
        """Of all shards together."""
        return sum((shard.counts for shard in self.shards.values()), Counts())

    def in_order(self) -> list[Shard]:
        """The finished shards from the first row to the last."""
        return [self.shards[number] for number in sorted(self.shards)]

    def save(self, folder: Path) -> None:
        """Write it into the folder, whole or not at all."""
        entries = [asdict(shard) for shard in self.in_order()]
        # Apart, for release 1.5 takes no other keys in a shard.
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
        """Read that of the folder, if there is one.

        # Raises

        `OtherRelease` : it is of another version.
        `DamagedManifest` : it is not as it was written.
        `EmbeddingFolderError` : it is not one of ours.
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
    """The name of the file of a shard."""
    return f"embeddings-{number:05d}.{format}"


def shard_number(name: str) -> int:
    """The number of a shard, from the name of its file."""
    if not _OURS.fullmatch(name):  # it is opened later: no paths to elsewhere
        raise KeyError(f"a shard called {name!r}")
    return int(name.split("-")[1].split(".")[0])


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make the folder that a run writes to, and keep other runs out of it inside.

    # Raises

    `EmbeddingFolderError` : it is a file, it cannot be made or written to, or another run is
        writing to it.
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
    """The files of shards in a folder, half-written ones too, whatever its manifest says."""
    return sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name))


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed run was writing."""
    for path in [*shard_files(folder), folder / (MANIFEST + UNFINISHED)]:
        if path.name.endswith(UNFINISHED):
            path.unlink(missing_ok=True)


def require_ours(folder: Path) -> None:
    """Raise `EmbeddingFolderError` if embeddings in a folder are not ours to remove."""
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
    """Remove the manifest and all shards, and nothing else, after `require_ours`."""
    # A manifest whose shards are gone is gone on with; shards without one are not.
    for path in [*shard_files(folder), folder / MANIFEST]:
        path.unlink(missing_ok=True)
