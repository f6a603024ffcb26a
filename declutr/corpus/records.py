"""Records of files: the objects of JSON lines, of a JSON array and of parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from declutr.corpus.text_files import (
    SourceError,
    file_format,
    is_compressed,
    open_bytes,
    open_text,
    telling_what_fails,
)

_ROWS_AT_ONCE = 1024  # of a parquet file, whatever the size of its row groups
_BUFFER = 1 << 20  # bytes of a column of it


def record_format(file: Path, encoding_errors: str = "strict") -> str:
    """The format of a file as `file_format` has it, but of `.json` told from what is in it.

    `"json"` is an array, which begins with a bracket; otherwise it holds an object a line,
    `"lines"`.

    # Raises

    `SourceError` : a `.json` file that cannot be read.
    """
    kind = file_format(file)
    if kind != "json":
        return kind
    with telling_what_fails(file, "text"), open_text(file, encoding_errors) as lines:
        for line in lines:
            if line.strip():
                return "json" if line.lstrip().startswith("[") else "lines"
    return "lines"


def read_records(
    file: Path, kind: str, encoding_errors: str = "strict", key: str | None = None
) -> Iterator[Any]:
    """The records of a file, in order; of `"lines"` the lines as they are, for `parsed`.

    Everything but a JSON array is streamed.

    # Parameters

    kind : from `record_format`: `"lines"`, `"json"` or `"parquet"`.
    encoding_errors : `"strict"` or `"replace"`, for JSON that is not UTF-8.
    key : all that is wanted of a record, for formats that can leave out what is not. Without it
        in a file, all of a record comes.

    # Raises

    `SourceError` : the file cannot be read.
    """
    with telling_what_fails(file, kind):
        if kind == "parquet":
            yield from _parquet_rows(file, key)
            return
        with open_text(file, encoding_errors) as lines:
            yield from json.load(lines) if kind == "json" else lines


def parsed(line: str, file: Path | str, number: int) -> Any:
    """What a line of JSON holds; `file` and `number` are for the error.

    # Raises

    `SourceError` : it is not JSON.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        raise SourceError(
            f"'{file}', row {number} is not JSON ({error}). Expected one object a line."
        ) from error


def _parquet_rows(file: Path, key: str | None) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    # Parquet is read from its end, which a decompressed stream does not have yet.
    source = io.BytesIO(open_bytes(file).read()) if is_compressed(file) else str(file)
    with ParquetFile(source, buffer_size=_BUFFER) as table:
        columns = [key] if key in table.schema_arrow.names else None
        for batch in table.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            yield from batch.to_pylist()
