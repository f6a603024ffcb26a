"""A run that embeds rows into the shards of a folder, one after another."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from declutr.inference.bulk import manifest as manifests
from declutr.inference.bulk.input_rows import InputRows
from declutr.inference.bulk.shard_files import checked_shard, write_shard
from declutr.system.files import DamagedFile, file_checksums

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], np.ndarray]

# The characters of text in memory and in one call of the encoder: enough texts to sort by length,
# and to keep several devices busy.
BLOCK_CHARACTERS = 8 << 20
_INSTEAD = f"Give the same inputs in the same order, choose another folder, or {manifests.ANEW}."


@dataclass(frozen=True)
class Summary:
    """A summary of a finished run.

    # Parameters

    folder : the folder of the embeddings.
    rows, shards : the numbers of rows and shards in the folder, including earlier runs.
    counts : the numbers of unusual rows in the folder, including earlier runs.
    embedded_rows : the number of rows that this run embedded; earlier runs embedded the others.
    seconds : the time that this run took.
    """

    folder: Path
    rows: int
    shards: int
    counts: manifests.Counts
    embedded_rows: int
    seconds: float


@dataclass
class ShardRun:
    """A pass over all rows that embeds those without a finished shard.

    # Parameters

    encode, rows, truncated_texts, total_bytes, progress : see
        `declutr.inference.bulk.embedding_run.embed_rows`.
    folder : the folder of the embeddings.
    manifest : the manifest of that folder, which is updated after each shard.
    """

    encode: Encode
    rows: InputRows
    folder: Path
    manifest: manifests.Manifest
    truncated_texts: Callable[[], int]
    total_bytes: int | None
    progress: bool

    def __post_init__(self) -> None:
        settings = self.manifest.settings
        self._format: str = settings["format"]
        self._dtype = np.dtype(settings["dtype"])
        self._dimension: int = settings["dimension"]
        self._shard_rows: int = settings["shard_rows"]

    def finish(self) -> Summary:
        """Read all rows, embed those without a finished shard, and return a summary.

        # Raises

        `EmbeddingFolderError` : the rows are not those of the finished shards, or the encoder
            returned another shape.
        """
        began = time.monotonic()
        embedded = 0
        # With None, tqdm shows a bar on terminals only, so that log files contain none.
        hidden = None if self.progress else True
        with tqdm(unit=" rows", unit_scale=True, disable=hidden) as self._bar:
            for number in count():
                self.rows.begin_shard()
                if self.manifest.finished and number not in self.manifest.shards:
                    break
                shard = self._there(number)
                if shard is not None:
                    self._compare(shard)
                elif (shard := self._embed_shard(number)) is not None:
                    embedded += shard.rows
                    self._keep(number, shard)
                if shard is None or shard.rows < self._shard_rows:
                    break
            if self._bar.total:
                self._bar.total = self.rows.read
        self._require_end()
        manifest = self.manifest
        if not manifest.finished:
            manifest.finished = True
            manifest.save(self.folder)
        seconds = time.monotonic() - began
        shards, counts = len(manifest.shards), manifest.counts
        return Summary(self.folder, manifest.rows, shards, counts, embedded, seconds)

    def _show_progress(self) -> None:
        """Update the progress bar, and estimate its total if the size of all texts is known."""
        rows = self.rows
        if self.total_bytes and rows.bytes:
            self._bar.total = max(rows.read, round(rows.read * self.total_bytes / rows.bytes))
        self._bar.set_postfix_str(f"{rows.bytes / 1e6:,.1f} MB of text", refresh=False)
        self._bar.update(rows.read - self._bar.n)

    def _there(self, number: int) -> manifests.Shard | None:
        """Return a finished shard whose file is undamaged; `None` if it must be embedded."""
        shard = self.manifest.shards.get(number)
        if shard is None:
            return None
        path = self.folder / shard.file
        if not path.is_file() or path.stat().st_size != shard.bytes:
            logger.warning("'%s' is gone or was changed, and is made again.", path)
            return None
        expected = self._format, self._dtype.name, self._dimension, shard.rows, shard.checksums
        try:
            checked = checked_shard(path, *expected)
            if checked is not None:
                checked.require_all()
        except DamagedFile as error:
            logger.warning("%s It is made again.", error)
            return None
        return shard

    def _compare(self, shard: manifests.Shard) -> None:
        """Read the rows of a finished shard, and raise if the shard was made from other rows."""
        start = self.rows.read
        found = self.rows.skip(shard.rows)
        self._show_progress()
        if found < shard.rows:
            raise self._shorter()
        if self.rows.digest != shard.input:
            raise manifests.EmbeddingFolderError(
                f"The input has changed: rows {start:,} to {start + shard.rows - 1:,} (from 0) are "
                f"not those that '{self.folder / shard.file}' was made from. {_INSTEAD} (Release "
                "1.5.0 took lines of CSV and TSV for rows, and a carriage return for the end of "
                "one; a table that is called .txt is still read by lines.)"
            )

    def _require_end(self) -> None:
        if self.rows.read < self.manifest.rows:
            raise self._shorter()
        if self.rows.skip(1):
            raise manifests.EmbeddingFolderError(
                f"The input has changed: it goes on after the {self.manifest.rows:,} rows that "
                f"'{self.folder}' has embeddings of. Embed the new rows into another folder, or "
                f"{manifests.ANEW}."
            )

    def _shorter(self) -> manifests.EmbeddingFolderError:
        return manifests.EmbeddingFolderError(
            f"The input has changed: it ends after {self.rows.read:,} rows, and '{self.folder}' "
            f"has embeddings of {self.manifest.rows:,}. {_INSTEAD}"
        )

    def _embed_shard(self, number: int) -> manifests.Shard | None:
        """Embed the next rows and write their shard; return `None` if there are no rows."""
        rows, start, cut = self.rows, self.rows.read, self.truncated_texts()
        vectors = np.empty((0, self._dimension), self._dtype)
        done = 0
        while texts := rows.take(self._shard_rows - done, BLOCK_CHARACTERS):
            if not len(vectors):  # not allocated before, since there may be no more rows
                vectors = np.empty((self._shard_rows, self._dimension), self._dtype)
            with np.errstate(over="ignore"):  # float16: infinity is counted below
                vectors[done : done + len(texts)] = self._embeddings(texts)
            done += len(texts)
            self._show_progress()
        if not done:
            return None
        vectors = vectors[:done]
        broken = ~np.isfinite(vectors).all(axis=1)
        vectors[broken] = np.nan
        counts = rows.counts
        counts.truncated_rows = self.truncated_texts() - cut
        counts.not_finite_rows = int(broken.sum())
        path = self.folder / manifests.shard_name(number, self._format)
        write_shard(path, self._format, start, vectors)
        checksums = file_checksums(path)
        return manifests.Shard(path.name, done, path.stat().st_size, rows.digest, counts, checksums)

    def _embeddings(self, texts: list[str]) -> np.ndarray:
        found = np.asarray(self.encode(texts))
        if found.shape != (len(texts), self._dimension):
            raise manifests.EmbeddingFolderError(
                f"Expected embeddings of shape {(len(texts), self._dimension)}, the encoder gave "
                f"{found.shape}."
            )
        return found

    def _keep(self, number: int, shard: manifests.Shard) -> None:
        before = self.manifest.shards.get(number)
        if before is not None and (before.input, before.rows) != (shard.input, shard.rows):
            (self.folder / shard.file).unlink()
            raise manifests.EmbeddingFolderError(
                f"The input has changed: it has other rows where '{self.folder / shard.file}' "
                f"is missing. {_INSTEAD}"
            )
        self.manifest.shards[number] = shard
        self.manifest.save(self.folder)
        logger.info("%s: %d rows, %d in all", shard.file, shard.rows, self.rows.read)
