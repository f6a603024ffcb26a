"""A corpus: documents tokenised once, kept on disk, opened through memory maps.

The cache is keyed by what the ids depend on: the bytes of every file, how they are read, and the
tokenizer. Change one of them and the corpus is tokenised again; move the files and it is not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from declutr.sources import (
    COMPRESSIONS,
    PathLike,
    SourceError,
    file_format,
    normalize_whitespace,
    read_documents,
    source_files,
)
from declutr.token_store import TokenStore, TokenStoreWriter, remove_partial_stores

logger = logging.getLogger(__name__)

CACHE_VARIABLE = "DECLUTR_CACHE"
_LAYOUT = 1  # raise it when what a store holds changes
_BATCH = 256  # documents tokenised in one call: enough to keep every core busy


class DocumentCodec(Protocol):
    """How documents become arrays; see `declutr.text_codecs`."""

    dtype: np.dtype

    @property
    def fingerprint(self) -> str:
        """Names everything the arrays depend on."""

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """The array of each text, and its length in tokens."""


def default_cache_dir() -> Path:
    """`$DECLUTR_CACHE`, or `~/.cache/declutr`."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "declutr"


def open_corpus(
    path: PathLike | Sequence[PathLike],
    codec: DocumentCodec,
    *,
    text_key: str = "text",
    encoding_errors: str = "strict",
    cache_dir: PathLike | None = None,
    progress: bool = True,
) -> TokenStore:
    """The documents at `path` as a memory-mapped store, tokenised first if need be.

    One row of the source is one document of the store, blank ones included. Several processes may
    call this at once: one tokenises, the others wait.

    # Raises

    `SourceError` : nothing at `path`, an unreadable row, or no row at all.
    """
    files = source_files(path)
    key = _cache_key(files, codec, text_key, encoding_errors)
    folder = Path(cache_dir or default_cache_dir()).expanduser() / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not TokenStore.exists(folder):
        with FileLock(f"{folder}.lock"):
            if not TokenStore.exists(folder):
                remove_partial_stores(folder)
                documents = read_documents(files, text_key, encoding_errors)
                _tokenize(documents, codec, folder, files, progress)
    store = TokenStore(folder)
    logger.info("%d documents, %d tokens in %s", len(store), store.meta["num_tokens"], folder)
    return store


def _tokenize(
    documents: Iterable[str],
    codec: DocumentCodec,
    folder: Path,
    files: list[Path],
    progress: bool,
) -> None:
    compressed = any(
        file_format(file) == "parquet" or file.suffix.lower() in COMPRESSIONS for file in files
    )
    total = None if compressed else sum(file.stat().st_size for file in files)
    bar = tqdm(
        total=total, unit="B", unit_scale=True, desc="tokenising corpus", disable=not progress
    )
    num_tokens = 0
    with bar, TokenStoreWriter(folder, codec.dtype) as writer:
        for batch in _batches(documents, _BATCH):
            arrays, lengths = codec.encode([normalize_whitespace(text) for text in batch])
            writer.append(arrays, lengths)
            num_tokens += sum(lengths)
            bar.update(sum(len(text.encode("utf-8")) + 1 for text in batch))
        if not writer.length:
            names = ", ".join(str(file) for file in files[:3])
            raise SourceError(f"The corpus is empty: not a single row in {names}.")
        writer.meta = {
            "layout": _LAYOUT,
            "num_tokens": num_tokens,
            "tokenizer": codec.fingerprint,
            "files": [str(file) for file in files],
        }


def _cache_key(files: list[Path], codec: DocumentCodec, text_key: str, encoding_errors: str) -> str:
    parts = [_LAYOUT, codec.fingerprint, encoding_errors]
    for file in files:
        kind = file_format(file)
        parts += [kind, None if kind == "text" else text_key, _digest(file)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _digest(file: Path) -> str:
    stat = file.stat()
    return _digest_unchanged(str(file.resolve()), stat.st_size, stat.st_mtime_ns)


@cache
def _digest_unchanged(file: str, size: int, modified: int) -> str:
    # Size and time are only arguments of the cache: within a process, a file is hashed once.
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
