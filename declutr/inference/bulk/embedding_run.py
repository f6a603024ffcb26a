"""`embed_rows`: rows in, a folder of embeddings out, one for each row, whatever happens between."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from declutr.corpus.text_inputs import require_rows
from declutr.inference.bulk import manifest as manifests
from declutr.inference.bulk.input_rows import InputRows
from declutr.inference.bulk.manifest import Counts, EmbeddingFolderError, Manifest, Shard
from declutr.inference.bulk.output_folder import output_folder
from declutr.inference.bulk.shard_files import (
    DTYPES,
    FORMATS,
    checked_shard,
    require,
    write_shard,
)
from declutr.system.checksums import DamagedFile, file_checksums

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], np.ndarray]

_SHARD_BYTES = 64 << 20
_MOST_ROWS = 65_536
# Of text in memory, and in one call of the encoder: enough to sort by length, and more than any
# number of devices embeds in a moment.
_BLOCK_CHARACTERS = 8 << 20
_ANEW = "begin anew with --overwrite (overwrite=True)"


@dataclass(frozen=True)
class Summary:
    """What a run did.

    # Parameters

    folder : where the embeddings are.
    rows, shards, counts : of all that is there, runs before this one included.
    embedded_rows : of this run; the others were there and were compared with the input.
    seconds : this run took.
    """

    folder: Path
    rows: int
    shards: int
    counts: Counts
    embedded_rows: int
    seconds: float


def default_shard_rows(dimension: int, dtype: str = "float32") -> int:
    """Rows of a shard of at most 64 MiB: a power of two, at most 65,536."""
    fitting = max(1, _SHARD_BYTES // (dimension * np.dtype(dtype).itemsize))
    return min(_MOST_ROWS, 1 << (fitting.bit_length() - 1))


def embed_rows(
    encode: Encode,
    rows: Iterable[str | None],
    folder: Path | str,
    *,
    dimension: int,
    describe: Mapping[str, Any],
    shard_rows: int | None = None,
    format: str = "npy",
    dtype: str = "float32",
    about: Mapping[str, Any] | None = None,
    truncated_texts: Callable[[], int] | None = None,
    total_bytes: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Summary:
    """Embed rows into a folder, shard by shard, or go on where a run into it stopped.

    Shards that are there are not made again: their rows are read and compared by a digest, and so
    are their files (by checksums; a shard that is damaged is made again). Every
    shard is embedded on its own, so what comes out does not depend on interruptions. Memory holds
    the vectors of one shard and some of its texts.

    # Parameters

    encode : texts to their embeddings `(n, d)`.
    rows : texts; `None` is a row that could not be read, and embedded as a blank text.
    folder : made if need be; see `declutr.inference.bulk.manifest` for what it will hold.
    dimension : d, the width of embeddings.
    describe : plain JSON values that say what embeddings depend on. A run that goes on must have
        the same.
    shard_rows : rows a shard; by default as before, or `default_shard_rows`.
    format : one of `FORMATS`.
    dtype : of what is stored, one of `DTYPES`.
    about : more plain JSON values for the manifest, which may change.
    truncated_texts : the running count of texts that the encoder cut.
    total_bytes : of all texts together, if it is known: for the progress bar.
    overwrite : remove embeddings that are there, and begin anew. They are removed once the first
        rows have been read.
    progress : show a progress bar, if this is a terminal.

    # Raises

    `EmbeddingFolderError` : the folder holds embeddings of other rows or made otherwise, something
        else, or another run is writing to it; or the encoder gave something else than `(n, d)`.
    `ImportError` : the format needs a package that is missing.
    `TypeError` : rows that are no texts, such as a DataFrame or a single string.
    `ValueError` : a setting out of range.
    """
    _check(dimension, shard_rows, format, dtype)
    require_rows(rows)
    require(format)
    folder = Path(folder)
    with output_folder(folder):
        manifests.require_ours(folder)
        input_rows = InputRows(rows)
        if overwrite:  # for input that cannot be read nothing is removed
            most = shard_rows or default_shard_rows(dimension, dtype)
            input_rows.read_ahead(most, _BLOCK_CHARACTERS)
        manifest = _begun(folder, overwrite)
        now = {
            "format": format,
            "dtype": dtype,
            "dimension": dimension,
            "shard_rows": shard_rows
            or (manifest and manifest.settings.get("shard_rows"))
            or default_shard_rows(dimension, dtype),
            "encoder": dict(describe),
        }
        now = json.loads(json.dumps(now, allow_nan=False))  # as it will be read back
        if manifest is None:
            manifest = Manifest(now, dict(about or {}))
            manifest.save(folder)
        _require_same(manifest, now, folder)
        run = _Run(encode, input_rows, folder, manifest, truncated_texts or (lambda: 0))
        return run.finish(total_bytes, progress)


def _check(dimension: int, shard_rows: int | None, format: str, dtype: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"Unknown format {format!r}, expected one of {FORMATS}.")
    if dtype not in DTYPES:
        raise ValueError(f"Unknown dtype {dtype!r}, expected one of {DTYPES}.")
    if shard_rows is not None and shard_rows < 1:
        raise ValueError(f"shard_rows must be at least 1, got {shard_rows}.")
    if dimension < 1:
        raise ValueError(f"dimension must be at least 1, got {dimension}.")


def _begun(folder: Path, overwrite: bool) -> Manifest | None:
    """What an earlier run left in the folder, if there was one and it is not overwritten."""
    if overwrite:
        manifests.remove_all(folder)
        return None
    manifest = Manifest.load(folder)
    manifests.remove_unfinished(folder)
    return manifest


def _require_same(manifest: Manifest, now: Mapping[str, Any], folder: Path) -> None:
    if different := manifests.differences(manifest.settings, now):
        raise EmbeddingFolderError(
            f"'{folder}' holds embeddings that were made otherwise. "
            + "; ".join(different)
            + f". Go on with what was there, choose another folder, or {_ANEW}."
        )


class _Run:
    def __init__(
        self,
        encode: Encode,
        rows: InputRows,
        folder: Path,
        manifest: Manifest,
        truncated_texts: Callable[[], int],
    ) -> None:
        self._encode = encode
        self._rows = rows
        self._folder = folder
        self._manifest = manifest
        self._truncated_texts = truncated_texts
        self._format: str = manifest.settings["format"]
        self._dtype = np.dtype(manifest.settings["dtype"])
        self._dimension: int = manifest.settings["dimension"]
        self._shard_rows: int = manifest.settings["shard_rows"]

    def finish(self, total_bytes: int | None, progress: bool) -> Summary:
        """Go through all rows, and embed those that are in no shard."""
        began = time.monotonic()
        embedded = 0
        with _Bar(self._rows, total_bytes, progress) as self._bar:
            for number in count():
                self._rows.begin_shard()
                if self._manifest.finished and number not in self._manifest.shards:
                    break
                shard = self._there(number)
                if shard is not None:
                    self._compare(shard)
                else:
                    shard = self._embed_shard(number)
                    if shard is not None:
                        embedded += shard.rows
                        self._keep(number, shard)
                if shard is None or shard.rows < self._shard_rows:
                    break
        self._require_end()
        manifest = self._manifest
        if not manifest.finished:
            manifest.finished = True
            manifest.save(self._folder)
        seconds = time.monotonic() - began
        shards, counts = len(manifest.shards), manifest.counts
        return Summary(self._folder, manifest.rows, shards, counts, embedded, seconds)

    def _there(self, number: int) -> Shard | None:
        """A shard that is finished, and whose file is as it was."""
        shard = self._manifest.shards.get(number)
        if shard is None:
            return None
        path = self._folder / shard.file
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

    def _compare(self, shard: Shard) -> None:
        """Read the rows of a finished shard and see that they are what it was made from."""
        start = self._rows.read
        found = self._rows.skip(shard.rows)
        self._bar.show()
        if found < shard.rows:
            raise self._shorter()
        if self._rows.digest != shard.input:
            raise EmbeddingFolderError(
                f"The input has changed: rows {start:,} to {start + shard.rows - 1:,} (from 0) are "
                f"not those that '{self._folder / shard.file}' was made from. Give the same inputs "
                f"in the same order, choose another folder, or {_ANEW}. (Release 1.5.0 took lines "
                "of CSV and TSV for rows, and a carriage return for the end of one; a table that "
                "is called .txt is still read by lines.)"
            )

    def _require_end(self) -> None:
        if self._rows.read < self._manifest.rows:
            raise self._shorter()
        if self._rows.skip(1):
            raise EmbeddingFolderError(
                f"The input has changed: it goes on after the {self._manifest.rows:,} rows that "
                f"'{self._folder}' has embeddings of. Embed the new rows into another folder, or "
                f"{_ANEW}."
            )

    def _shorter(self) -> EmbeddingFolderError:
        return EmbeddingFolderError(
            f"The input has changed: it ends after {self._rows.read:,} rows, and '{self._folder}' "
            f"has embeddings of {self._manifest.rows:,}. Give the same inputs in the same order, "
            f"choose another folder, or {_ANEW}."
        )

    def _embed_shard(self, number: int) -> Shard | None:
        """Embed the next rows and write their file; `None` if there are none."""
        rows, start, cut = self._rows, self._rows.read, self._truncated_texts()
        vectors = np.empty((0, self._dimension), self._dtype)
        done = 0
        while texts := rows.take(self._shard_rows - done, _BLOCK_CHARACTERS):
            if not len(vectors):  # only now: there may be no more rows
                vectors = np.empty((self._shard_rows, self._dimension), self._dtype)
            with np.errstate(over="ignore"):  # in float16: infinite, and counted below
                vectors[done : done + len(texts)] = self._embeddings(texts)
            done += len(texts)
            self._bar.show()
        if not done:
            return None
        vectors = vectors[:done]
        broken = ~np.isfinite(vectors).all(axis=1)
        vectors[broken] = np.nan
        counts = Counts(
            blank_rows=rows.blank,
            replaced_rows=rows.replaced,
            unreadable_rows=rows.unreadable,
            truncated_rows=self._truncated_texts() - cut,
            not_finite_rows=int(broken.sum()),
        )
        path = self._folder / manifests.shard_name(number, self._format)
        write_shard(path, self._format, start, vectors)
        checksums = file_checksums(path)
        return Shard(path.name, done, path.stat().st_size, rows.digest, counts, checksums)

    def _embeddings(self, texts: list[str]) -> np.ndarray:
        found = np.asarray(self._encode(texts))
        if found.shape != (len(texts), self._dimension):
            raise EmbeddingFolderError(
                f"Expected embeddings of shape {(len(texts), self._dimension)}, the encoder gave "
                f"{found.shape}."
            )
        return found

    def _keep(self, number: int, shard: Shard) -> None:
        before = self._manifest.shards.get(number)
        if before is not None and (before.input, before.rows) != (shard.input, shard.rows):
            (self._folder / shard.file).unlink()
            raise EmbeddingFolderError(
                f"The input has changed: it has other rows where '{self._folder / shard.file}' "
                "is missing. Give the same inputs in the same order, choose another folder, or "
                f"{_ANEW}."
            )
        self._manifest.shards[number] = shard
        self._manifest.save(self._folder)
        logger.info("%s: %d rows, %d in all", shard.file, shard.rows, self._rows.read)


class _Bar:
    """A progress bar in rows. How many there will be is guessed from bytes, if those are known."""

    def __init__(self, rows: InputRows, total_bytes: int | None, shown: bool) -> None:
        self._rows = rows
        self._total_bytes = total_bytes
        # None: only on a terminal, so that logs hold no bars.
        self._bar = tqdm(unit=" rows", unit_scale=True, disable=None if shown else True)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.total:
            self._bar.total = self._rows.read
        self._bar.close()

    def show(self) -> None:
        rows = self._rows
        if self._total_bytes and rows.bytes:
            self._bar.total = max(rows.read, round(rows.read * self._total_bytes / rows.bytes))
        self._bar.set_postfix_str(f"{rows.bytes / 1e6:,.1f} MB of text", refresh=False)
        self._bar.update(rows.read - self._bar.n)
