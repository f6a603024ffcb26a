"""`SearchIndex`: a query in, the lines nearest in meaning out."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from declutr.corpus.text_inputs import NamedFiles
from declutr.inference.bulk import EmbeddingFolderError, StoredEmbeddings
from declutr.inference.bulk.embedding_run import differences
from declutr.inference.bulk.manifest import output_folder
from declutr.search.backends import APPROXIMATE, exact_searcher, is_installed, is_of_hnswlib
from declutr.search.building import made_searchable, normalized
from declutr.search.index_files import (
    EMBEDDINGS,
    LEFT_OUT,
    IndexDescription,
    SearchError,
    require_sound,
    structure_file,
)
from declutr.search.index_prompts import Embedder, Encode, encoder_of_queries, without_prompt
from declutr.search.searcher import ExactNumpy, SearchableRows, Searcher, ranked
from declutr.search.stored_lines import StoredLines

logger = logging.getLogger(__name__)

# Bytes of a search structure that faiss maps: of larger ones a query reads so little that reading
# all of it first would take longer. What damage there costs is a candidate; cosines come from the
# vectors, which are checked.
_CHECKED_OF_FAISS = 1 << 30

# A model may move; and a query embedded in float32 finds what was embedded in bfloat16 or int8.
# Lines that release 1.5.0 cut at the other end are still found by what was kept of them.
_MAY_DIFFER = ("place", "dtype", "truncation_side")


@dataclass(frozen=True)
class Hit:
    """A line that was found.

    # Parameters

    row : its number, from 0.
    score : its cosine with the query.
    text : the line.
    """

    row: int
    score: float
    text: str


class SearchIndex:
    """The lines that `build_index` (or `declutr index`) indexed.

        index = SearchIndex("index")
        index.search("where are taxes explained?", k=5)  # [Hit(row, score, text), ...]

    # Parameters

    folder : the index.
    encoder : what embeds queries; by default the model of the index is opened, at the first query.
    exact : compare queries with all lines, one by one from the disk, also where the index could do
        with fewer.
    model : where the model is now, if it was moved.
    device, trust : for `declutr.Encoder`.
    prompt_name, prompt : of queries, as for `declutr.Encoder`; by default what the index was built
        for.

    # Raises

    `SearchError` : there is no finished index, or parts of it are missing or damaged; of lines and
        vectors, where they are read.
    """

    def __init__(
        self,
        folder: Path | str,
        encoder: Embedder | None = None,
        *,
        exact: bool = False,
        model: str | os.PathLike | None = None,
        device: str | None = None,
        trust: bool = False,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.description = IndexDescription.load(self.folder)
        sums = self.description.checksums
        self.lines = StoredLines(self.folder, sums)
        try:
            require_sound(self.folder / LEFT_OUT, sums)
            embeddings = StoredEmbeddings(self.folder / EMBEDDINGS)
            left_out = np.load(self.folder / LEFT_OUT, allow_pickle=False)
        except SearchError:
            raise
        except (EmbeddingFolderError, OSError, ValueError) as error:
            raise SearchError(f"Parts of the index '{folder}' are missing. {error}") from error
        if not len(self.lines) == len(embeddings) == self.description.rows:
            raise SearchError(
                f"The index '{folder}' has {len(self.lines):,} lines and {len(embeddings):,} "
                f"vectors, expected {self.description.rows:,}. Build it again."
            )
        self._rows = SearchableRows(embeddings, left_out)
        self._exact = exact
        self._model = os.fspath(model) if model is not None else self.description.model
        self._device, self._trust = device, trust
        self._given = encoder
        self._prompt, self._prompt_name = prompt, prompt_name
        self._named_files = NamedFiles("`declutr search INDEX < FILE`")

    def __len__(self) -> int:
        """How many lines it has, blank ones included."""
        return len(self.lines)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k lines with the highest cosines, the highest first; equal ones in their order.

        Fewer if there are fewer lines that are not blank.

        # Raises

        `SearchError` : a blank query, k below 1, a model that is not the one of the index, or a
            prompt that it does not have.
        `TypeError` : a query that is no string.
        """
        if not isinstance(query, str):
            raise TypeError(
                f"Expected a query, one string, got {type(query).__name__}. Search for several "
                "queries one by one."
            )
        if not query.strip():
            raise SearchError("Got an empty query, expected some text.")
        if k < 1:
            raise SearchError(f"Expected at least 1 line to be looked for, got k = {k}.")
        texts = [self._named_files.texts(query)]
        return self.nearest(normalized(np.asarray(self._encode_queries(texts)))[0], k)

    def nearest(self, vector: np.ndarray, k: int = 10) -> list[Hit]:
        """The same for a vector `(d,)` of length 1.

        # Raises

        `SearchError` : another shape, or numbers that are not finite.
        """
        vector = np.asarray(vector, dtype=np.float32)
        if vector.shape != (self._rows.dimension,):
            raise SearchError(
                f"Expected a vector of shape ({self._rows.dimension},), got {vector.shape}."
            )
        if not np.isfinite(vector).all():
            raise SearchError("The embedding of this query is not finite: it cannot be searched.")
        found, cosines = ranked(self._searcher, self._rows, vector, k)
        if len(found) < min(k, len(self._rows)):  # a graph in pieces, of which it saw one
            found, cosines = ranked(ExactNumpy(self._rows), self._rows, vector, k)
        return [
            Hit(row, min(1.0, max(-1.0, cosine)), self.lines[row])
            for row, cosine in zip(found.tolist(), cosines.tolist(), strict=True)
        ]

    @cached_property
    def _searcher(self) -> Searcher:
        backend = self.description.backend
        if self._exact:
            return ExactNumpy(self._rows)
        if not is_installed(backend):
            logger.warning(
                "This index was built with %s, which is not installed here: searching with numpy, "
                "which is exact and slower.",
                backend,
            )
            return ExactNumpy(self._rows)
        if not self.description.approximate:
            return exact_searcher(backend, self._rows)
        file = structure_file(self.folder, backend)
        if not file.is_file() or self.description.effort is None:
            raise SearchError(f"'{file}' is missing. Repeat the command that built the index.")
        if backend == "hnswlib" and is_of_hnswlib(file) and not self._built_anew(file):
            return ExactNumpy(self._rows)
        if backend != "faiss" or file.stat().st_size <= _CHECKED_OF_FAISS:
            require_sound(file, self.description.checksums)
        return APPROXIMATE[backend](file, self.description.effort)

    def _built_anew(self, file: Path) -> bool:
        """Replace a graph that an earlier release wrote with hnswlib; return whether it could."""
        logger.warning(
            "'%s' is of an earlier release, which wrote it with hnswlib. It is built anew from the "
            "stored vectors, with faiss.",
            file,
        )
        try:
            with output_folder(self.folder):
                self.description = made_searchable(
                    self._rows, self.description, self.folder, logger.info
                )
        except (EmbeddingFolderError, OSError) as error:
            logger.warning("%s Searching with numpy, which is exact and slower.", error)
            return False
        return True

    @cached_property
    def _encoder(self) -> Embedder:
        encoder = self._opened() if self._given is None else self._given
        then, now = (
            {name: value for name, value in described.items() if name not in _MAY_DIFFER}
            for described in (
                self.description.encoder,
                without_prompt(encoder.describe(), self.description),
            )
        )
        if different := differences(then, now):
            raise SearchError(
                f"The model '{encoder.describe()['place']}' is not as it was when the lines were "
                f"embedded, so queries would not meet them. {'; '.join(different)}. Build the "
                "index again (`declutr index MODEL LINES -o INDEX --overwrite`), or name the model "
                "that it was built with."
            )
        return encoder

    @cached_property
    def _encode_queries(self) -> Encode:
        return encoder_of_queries(self._encoder, self.description, self._prompt, self._prompt_name)

    def _opened(self) -> Embedder:
        from declutr.inference.encoder import Encoder

        try:
            return Encoder(
                self._model, device=self._device, trust=self._trust, **self.description.options
            )
        except FileNotFoundError as error:
            raise SearchError(
                f"The model of the index '{self.folder}' is not where it was. {error} Say where it "
                "is now with --model (model=...)."
            ) from error
