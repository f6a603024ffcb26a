"""The class `SearchIndex`, which finds the lines nearest in meaning to a query."""

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
from declutr.system import local_path

logger = logging.getLogger(__name__)

# Structures of faiss up to this size in bytes are checked on opening. Others would take too long;
# damage there can only lose candidates, as cosines come from the embeddings, which are checked.
_CHECKED_OF_FAISS = 1 << 30

# The encoder of queries may differ from that of lines in these settings: lines are found even if
# the model was moved, computed in another dtype, or truncated at the other end (release 1.5.0).
_MAY_DIFFER = ("place", "dtype", "truncation_side")


@dataclass(frozen=True)
class Hit:
    """A line that a search found.

    # Parameters

    row : the number of the line, from 0.
    score : the cosine of its embedding with that of the query.
    text : the line.
    """

    row: int
    score: float
    text: str


class SearchIndex:
    """A search index that `build_index` or `declutr index` built.

        index = SearchIndex("index")
        index.search("where are taxes explained?", k=5)  # [Hit(row, score, text), ...]

    # Parameters

    folder : the folder of the index.
    encoder : the encoder of queries; by default the first query opens the model of the index.
    exact : whether to compare all lines, read from disk, even if the index has approximate search.
    model : the path of the model if it was moved.
    device : the device of the model, as in `declutr.Encoder`.
    trust : whether to open a model that would be refused as unsafe, as in `declutr.Encoder`.
    prompt_name : the name of a prompt for queries; by default the index determines the prompt.
    prompt : the text of a prompt for queries.

    # Raises

    `SearchError` : if there is no finished index, or parts of it are missing or damaged. Damage to
        lines and embeddings is noticed, and raises, when they are read.
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
        self.folder = local_path(folder)
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
        self.rows = SearchableRows(embeddings, left_out)
        self._exact = exact
        self._model = os.fspath(model) if model is not None else self.description.model
        self._device, self._trust = device, trust
        self._given = encoder
        self._prompt, self._prompt_name = prompt, prompt_name
        self._named_files = NamedFiles("`declutr search INDEX < FILE`")

    def __getstate__(self) -> dict[str, Any]:
        # A copy, or another process, opens what it searches by again: faiss maps files.
        return {name: value for name, value in vars(self).items() if name != "searcher"}

    def __len__(self) -> int:
        """Return the number of lines, including blank ones."""
        return len(self.lines)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the k lines with the highest cosines, descending; equal ones by row number.

        # Parameters

        query : a text that is not blank.
        k : the maximum number of hits; there are fewer only if fewer lines are not blank.

        # Raises

        `SearchError` : if the query is blank, k is below 1, the model is not that of the index, or
            the model does not have the prompt.
        `TypeError` : if the query is not a string.
        """
        if not isinstance(query, str):
            raise TypeError(
                f"Expected a query, one string, got {type(query).__name__}. Search for several "
                "queries one by one."
            )
        if not query.strip():
            raise SearchError("Got an empty query, expected some text.")
        _check_count(k)
        texts = [self._named_files.texts(query)]
        vector = np.asarray(self.encode_queries(texts))[0]
        if not vector.any():
            logger.warning(
                f"The embedding of {query!r} is 0, as the model knows nothing in it: all lines are "
                "equally far, and come in their order."
            )
        return self.nearest(vector, k)

    def nearest(self, vector: np.ndarray, k: int = 10) -> list[Hit]:
        """Return the k lines whose embeddings have the highest cosines with a given vector.

        # Parameters

        vector : the embedding `(d,)` of a query, of any length; if it is 0, so are all cosines.
        k : the maximum number of hits.

        # Raises

        `SearchError` : if the vector has another shape, or is not finite, or k is below 1.
        """
        _check_count(k)
        vector = np.asarray(vector, dtype=np.float64)
        if vector.shape != (self.rows.dimension,):
            raise SearchError(
                f"Expected a vector of shape ({self.rows.dimension},), got {vector.shape}."
            )
        if not np.isfinite(vector).all():
            raise SearchError("The embedding of this query is not finite: it cannot be searched.")
        # Squares of very large or small numbers would be infinite or 0. Powers of 2 round nothing.
        vector = np.ldexp(vector, -np.frexp(np.abs(vector).max())[1]).astype(np.float32)
        vector = normalized(vector[None])[0]
        found, cosines = ranked(self.searcher, self.rows, vector, k)
        # A graph may consist of several components, of which a search sees only one.
        if len(found) < min(k, len(self.rows)):
            found, cosines = ranked(ExactNumpy(self.rows), self.rows, vector, k)
        rows, scores = found.tolist(), cosines.clip(-1, 1).tolist()
        return list(map(Hit, rows, scores, self.lines.texts(rows)))

    @cached_property
    def searcher(self) -> Searcher:
        """The searcher for the nearest of `rows`, exact or approximate."""
        backend = self.description.backend
        if self._exact:
            return ExactNumpy(self.rows)
        if not is_installed(backend):
            logger.warning(
                f"This index was built with {backend}, which is not installed here: searching with "
                "numpy, which is exact and slower."
            )
            return ExactNumpy(self.rows)
        if not self.description.approximate:
            return exact_searcher(backend, self.rows)
        file = structure_file(self.folder, backend)
        if not file.is_file() or self.description.effort is None:
            raise SearchError(f"'{file}' is missing. Repeat the command that built the index.")
        if backend == "hnswlib" and is_of_hnswlib(file) and not self._built_anew(file):
            return ExactNumpy(self.rows)
        if backend != "faiss" or file.stat().st_size <= _CHECKED_OF_FAISS:
            require_sound(file, self.description.checksums)
        return APPROXIMATE[backend](file, self.description.effort)

    def _built_anew(self, file: Path) -> bool:
        """Rebuild a graph that an earlier release wrote with hnswlib; return whether it worked."""
        logger.warning(
            f"'{file}' is of an earlier release, which wrote it with hnswlib. It is built anew "
            "from the stored vectors, with faiss."
        )
        try:
            with output_folder(self.folder):
                self.description = made_searchable(
                    self.rows, self.description, self.folder, logger.info
                )
        except (EmbeddingFolderError, OSError) as error:
            logger.warning("%s Searching with numpy, which is exact and slower.", error)
            return False
        return True

    @cached_property
    def encoder(self) -> Embedder:
        """The encoder of lines and queries, which is as it was when the lines were embedded."""
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
    def encode_queries(self) -> Encode:
        """The function from n queries to embeddings `(n, d)` of any length."""
        return encoder_of_queries(self.encoder, self.description, self._prompt, self._prompt_name)

    def _opened(self) -> Embedder:
        from declutr.inference.encoder import Encoder

        try:
            options = {"device": self._device, "trust": self._trust} | self.description.options
            return Encoder(self._model, **options)
        except FileNotFoundError as error:
            raise SearchError(
                f"The model of the index '{self.folder}' is not where it was. {error} Say where it "
                "is now with --model (model=...)."
            ) from error


def _check_count(k: int) -> None:
    if k < 1:
        raise SearchError(f"Expected at least 1 line to be looked for, got k = {k}.")
