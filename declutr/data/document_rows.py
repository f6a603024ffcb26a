"""Rows of files of documents, tokenised once, and which of them are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from allennlp.common.checks import ConfigurationError

from declutr.corpus import PathLike, Paths
from declutr.corpus.documents import read_documents, source_files
from declutr.corpus.token_store import TokenStore
from declutr.corpus.tokenized import open_corpus
from declutr.data.codecs import Codec
from declutr.sampling.document_selection import UnusableDocuments, all_rows, is_blank, rows_where

Kept = TypeVar("Kept")


def kept_by_path(method: Callable[[Any, Paths], Kept]) -> Callable[[Any, Paths], Kept]:
    """Have a method called once for each path: what it returned is kept with its object."""

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
    """Documents of files of any format, one a row, blank ones included.

    # Parameters

    codec : how documents become token ids.
    text_key, encoding_errors : as for `declutr.corpus.documents.read_documents`.
    cache_dir : where token ids are kept on disk; `None` for the usual place.
    """

    codec: Codec
    text_key: str = "text"
    encoding_errors: str = "strict"
    cache_dir: PathLike | None = None

    @kept_by_path
    def corpus(self, path: Paths) -> TokenStore:
        """The tokenised documents at `path`; tokenises them on the first call.

        # Raises

        `declutr.corpus.documents.SourceError` : they cannot be read.
        """
        return open_corpus(
            path,
            self.codec,
            text_key=self.text_key,
            encoding_errors=self.encoding_errors,
            cache_dir=self.cache_dir,
        )

    def texts(self, path: Paths) -> Iterator[str]:
        """The documents as they are written, streamed; nothing is kept of them."""
        return read_documents(source_files(path), self.text_key, self.encoding_errors)


Choice = Callable[..., np.ndarray]
"""Returns the rows that are used, for the lengths in tokens of all of them and a `source` that
names them in messages; raises `UnusableDocuments` if there are none."""


@dataclass(eq=False)
class DocumentRows:
    """A `RowSource` of documents.

    # Parameters

    files : the documents.
    choose : which of them are used; `None` for all.
    with_ids : `ids`, the number of the row, comes beside its texts.
    with_documents : `documents`, the number of blank rows before the row, does as well.
    """

    files: DocumentFiles
    choose: Choice | None = None
    with_ids: bool = False
    with_documents: bool = False

    def corpus(self, path: Paths) -> TokenStore:
        return self.files.corpus(path)

    def used(self, path: Paths) -> np.ndarray:
        if self.with_documents:
            self._blank_rows(path)  # now, for workers to inherit
        return self._chosen(path)

    @kept_by_path
    def _chosen(self, path: Paths) -> np.ndarray:
        lengths = self.corpus(path).num_tokens
        if self.choose is None:
            return all_rows(len(lengths))
        try:
            return self.choose(lengths, source=str(path))
        except UnusableDocuments as error:
            raise ConfigurationError(str(error)) from None

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        beside: dict[str, np.ndarray] = {}
        if self.with_ids:
            beside["ids"] = np.array(rows, dtype=np.int64)
        if self.with_documents:
            blank = self._blank_rows(path)
            # Of another type than `blank`, the rows would have numpy copy all of that.
            places = np.array(rows, dtype=blank.dtype)
            beside["documents"] = np.searchsorted(blank, places).astype(np.int64, copy=False)
        return beside

    @kept_by_path
    def _blank_rows(self, path: Paths) -> np.ndarray:
        return rows_where(is_blank, self.corpus(path).num_tokens)
