"""Rows of files of documents, tokenised once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from allennlp.common.checks import ConfigurationError

from declutr.corpus.documents import PathLike, read_documents, source_files
from declutr.corpus.token_store import TokenStore
from declutr.corpus.tokenized import open_corpus
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.rows.protocols import Paths
from declutr.sampling.document_selection import UnusableDocuments, all_rows, blank_rows


class DocumentFiles:
    """Documents of files of any format, one a row, blank ones included.

    # Parameters

    codec : how documents become token ids.
    text_key, encoding_errors : as for `declutr.corpus.documents.read_documents`.
    cache_dir : where token ids are kept on disk; `None` for the usual place.
    """

    def __init__(
        self,
        codec: WordPieceCodec | TokenCodec,
        text_key: str = "text",
        encoding_errors: str = "strict",
        cache_dir: PathLike | None = None,
    ) -> None:
        self._codec = codec
        self._reading: dict[str, Any] = {"text_key": text_key, "encoding_errors": encoding_errors}
        self._cache_dir = cache_dir
        self._stores: dict[str, TokenStore] = {}

    def corpus(self, path: Paths) -> TokenStore:
        """The tokenised documents at `path`; tokenises them on the first call.

        # Raises

        `declutr.corpus.documents.SourceError` : they cannot be read.
        """
        key = str(path)
        if key not in self._stores:
            self._stores[key] = open_corpus(
                path, self._codec, cache_dir=self._cache_dir, **self._reading
            )
        return self._stores[key]

    def texts(self, path: Paths) -> Iterator[str]:
        """The documents as they are written, streamed; nothing is kept of them."""
        return read_documents(source_files(path), **self._reading)


class Choice(Protocol):
    """Says which rows are used, by their lengths in tokens; `source` names them in messages."""

    def __call__(self, lengths: np.ndarray, *, source: str) -> np.ndarray:
        """# Raises

        `UnusableDocuments` : none of them.
        """


def every_row(lengths: np.ndarray, *, source: str) -> np.ndarray:
    """The `Choice` of all rows."""
    return all_rows(len(lengths))


class DocumentRows:
    """A `RowSource` of documents.

    # Parameters

    files : the documents.
    choose : which of them are used.
    with_ids : `ids`, the number of the row, comes beside its texts.
    with_documents : `documents`, the number of blank rows before the row, does as well.
    """

    def __init__(
        self,
        files: DocumentFiles,
        choose: Choice = every_row,
        with_ids: bool = False,
        with_documents: bool = False,
    ) -> None:
        self._files = files
        self._choose = choose
        self._with_ids, self._with_documents = with_ids, with_documents
        self._used: dict[str, np.ndarray] = {}
        self._blank: dict[str, np.ndarray] = {}

    def corpus(self, path: Paths) -> TokenStore:
        return self._files.corpus(path)

    def used(self, path: Paths) -> np.ndarray:
        key = str(path)
        if key not in self._used:
            try:
                self._used[key] = self._choose(self.corpus(path).num_tokens, source=key)
            except UnusableDocuments as error:
                raise ConfigurationError(str(error)) from None
        if self._with_documents:
            self._blank_rows(path)  # now, for workers to inherit
        return self._used[key]

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        beside: dict[str, np.ndarray] = {}
        if self._with_ids:
            beside["ids"] = np.array(rows, dtype=np.int64)
        if self._with_documents:
            blank = self._blank_rows(path)
            # Of another type than `blank`, the rows would have numpy copy all of that.
            places = np.array(rows, dtype=blank.dtype)
            beside["documents"] = np.searchsorted(blank, places).astype(np.int64, copy=False)
        return beside

    def _blank_rows(self, path: Paths) -> np.ndarray:
        key = str(path)
        if key not in self._blank:
            self._blank[key] = blank_rows(self.corpus(path).num_tokens)
        return self._blank[key]
