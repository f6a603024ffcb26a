"""Documents from files of any format, one row each, in file order.

Text files hold one document a line; JSON lines and parquet hold it under a key. Hugging Face
`datasets` does the reading (compression included), in streaming mode: memory stays flat and no
second copy of the corpus is written.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike
ENCODING_ERRORS = ("strict", "replace")

_FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst", ".lz4"}
_REPLACEMENT = "\ufffd"


class SourceError(ValueError):
    """A corpus that cannot be read: the message names the file, the row and the way out."""


def source_files(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files behind `path`: a file, a folder (searched recursively), a glob, a URL, or a list.

    Files of a folder or glob come in sorted order, so that row numbers are the same everywhere.
    Raises `SourceError` if nothing is found.
    """
    if not isinstance(path, (str, os.PathLike)):
        if not path:
            raise SourceError("Got an empty list of files; expected at least one.")
        return [file for part in path for file in source_files(part)]
    text = os.fspath(path)
    if "://" in text:
        from cached_path import cached_path

        return [cached_path(text)]
    expanded = Path(text).expanduser()
    if expanded.is_dir():
        files = sorted(
            file
            for file in expanded.rglob("*")
            if file.is_file()
            and not any(p.startswith(".") for p in file.relative_to(expanded).parts)
        )
    elif expanded.exists():
        files = [expanded]
    else:
        files = sorted(Path(match) for match in glob.glob(str(expanded), recursive=True))
        files = [file for file in files if file.is_file()]
    if not files:
        raise SourceError(
            f"Found no documents at '{text}'. Expected a file with one document a line (plain or "
            "compressed), JSON lines, parquet, a folder of such files, or a glob that matches some."
        )
    return files


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def file_format(file: Path) -> str:
    """`"json"`, `"parquet"` or `"text"`, told from the name without its compression suffix."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1], "text") if suffixes else "text"


def read_documents(
    files: Sequence[Path], text_key: str = "text", encoding_errors: str = "strict"
) -> Iterator[str]:
    """Every row of every file, in order; blank rows are kept, as `""`.

    # Parameters

    files : from `source_files`.
    text_key : the key (or column) that holds the document in JSON lines and parquet.
    encoding_errors : what to do with bytes that are not UTF-8 in text files. `"strict"` raises
        `SourceError` with the line number, `"replace"` puts U+FFFD there and logs how many rows.
    """
    if encoding_errors not in ENCODING_ERRORS:
        raise SourceError(
            f"Unknown encoding_errors '{encoding_errors}': expected one of {ENCODING_ERRORS}."
        )
    for file in files:
        kind = file_format(file)
        if kind == "text":
            yield from _read_text(file, encoding_errors)
        else:
            yield from _read_records(file, kind, text_key)


def _stream(kind: str, file: Path, **options):
    import datasets

    return datasets.load_dataset(
        kind, data_files=[glob.escape(str(file))], split="train", streaming=True, **options
    )


def _read_text(file: Path, encoding_errors: str) -> Iterator[str]:
    replaced, first = 0, 0
    rows = iter(_stream("text", file, encoding="utf-8", encoding_errors=encoding_errors))
    number = 0
    while True:
        try:
            row = next(rows)["text"]
        except StopIteration:
            break
        except UnicodeDecodeError as error:
            line, column = _first_undecodable(file)
            raise SourceError(
                f"'{file}', line {line}: byte {column} is not valid UTF-8 ({error.reason}). "
                "Convert the file to UTF-8, or set encoding_errors to 'replace' on the reader."
            ) from error
        number += 1
        if encoding_errors == "replace" and _REPLACEMENT in row:
            replaced, first = replaced + 1, first or number
        yield row
    if replaced:
        logger.warning(
            "'%s': %d line(s) hold U+FFFD where bytes were not valid UTF-8; the first is line %d.",
            file,
            replaced,
            first,
        )


def _first_undecodable(file: Path) -> tuple[int, int]:
    """Line and byte (both from 1) of the first byte sequence that is not UTF-8."""
    import fsspec

    with fsspec.open(str(file), "rb", compression="infer") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return number, error.start + 1
    raise AssertionError(f"{file} decodes as UTF-8")


def _read_records(file: Path, kind: str, text_key: str) -> Iterator[str]:
    try:
        for number, row in enumerate(_stream(kind, file), start=1):
            if text_key not in row:
                raise SourceError(
                    f"'{file}', row {number}: no key '{text_key}'. Found {sorted(row)}; set "
                    "text_key on the dataset reader to the one that holds the document."
                )
            text = row[text_key]
            if text is not None and not isinstance(text, str):
                raise SourceError(
                    f"'{file}', row {number}: '{text_key}' is {type(text).__name__}, expected a "
                    "string."
                )
            yield text or ""
    except SourceError:
        raise
    except Exception as error:  # whatever the parser behind `datasets` raises
        raise SourceError(f"'{file}' could not be read as {kind}: {error}") from error


def normalize_whitespace(text: str) -> str:
    """`text` with every run of white space as one blank, none at the ends (case is kept)."""
    return " ".join(text.split())
