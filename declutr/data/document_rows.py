"""Rows of files that hold documents: tokenised once, and selected for training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from allennlp.common.checks import ConfigurationError

from declutr.corpus import PathLike, Paths
from declutr.corpus.documents import read_documents
from declutr.corpus.source_files import source_files
from declutr.corpus.token_store import TokenStore
from declutr.corpus.tokenized import open_corpus
from declutr.data.codecs import Codec
from declutr.sampling.document_selection import UnusableDocuments, all_rows, is_blank, rows_where
from declutr.system import raised_as

Kept = TypeVar("Kept")


def kept_by_path(method: Callable[[Any, Paths], Kept]) -> Callable[[Any, Paths], Kept]:
    """Decorate a method that takes a path, so that it runs once for each path.

    The results are kept in the object that the method belongs to.
    """

    @wraps(method)
    def kept(self: Any, path: Paths) -> Kept:
        known = vars(self).setdefault(f"_kept_{method.__name__}", {})
        key = str(path)
        if key not in known:
            known[key] = method(self, path)
        return known[key]

    return kept


@dataclass(eq=False)
class DocumentFiles:
    """Documents in files of any format, one per row, blank rows included.

    # Parameters

    codec : how documents become token ids.
    text_key, encoding_errors : as in `declutr.corpus.documents.read_documents`.
    cache_dir : the folder on disk for token ids; `None` for the usual one.
    """

    codec: Codec
    text_key: str = "text"
    encoding_errors: str = "strict"
    cache_dir: PathLike | None = None

    @kept_by_path
    def corpus(self, path: Paths) -> TokenStore:
        """Return the tokenised documents at `path`, tokenising them on the first call.

        # Raises

        `declutr.corpus.documents.SourceError` : if they cannot be read.
        """
        return open_corpus(
            path,
            self.codec,
            text_key=self.text_key,
            encoding_errors=self.encoding_errors,
            cache_dir=self.cache_dir,
        )

    def texts(self, path: Paths) -> Iterator[str]:
        """Yield the documents at `path` as they are written, keeping none of them in memory."""
        return read_documents(source_files(path), self.text_key, self.encoding_errors)


Choice = Callable[..., np.ndarray]
"""A function that selects the rows that are used.

It takes the lengths of all rows in tokens and a `source`, which names them in messages, and raises
`UnusableDocuments` if it selects none.
"""


@dataclass(eq=False)
class DocumentRows:
    """A `RowSource` of documents.

    # Parameters

    files : the documents.
    choose : selects the rows that are used; `None` for all.
    with_ids : whether `beside` gives `ids`, the number of each row.
    with_documents : whether `beside` gives `documents`, the number of blank rows before each row.
    """

    files: DocumentFiles
    choose: Choice | None = None
    with_ids: bool = False
    with_documents: bool = False

    def corpus(self, path: Paths) -> TokenStore:
        return self.files.corpus(path)

    def used(self, path: Paths) -> np.ndarray:
        if self.with_documents:
            self._blank_rows(path)  # Find them now, so that workers inherit them.
        return self._chosen(path)

    @kept_by_path
    def _chosen(self, path: Paths) -> np.ndarray:
        lengths = self.corpus(path).num_tokens
        if self.choose is None:
            return all_rows(len(lengths))
        with raised_as(ConfigurationError, UnusableDocuments):
            return self.choose(lengths, source=str(path))

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        beside: dict[str, np.ndarray] = {}
        if self.with_ids:
            beside["ids"] = np.array(rows, dtype=np.int64)
        if self.with_documents:
            blank = self._blank_rows(path)
            # If the dtypes differed, numpy would copy all of `blank` to a common one.
            places = np.array(rows, dtype=blank.dtype)
            beside["documents"] = np.searchsorted(blank, places).astype(np.int64, copy=False)
        return beside

    @kept_by_path
    def _blank_rows(self, path: Paths) -> np.ndarray:
        return rows_where(is_blank, self.corpus(path).num_tokens)
