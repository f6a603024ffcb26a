"""Tokenised corpora, which are kept on disk.

The cache key covers what the token ids depend on: the bytes of every file, how they are read, and
the tokenizer. If one of them changes, the corpus is tokenised again; if the files are moved, it is
not. Tokenising uses all cores, and continues where it was interrupted.
"""

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from declutr.corpus import PathLike, Paths, normalize_whitespace
from declutr.corpus.compressed_files import is_compressed
from declutr.corpus.documents import SourceError, file_format, read_documents
from declutr.corpus.file_digests import check_unchanged, file_digests
from declutr.corpus.source_files import source_files
from declutr.corpus.store_places import LAYOUT, store_place
from declutr.corpus.text_inputs import text_blocks
from declutr.corpus.token_store import DamagedStore, TokenStore
from declutr.corpus.token_store_writer import TokenStoreWriter
from declutr.system import local_path
from declutr.system.cache_folder import default_cache_dir
from declutr.system.files import Appearance, named_if_full

logger = logging.getLogger(__name__)

# A batch for one call of the tokenizer is full at either limit. It is large compared with the cost
# of sending it to another process, and small compared with memory.
_BATCH_DOCUMENTS = 1024
_BATCH_CHARACTERS = 1 << 19
# A corpus below both limits is tokenised in one process, as starting others would cost more.
_CHARACTERS_ALONE = 1 << 21
_BATCHES_ALONE = 16


class DocumentCodec(Protocol):
    """A protocol of codecs that turn documents into arrays; see `declutr.data.codecs`."""

    dtype: np.dtype

    @property
    def fingerprint(self) -> str:
        """A string that identifies everything the arrays depend on."""

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        """Return the array of each text, 1-D, and its length in tokens."""


def open_corpus(
    path: Paths,
    codec: DocumentCodec,
    *,
    text_key: str = "text",
    encoding_errors: str = "strict",
    cache_dir: PathLike | None = None,
    progress: bool = True,
) -> TokenStore:
    """Return the documents at `path` as a token store, tokenising them first if necessary.

    Each row of the source is one document of the store, blank rows included. If several processes
    call this at once, one tokenises and the others wait. It uses all cores (`DECLUTR_WORKERS` sets
    another number of processes), in memory that does not grow with the corpus. If it is interrupted
    or killed, the next call continues, and the store is the same to the byte. A damaged store is
    logged and made again.

    # Parameters

    path : as in `declutr.corpus.source_files.source_files`.
    codec : how documents become arrays.
    text_key, encoding_errors : as in `declutr.corpus.documents.read_documents`.
    cache_dir : the folder of all stores; by default `$DECLUTR_CACHE` or `~/.cache/declutr`.
    progress : whether to show progress bars.

    # Raises

    `SourceError` : if nothing is at `path`, a row cannot be read, there is no row, or a file
        changed while it was being read.
    """
    files = source_files(path)
    cache = local_path(cache_dir or default_cache_dir())
    cache.mkdir(parents=True, exist_ok=True)
    digests = file_digests(files, cache, progress)
    folder = store_place(cache, files, digests, codec.fingerprint, text_key, encoding_errors)
    store = _opened(folder)
    if store is None:
        with FileLock(f"{folder}.lock"):
            store = _opened(folder)
            if store is None:
                documents = read_documents(files, text_key, encoding_errors)
                _tokenize(documents, codec, folder, files, digests, progress)
                store = TokenStore(folder)
    logger.info("%d documents, %d tokens in %s", len(store), store.meta["num_tokens"], folder)
    return store


def _opened(folder: Path) -> TokenStore | None:
    """Return the store at a folder, or `None` if there is none or it is damaged."""
    if not TokenStore.exists(folder):
        return None
    try:
        return TokenStore(folder)
    except FileNotFoundError:  # Another process has just marked it as damaged.
        return None
    except DamagedStore as error:
        if TokenStore.exists(folder):  # It could not be marked: the cache is read-only.
            raise
        logger.warning("%s Tokenising the corpus again.", error)
        return None


