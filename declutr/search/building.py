"""Building a search index of lines, which resumes after an interruption."""

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
from declutr.search import index_files
from declutr.search.backends import APPROXIMATE, EXACT_ROWS, chosen_backend
from declutr.search.index_prompts import Embedder, encoder_of_lines, prompts_to_build_with
from declutr.search.searcher import ExactNumpy, SearchableRows, tune
from declutr.search.stored_lines import StoredLines, write_lines
from declutr.system import local_path
from declutr.system.files import file_checksums, write_whole
from declutr.system.vectors import unit_rows

if TYPE_CHECKING:
    from declutr.inference.text_model import SidePrompts


@dataclass(frozen=True)
class IndexSummary:
    """The result of `build_index`.

    # Parameters

    embedding : the summary of embedding the lines.
    description : the description of the index.
    kept : whether the index was complete already and nothing was built.
    seconds : the time that the call took.
    """

    embedding: Summary
    description: index_files.IndexDescription
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
    """Build an index of `lines` in `folder`, or resume an interrupted build.

    # Parameters

    encoder : a `declutr.Encoder`. If its model has prompts for queries and documents, lines get the
        prompt for documents (or the encoder's own prompt), and queries the prompt for queries.
    lines : any texts. Blank lines have a row number and are never found.
    folder : the folder of the index.
    options : the arguments of `encoder` that queries need too (`max_length`, `pooling`, ...).
    backend : one of `BACKENDS`. A change of the backend alone reuses the embeddings.
    exact_rows : the number of lines above which faiss and hnswlib search approximately.
    shard_rows : the number of embeddings in a file, as in `embed_rows`.
    overwrite : whether to replace an index of other lines or another model, when lines are read.
    progress : whether to show a progress bar.
    say : a function that is called with a description of longer steps as they begin.

    # Raises

    `SearchError` : if a setting is out of range, if all lines are blank, if the folder holds an
        index of other lines or another model or anything else, or if another process writes to it.
    `ImportError` : if the backend is not installed.
    `TypeError` : if `lines` are not texts, as in the case of a single string.
    """
    began = time.monotonic()
    require_rows(lines)
    backend = chosen_backend(backend)  # It should fail before a million lines have been embedded.
    folder = local_path(folder)
    index_files.require_ours(folder)
    try:
        with output_folder(folder):
            sides = prompts_to_build_with(encoder, folder, overwrite)
            settings = {"shard_rows": shard_rows, "overwrite": overwrite, "progress": progress}
            summary = _embedded(encoder, sides, lines, folder, settings)
            embeddings = StoredEmbeddings(folder / index_files.EMBEDDINGS)
            rows = SearchableRows(embeddings, _left_out(folder))
            place = encoder.describe()["place"]
            wanted = index_files.IndexDescription(
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
        raise index_files.SearchError(str(error)) from error
    return IndexSummary(summary, description, found is not None, time.monotonic() - began)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors `(n, d)` scaled to length 1; zeros stay, and infinite vectors become NaN."""
    with np.errstate(invalid="ignore"):  # Rows with NaN are left out of the search later.
        return unit_rows(vectors)


def _embedded(
    encoder: Embedder,
    sides: SidePrompts | None,
    lines: Iterable[str],
    folder: Path,
    settings: dict[str, Any],
) -> Summary:
    """Write the lines and their embeddings to `folder`.

    The lines are moved to their final names after `embed_rows` has verified that they are those of
    any earlier embeddings. With `overwrite`, the earlier index is removed when all lines are read.
    """
    unfinished = folder / index_files.UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        read = write_lines(lines, unfinished)
        if all(not line.strip() for line in StoredLines(unfinished)):
            raise index_files.SearchError(
                f"There is nothing to search in: all of the {read:,} lines are blank."
                if read
                else "There is nothing to search in: the input has no lines."
            )
        if settings["overwrite"]:
            require_our_embeddings(folder / index_files.EMBEDDINGS)
            (folder / index_files.DESCRIPTION).unlink(missing_ok=True)
        encode, described = encoder_of_lines(encoder, sides)
        summary = embed_rows(
            lambda texts: normalized(encode(texts)),
            StoredLines(unfinished),
            folder / index_files.EMBEDDINGS,
            dimension=encoder.dimension,
            describe=described,
            about=index_files.MARK,
            truncated_texts=lambda: encoder.truncated_texts,
            total_bytes=(unfinished / index_files.TEXT).stat().st_size,
            **settings,
        )
        for name in (index_files.TEXT, index_files.OFFSETS):
            os.replace(unfinished / name, folder / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return summary


def _left_out(folder: Path) -> np.ndarray:
    """Store and return the row numbers, ascending, of blank lines and of non-finite embeddings."""
    lines, embeddings = StoredLines(folder), StoredEmbeddings(folder / index_files.EMBEDDINGS)
    whole = ((start, np.isfinite(block).all(axis=1)) for start, block in embeddings.blocks())
    broken = [start + np.flatnonzero(~finite) for start, finite in whole]
    left_out = np.unique(np.concatenate([lines.blank(), *broken])).astype(np.int64)
    place = folder / index_files.LEFT_OUT
    write_whole(place, lambda file: np.save(file, left_out, allow_pickle=False))
    return left_out


def _same(
    folder: Path, wanted: index_files.IndexDescription
) -> index_files.IndexDescription | None:
    """Return the description of the index in `folder` if it is sound and as wanted."""
    try:
        found = index_files.IndexDescription.load(folder)
    except index_files.SearchError:
        return None
    if replace(found, effort=None, recall=None, checksums={}) != wanted:
        return None
    # Indexes of early releases have no checksums, so for them existence has to be enough.
    sound = all(
        file.is_file() and found.checksums.get(file.name) in (None, file_checksums(file))
        for file in _searched_files(folder, found)
    )
    return found if sound else None


def _searched_files(folder: Path, description: index_files.IndexDescription) -> list[Path]:
    """Return the files that a search reads, except the embeddings."""
    files = [folder / index_files.TEXT, folder / index_files.OFFSETS, folder / index_files.LEFT_OUT]
    if description.approximate:
        files.append(index_files.structure_file(folder, description.backend))
    return files


def made_searchable(
    rows: SearchableRows,
    wanted: index_files.IndexDescription,
    folder: Path,
    say: Callable[[str], None],
) -> index_files.IndexDescription:
    """Build the search structure of an index if needed, then write and return its description.

    # Parameters

    rows : the embeddings of the index.
    wanted : the description of the index, without effort, recall and checksums.
    folder : the folder of the index.
    say : a function that is called with a description of each step as it begins.
    """
    effort = recall = None
    unfinished = folder / index_files.UNFINISHED
    try:
        if wanted.approximate:
            unfinished.mkdir(exist_ok=True)
            built = index_files.structure_file(unfinished, wanted.backend)
            say(f"Building a search structure of {len(rows):,} vectors with {wanted.backend} …")
            searcher = APPROXIMATE[wanted.backend].build(rows, built)
            say("Comparing it with exact search …")
            recall = round(tune(searcher, ExactNumpy(rows), rows), 4)
            effort = searcher.effort
        # Without a description, an interruption from here on leaves an unfinished index.
        (folder / index_files.DESCRIPTION).unlink(missing_ok=True)
        for file in index_files.structure_files(folder):
            file.unlink(missing_ok=True)
        if wanted.approximate:
            os.replace(built, index_files.structure_file(folder, wanted.backend))
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    sums = {file.name: file_checksums(file) for file in _searched_files(folder, wanted)}
    description = replace(wanted, effort=effort, recall=recall, checksums=sums)
    description.save(folder)
    return description
