"""From lines to an index, in steps that are not repeated after an interruption."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from declutr.corpus.text_inputs import require_rows
from declutr.inference.bulk import EmbeddingFolderError, StoredEmbeddings, Summary, embed_rows
from declutr.inference.bulk.manifest import output_folder
from declutr.inference.bulk.manifest import require_ours as require_our_embeddings
from declutr.search.backends import APPROXIMATE, EXACT_ROWS, chosen_backend
from declutr.search.index_files import (
    DESCRIPTION,
    EMBEDDINGS,
    LEFT_OUT,
    MARK,
    OFFSETS,
    TEXT,
    UNFINISHED,
    IndexDescription,
    SearchError,
    require_ours,
    structure_file,
    structure_files,
)
from declutr.search.index_prompts import Embedder, encoder_of_lines, prompts_to_build_with
from declutr.search.searcher import ExactNumpy, SearchableRows, tune
from declutr.search.stored_lines import StoredLines, write_lines
from declutr.system.files import file_checksums, write_whole
from declutr.system.vectors import unit_rows

if TYPE_CHECKING:
    from declutr.inference.text_model import SidePrompts


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
            settings = {"shard_rows": shard_rows, "overwrite": overwrite, "progress": progress}
            summary = _embedded(encoder, sides, lines, folder, settings)
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
            description = found or made_searchable(rows, wanted, folder, say)
    except EmbeddingFolderError as error:
        raise SearchError(str(error)) from error
    return IndexSummary(summary, description, found is not None, time.monotonic() - began)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return rows `(n, d)` of length 1, or of 0."""
    with np.errstate(invalid="ignore"):  # infinite ones become NaN, and are left out
        return unit_rows(vectors)


def _embedded(
    encoder: Embedder,
    sides: SidePrompts | None,
    lines: Iterable[str],
    folder: Path,
    settings: dict[str, Any],
) -> Summary:
    """Write lines and their vectors to the disk.

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
        if settings["overwrite"]:
            require_our_embeddings(folder / EMBEDDINGS)
            (folder / DESCRIPTION).unlink(missing_ok=True)
        encode, described = encoder_of_lines(encoder, sides)
        summary = embed_rows(
            lambda texts: normalized(encode(texts)),
            StoredLines(unfinished),
            folder / EMBEDDINGS,
            dimension=encoder.dimension,
            describe=described,
            about=MARK,
            truncated_texts=lambda: encoder.truncated_texts,
            total_bytes=(unfinished / TEXT).stat().st_size,
            **settings,
        )
        for name in (TEXT, OFFSETS):
            os.replace(unfinished / name, folder / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return summary


def _left_out(folder: Path) -> np.ndarray:
    """Keep the rows of blank lines and of vectors that are not finite, rising, for searches."""
    lines, embeddings = StoredLines(folder), StoredEmbeddings(folder / EMBEDDINGS)
    broken = [
        start + np.flatnonzero(~np.isfinite(block).all(axis=1))
        for start, block in embeddings.blocks()
    ]
    left_out = np.unique(np.concatenate([lines.blank(), *broken])).astype(np.int64)
    write_whole(folder / LEFT_OUT, lambda file: np.save(file, left_out, allow_pickle=False))
    return left_out


def _same(folder: Path, wanted: IndexDescription) -> IndexDescription | None:
    """Return what was built before, if it is what is wanted now."""
    try:
        found = IndexDescription.load(folder)
    except SearchError:
        return None
    if replace(found, effort=None, recall=None, checksums={}) != wanted:
        return None
    # Each file is there, and as it was written where that is known.
    sound = all(
        file.is_file() and found.checksums.get(file.name) in (None, file_checksums(file))
        for file in _searched_files(folder, found)
    )
    return found if sound else None


def _searched_files(folder: Path, description: IndexDescription) -> list[Path]:
    """Return the files that a search reads, but for the embeddings."""
    files = [folder / TEXT, folder / OFFSETS, folder / LEFT_OUT]
    if description.approximate:
        files.append(structure_file(folder, description.backend))
    return files


def made_searchable(
    rows: SearchableRows, wanted: IndexDescription, folder: Path, say: Callable[[str], None]
) -> IndexDescription:
    """Build what searches, and write the description when it is there."""
    effort = recall = None
    unfinished = folder / UNFINISHED
    try:
        if wanted.approximate:
            unfinished.mkdir(exist_ok=True)
            built = structure_file(unfinished, wanted.backend)
            say(f"Building a search structure of {len(rows):,} vectors with {wanted.backend} …")
            searcher = APPROXIMATE[wanted.backend].build(rows, built)
            say("Comparing it with exact search …")
            recall = round(tune(searcher, ExactNumpy(rows), rows), 4)
            effort = searcher.effort
        (folder / DESCRIPTION).unlink(missing_ok=True)  # of what was there
        for file in structure_files(folder):
            file.unlink(missing_ok=True)
        if wanted.approximate:
            os.replace(built, structure_file(folder, wanted.backend))
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    sums = {file.name: file_checksums(file) for file in _searched_files(folder, wanted)}
    description = replace(wanted, effort=effort, recall=recall, checksums=sums)
    description.save(folder)
    return description