class _Encoded(NamedTuple):
    """A batch of encoded documents.

    # Parameters

    values : the values of all documents, concatenated.
    lengths, num_tokens : the numbers of values and of tokens of each document.
    num_bytes : the size of the documents in the source, for the progress bar.
    """

    values: np.ndarray
    lengths: np.ndarray
    num_tokens: np.ndarray
    num_bytes: int


def _tokenize(
    documents: Iterator[str],
    codec: DocumentCodec,
    folder: Path,
    files: list[Path],
    digests: dict[Path, tuple[str, Appearance]],
    progress: bool,
) -> None:
    from declutr.system.worker_processes import default_workers

    workers = default_workers()  # First, because it raises if DECLUTR_WORKERS is invalid.
    writer = TokenStoreWriter(
        folder,
        codec.dtype,
        drop_after=(SourceError,),
        before_journal=lambda: check_unchanged(digests),
    )
    try:
        with named_if_full(folder), writer:
            done = writer.length
            if done:
                logger.info("Going on after %d documents that are tokenised already.", done)
            sizes = {"total": _total_bytes(files), "initial": writer.notes.get("bytes", 0)}
            look = {"unit": "B", "unit_scale": True, "desc": "tokenising corpus"}
            bar = tqdm(**sizes, **look, disable=not progress)
            remaining = islice(documents, done, None)
            with bar, closing(_encoded(remaining, codec, workers)) as batches:
                for batch in batches:
                    writer.append(batch.values, batch.lengths, batch.num_tokens)
                    writer.notes["bytes"] = writer.notes.get("bytes", 0) + batch.num_bytes
                    writer.journal_if_due()
                    bar.set_postfix_str(f"{writer.length:,} documents", refresh=False)
                    bar.update(batch.num_bytes)
            if not writer.length:
                names = ", ".join(str(file) for file in files[:3])
                raise SourceError(f"The corpus is empty: not a single row in {names}.")
            writer.meta = {
                "layout": LAYOUT,
                "num_tokens": writer.num_tokens,
                "tokenizer": codec.fingerprint,
                "files": [str(file) for file in files],
            }
    except SourceError:
        check_unchanged(digests)  # A file may be unreadable because it is being written.
        raise
    except BaseException:  # The writer keeps what was tokenised before.
        if writer.length:
            logger.warning(
                f"Tokenising was interrupted after {writer.length} documents. They are kept: the "
                "next start with this corpus goes on from there."
            )
        raise


def _encoded(
    documents: Iterator[str], codec: DocumentCodec, workers: int
) -> Generator[_Encoded, None, None]:
    """Yield the encoded documents in batches, in order, using up to `workers` processes."""

    def encode(texts: list[str]) -> _Encoded:
        arrays, num_tokens = codec.encode([normalize_whitespace(text) for text in texts])
        return _Encoded(
            np.concatenate([*arrays, np.empty(0, codec.dtype)], dtype=codec.dtype),
            np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays)),
            np.asarray(num_tokens, dtype=np.int64),
            sum(_num_bytes(text) for text in texts),
        )

    batches = text_blocks(documents, _BATCH_DOCUMENTS, _BATCH_CHARACTERS)
    first: list[list[str]] = []
    characters, many = 0, False
    for batch in batches:
        first.append(batch)
        characters += sum(map(len, batch))
        many = characters > _CHARACTERS_ALONE or len(first) > _BATCHES_ALONE
        if many:
            break
    if workers == 1 or not many:
        yield from map(encode, chain(first, batches))
    else:
        from declutr.system.worker_processes import ordered_map

        yield from ordered_map(encode, chain(first, batches), workers)


def _total_bytes(files: list[Path]) -> int | None:
    compressed = any(file_format(file) == "parquet" or is_compressed(file) for file in files)
    return None if compressed else sum(file.stat().st_size for file in files)


def _num_bytes(text: str) -> int:
    return (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) + 1
