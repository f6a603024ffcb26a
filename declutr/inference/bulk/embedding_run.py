"""The function `embed_rows`, which writes an embedding for each row into a folder, resumably."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from declutr.corpus.text_inputs import require_rows
from declutr.inference.bulk import manifest as manifests
from declutr.inference.bulk.input_rows import InputRows
from declutr.inference.bulk.shard_files import DTYPES, FORMATS, require
from declutr.inference.bulk.shard_run import BLOCK_CHARACTERS, Encode, ShardRun, Summary
from declutr.system import local_path

_SHARD_BYTES = 64 << 20
_MOST_ROWS = 65_536


def default_shard_rows(dimension: int, dtype: str = "float32") -> int:
    """Return the number of rows of a shard: a power of two, at most 65,536 rows and 64 MiB.

    # Parameters

    dimension : the width of embeddings.
    dtype : the dtype that is stored, one of `DTYPES`.

    >>> default_shard_rows(768)
    16384
    """
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
    """Embed rows into a folder, shard by shard, or resume a run into that folder.

    Finished shards are not embedded again: their rows are read and compared with a digest, and
    their files with checksums; a damaged shard is embedded again. Every shard is embedded on its
    own, so the result does not depend on interruptions. Memory holds the embeddings of one shard
    and some of its texts.

    # Parameters

    encode : a function from a list of n texts to their embeddings `(n, d)`.
    rows : the texts; `None` stands for a row that could not be read, and is embedded as a blank
        text.
    folder : the folder to write to, made if need be; `declutr.inference.bulk.manifest` describes
        its files.
    dimension : the width d of embeddings.
    describe : plain JSON values that embeddings depend on; a resumed run must have the same.
    shard_rows : the number of rows of a shard; by default as in the run that is resumed, or
        `default_shard_rows`.
    format : the format of the shards, one of `FORMATS`.
    dtype : the dtype that is stored, one of `DTYPES`.
    about : further plain JSON values for the manifest, which a resumed run may change.
    truncated_texts : a function that returns how many texts the encoder has cut so far.
    total_bytes : the size of all texts together, for the progress bar; `None` if it is not known.
    overwrite : remove existing embeddings and start anew. They are removed once the first rows have
        been read.
    progress : show a progress bar, if standard error is a terminal.

    # Returns

    A summary of the run and of the folder.

    # Raises

    `EmbeddingFolderError` : the folder holds something else, or embeddings of other rows or with
        other settings; another run is writing to it; or the encoder returned another shape.
    `ImportError` : the format needs a package that is missing.
    `TypeError` : the rows are not texts, but for instance a DataFrame or a single string.
    `ValueError` : a value is out of range.
    """
    _check(dimension, shard_rows, format, dtype)
    require_rows(rows)
    require(format)
    folder = local_path(folder)
    with manifests.output_folder(folder):
        manifests.require_ours(folder)
        input_rows = InputRows(rows)
        if overwrite:  # nothing is removed if the input cannot be read
            most = shard_rows or default_shard_rows(dimension, dtype)
            input_rows.read_ahead(most, BLOCK_CHARACTERS)
            manifests.remove_all(folder)
        manifest = manifests.Manifest.load(folder)
        manifests.remove_unfinished(folder)
        now = {
            "format": format,
            "dtype": dtype,
            "dimension": dimension,
            "shard_rows": shard_rows
            or (manifest and manifest.settings.get("shard_rows"))
            or default_shard_rows(dimension, dtype),
            "encoder": dict(describe),
        }
        now = json.loads(json.dumps(now, allow_nan=False))  # as JSON gives it back, to compare
        if manifest is None:
            manifest = manifests.Manifest(now, dict(about or {}))
            manifest.save(folder)
        if different := differences(manifest.settings, now):
            raise manifests.EmbeddingFolderError(
                f"'{folder}' holds embeddings that were made otherwise. {'; '.join(different)}. Go "
                f"on with what was there, choose another folder, or {manifests.ANEW}."
            )
        cut = truncated_texts or (lambda: 0)
        run = ShardRun(encode, input_rows, folder, manifest, cut, total_bytes, progress)
        return run.finish()


def _check(dimension: int, shard_rows: int | None, format: str, dtype: str) -> None:
    for name, chosen, known in (("format", format, FORMATS), ("dtype", dtype, DTYPES)):
        if chosen not in known:
            raise ValueError(f"Unknown {name} {chosen!r}, expected one of {known}.")
    for name, value in (("shard_rows", shard_rows), ("dimension", dimension)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each setting, named by its dotted path, that differs between two runs."""
    old, new = dict(_flat(before)), dict(_flat(now))
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new or old[name] != new[name]:
            values = [json.dumps(side[name]) if name in side else "none" for side in (old, new)]
            found.append(f"{name}: {values[0]} there, {values[1]} now")
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
