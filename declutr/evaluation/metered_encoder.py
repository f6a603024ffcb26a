"""Encoders as a run calls them: counted, timed, and with embeddings that were stored before."""

import hashlib
import json
import logging
import time
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from declutr.embedding_store import EmbeddingStore, KeyedRows, StoreError, text_keys
from declutr.evaluation.sentence_vectors import Encode
from declutr.evaluation.task import BadEmbeddings

logger = logging.getLogger(__name__)


class NamedEncoder(typing.Protocol):
    """An encoder with a name and a description, such as `declutr.inference.sources` opens."""

    name: str
    """The name of the encoder in reports and in the folder of results."""
    spec: str
    """The text that the user gave to name the encoder."""
    not_stored: str | None
    """The reason why embeddings must not be stored; `None` if they may be."""

    def __call__(self, sentences: list[str], /) -> np.ndarray:
        """Return the embeddings `(n, d)` of n sentences."""

    def describe(self) -> dict[str, Any]:
        """Return facts, among them a `fingerprint` that differs if the embeddings may differ."""

    def computed_with(self) -> dict[str, str]:
        """Return the device and the releases that embeddings are computed with."""

    def counts(self) -> dict[str, int]:
        """Return how much of the input was truncated or unknown to the tokenizer."""


class Meter:
    """An encoder that counts the sentences it embeds and the seconds that takes.

    With `rows`, sentences that have a stored embedding are not embedded, and the others are stored.
    If that fails (the disk is full), a warning says so, and the run goes on without.

    # Parameters

    encode : a function from n texts to their embeddings `(n, d)`.
    rows : the stored embeddings of this encoder, if any.
    """

    def __init__(self, encode: Encode, rows: KeyedRows | None = None) -> None:
        self._encode, self._rows = encode, rows
        self.sentences, self.seconds = 0, 0.0
        """The number of sentences that were embedded, and the seconds that took."""
        self.stored, self.store_seconds = 0, 0.0
        """The number of sentences that had a stored embedding, and the seconds for the store."""

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """Return the embeddings `(n, d)` of n sentences, and add to the counts."""
        if self._rows is None:
            return self._embed(sentences)
        keys = text_keys(sentences)
        kept = self._kept(lambda rows: rows.get(keys))
        if kept is None or not kept[1].any():
            return self._embed_and_store(sentences, keys)
        vectors, found = kept
        self.stored += int(found.sum())
        if not found.all():
            places = np.flatnonzero(~found).tolist()
            new = self._embed_and_store([sentences[n] for n in places], [keys[n] for n in places])
            if new.shape != (expected := (len(places), vectors.shape[1])):
                raise BadEmbeddings(
                    f"Expected embeddings of shape {expected} as before, the encoder gave "
                    f"{new.shape}."
                )
            vectors[places] = new
        return vectors

    def facts(self) -> dict[str, float]:
        """Return the counts and seconds as the folder of results has them."""
        return {
            "embedded": self.sentences,
            "seconds": self.seconds,
            "stored": self.stored,
            "store_seconds": self.store_seconds,
        }

    def _embed(self, sentences: list[str]) -> np.ndarray:
        start = time.perf_counter()
        vectors = self._encode(sentences)
        self.seconds += time.perf_counter() - start
        self.sentences += len(sentences)
        return vectors

    def _embed_and_store(self, sentences: list[str], keys: list[bytes]) -> np.ndarray:
        """Return the embeddings that are stored in the end, for later runs have to equal this one.

        They are not those of `encode` if another process stored the same sentences meanwhile, whose
        embeddings may differ by rounding.
        """
        vectors = np.asarray(self._embed(sentences))
        if vectors.ndim != 2 or len(vectors) != len(sentences):  # the caller reports it
            return vectors
        with np.errstate(over="ignore"):  # infinity is reported to those who ask for it
            vectors = vectors.astype(np.float32)
        try:
            stored = self._kept(lambda rows: rows.append(keys, vectors))
        except ValueError:  # another width than before; the caller reports it
            return vectors
        if stored not in (None, len(keys)) and (kept := self._kept(lambda rows: rows.get(keys))):
            there, found = kept
            if found.any():
                vectors[found] = there[found]
        return vectors

    def _kept(self, action: Callable[[KeyedRows], Any]) -> Any:
        """Return what an action on the stored embeddings returns; `None` if they cannot be used."""
        if self._rows is None:
            return None
        start = time.perf_counter()
        try:
            return action(self._rows)
        except OSError as error:
            logger.warning("Embeddings are not stored from here on: %s", error)
            self._rows = None
            return None
        finally:
            self.store_seconds += time.perf_counter() - start


def stored_rows(encoder: NamedEncoder, store: EmbeddingStore) -> tuple[KeyedRows | None, str]:
    """Return the stored embeddings of an encoder; or `None`, and the reason for it."""
    if encoder.not_stored is not None:
        return None, encoder.not_stored
    description, computed = encoder.describe(), encoder.computed_with()
    about = {"encoder": encoder.spec, "description": description, "computed_with": computed}
    try:
        return store.rows(store_fingerprint(description["fingerprint"], computed), about), ""
    except StoreError as error:
        return None, str(error)


def store_fingerprint(encoder: str, computed_with: dict[str, str]) -> str:
    """Return the fingerprint of embeddings of an encoder, computed on a device with some releases.

    # Parameters

    encoder : the fingerprint of the encoder, which covers its files and settings.
    computed_with : the device, and releases of libraries.
    """
    covered = json.dumps([encoder, computed_with], sort_keys=True)
    return hashlib.sha256(covered.encode()).hexdigest()
