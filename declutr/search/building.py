"""From lines to an index, in steps that are not repeated after an interruption."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from declutr.corpus.text_inputs import require_rows
from declutr.inference.bulk import EmbeddingFolderError, StoredEmbeddings, Summary, embed_rows
from declutr.inference.bulk.manifest import output_folder
from declutr.inference.bulk.manifest import require_ours as require_our_embeddings
from declutr.search import description as descriptions
from declutr.search.backends import (
    EXACT_ROWS,
    built_searcher,
    chosen_backend,
    exact_searcher,
)
from declutr.search.description import IndexDescription, SearchError
from declutr.search.index_files import (
    EMBEDDINGS,
    LEFT_OUT,
    MARK,
    UNFINISHED,
    require_ours,
    structure_file,
    structure_files,
)
from declutr.search.index_prompts import encoder_of_lines, prompts_to_build_with
from declutr.search.recall import tune
from declutr.search.searchable_rows import SearchableRows
from declutr.search.stored_lines import OFFSETS, TEXT, StoredLines, write_lines
from declutr.system.atomic_files import write_whole
from declutr.system.checksums import file_checksums
from declutr.system.unit_rows import unit_rows

if TYPE_CHECKING:
    from declutr.inference.text_model import SidePrompts


class Embedder(Protocol):
    """What of `declutr.Encoder` is used here."""

    @property
    def dimension(self) -> int: ...

    @property
    def truncated_texts(self) -> int: ...

    def describe(self) -> dict[str, Any]: ...

    def __call__(self, inputs: list[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class IndexSummary:
    """What was built.

    # Parameters

    embedding : what embedding the lines did.
    description : what the index holds.
    kept : whether all of it was there already.
    seconds : that it took.
    """

    embedding: Summary
    description: IndexDescription
    kept: bool
    seconds: float


def build_index(
    encoder: Embedder,
    lines: Iterable[str],
    folder: Path | str,
    *,
    options: Mapping[str, Any] | None = None,
    backend: str = "auto",
    exact_rows: int = EXACT_ROWS,
    shard_rows: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> IndexSummary:
    """Make `folder` an index of `lines`, or go on where an earlier call was interrupted.

    Another backend for the same lines and model needs no embedding again.

    # Parameters

    encoder : a `declutr.Encoder`. If its model names prompts for queries and documents, lines are
        embedded after that of documents, or the one that the encoder was made with, and the index
        embeds queries after that of queries.
    lines : any texts. Blank ones count as lines and are never found.
    options : arguments that `encoder` was made with and that a query must be embedded with too
        (`max_length`, `pooling`, ...).
    backend : one of `BACKENDS`.
    exact_rows : with more lines than this, faiss and hnswlib look at a part of them only.
    shard_rows : vectors a file, as for `embed_rows`.
    overwrite : replace an index of other lines, or of another model, once all lines were read.
    progress : show a progress bar.
    say : is called with what is being done, now and then.

    # Raises

    `SearchError` : a setting out of range; no line but blank ones; the folder holds an index of
        other lines or another model, or something else; another process is writing to it.
    `ImportError` : the backend is not installed.
    `TypeError` : lines that are no texts, such as a single string.
    """
    began = time.monotonic()
    require_rows(lines)
    backend = chosen_backend(backend)  # before a million lines are embedded for nothing
    folder = Path(folder)
    require_ours(folder)
    try:
        with output_folder(folder):
            sides = prompts_to_build_with(encoder, folder, overwrite)
            summary = _embedded(encoder, sides, lines, folder, shard_rows, overwrite, progress)
            rows = SearchableRows(StoredEmbeddings(folder / EMBEDDINGS), _left_out(folder))
            place = encoder.describe()["place"]
            wanted = IndexDescription(
                rows=summary.rows,
                left_out=len(rows.left_out),
                model=os.path.abspath(place) if os.path.exists(place) else place,
                options=dict(options or {}),
                encoder={k: v for k, v in encoder.describe().items() if not sides or k != "prompt"},
                prompts=None if sides is None else sides._asdict(),
                backend=backend,
                approximate=backend != "numpy" and len(rows) > exact_rows,
            )
            found = None if summary.embedded_rows else _same(folder, wanted)
            description = found or _searchable(rows, wanted, folder, say)
    except EmbeddingFolderError as error:
        raise SearchError(str(error)) from error
    return IndexSummary(summary, description, found is not None, time.monotonic() - began)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Rows `(n, d)` of length 1, or of 0."""
    with np.errstate(invalid="ignore"):  # infinite ones become NaN, and are left out
        return unit_rows(vectors)


def _embedded(
    encoder: Embedder,
    sides: SidePrompts | None,
    lines: Iterable[str],
    folder: Path,
    shard_rows: int | None,
    overwrite: bool,
    progress: bool,
) -> Summary:
    """Lines and their vectors, on the disk.

    Lines come to their place when `embed_rows` has seen that they are those of the vectors. What is
    overwritten is removed when all lines are there.
    """
    unfinished = folder / UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        read = write_lines(lines, unfinished)
        if all(not line.strip() for line in StoredLines(unfinished)):
            raise SearchError(
                f"There is nothing to search in: all of the {read:,} lines are blank."
                if read
                else "There is nothing to search in: the input has no lines."
            )
        if overwrite:
            require_our_embeddings(folder / EMBEDDINGS)
            (folder / descriptions.FILE).unlink(missing_ok=True)
        encode, settings = encoder_of_lines(encoder, sides)
        summary = embed_rows(
            lambda texts: normalized(encode(texts)),
            StoredLines(unfinished),
            folder / EMBEDDINGS,
            dimension=encoder.dimension,
            describe=settings,
            about=MARK,
            shard_rows=shard_rows,
            truncated_texts=lambda: encoder.truncated_texts,
            total_bytes=(unfinished / TEXT).stat().st_size,
            overwrite=overwrite,
            progress=progress,
        )
        for name in (TEXT, OFFSETS):
            os.replace(unfinished / name, folder / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return summary


def _left_out(folder: Path) -> np.ndarray:
    """The rows of blank lines and of vectors that are not finite, rising; kept for searches."""
    lines, embeddings = StoredLines(folder), StoredEmbeddings(folder / EMBEDDINGS)
    broken = [
        start + np.flatnonzero(~np.isfinite(block).all(axis=1))
        for start, block in embeddings.blocks()
    ]
    left_out = np.unique(np.concatenate([lines.blank(), *broken])).astype(np.int64)
    write_whole(folder / LEFT_OUT, lambda file: np.save(file, left_out, allow_pickle=False))
    return left_out


def _same(folder: Path, wanted: IndexDescription) -> IndexDescription | None:
    """What was built before, if it is what is wanted now."""
    try:
        found = IndexDescription.load(folder)
    except SearchError:
        return None
    names = ("rows", "left_out", "model", "options", "encoder", "prompts", "backend", "approximate")
    if any(getattr(found, name) != getattr(wanted, name) for name in names):
        return None
    files = [folder / TEXT, folder / OFFSETS, folder / LEFT_OUT]
    files += [structure_file(folder, found.backend)] if found.approximate else []
    return found if all(_is_sound(file, found.checksums) for file in files) else None


def _is_sound(file: Path, recorded: Mapping[str, str]) -> bool:
    """Whether a file is there, and as it was written where that is known."""
    return file.is_file() and recorded.get(file.name) in (None, file_checksums(file))


def _searchable(
    rows: SearchableRows, wanted: IndexDescription, folder: Path, say: Callable[[str], None]
) -> IndexDescription:
    """Build what searches, and write the description."""
    (folder / descriptions.FILE).unlink(missing_ok=True)  # of what was there
    for file in structure_files(folder):
        file.unlink(missing_ok=True)
    if wanted.approximate:
        file = structure_file(folder, wanted.backend)
        say(f"Building a search structure of {len(rows):,} vectors with {wanted.backend} …")
        searcher = built_searcher(wanted.backend, rows, file)
        say("Comparing it with exact search …")
        recall = tune(searcher, exact_searcher("numpy", rows), rows)
        wanted = replace(wanted, effort=searcher.effort, recall=round(recall, 4))
    files = [folder / TEXT, folder / OFFSETS, folder / LEFT_OUT, *structure_files(folder)]
    sums = {file.name: file_checksums(file) for file in files if file.is_file()}
    wanted = replace(wanted, checksums=sums)
    wanted.save(folder)
    return wanted
