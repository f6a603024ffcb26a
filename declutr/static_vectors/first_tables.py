"""First tables of a static encoder: from texts, a file of word vectors, or a transformer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from declutr.archives.static_folder import StaticTable, loaded_tokenizer
from declutr.static_vectors.cooccurrence import Cooccurrences, ppmi, singular_vectors
from declutr.static_vectors.tokenizers import UNKNOWN, Texts, trained_word_pieces
from declutr.static_vectors.weighting import (
    SIF_A,
    principal_components,
    sif_weights,
    without_common_components,
    zipf_weights,
)

_TEXTS = 512  # that are tokenised together
_UNUSED = re.compile(r"\[unused\d+\]")  # places that BERT's vocabularies keep free


def random_table(tokenizer: str, dimension: int, seed: int = 0) -> StaticTable:
    """Return a table of normally distributed numbers, so scaled that vectors have length near 1."""
    rows = _rows(tokenizer)
    vectors = np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)
    return StaticTable(tokenizer, vectors / np.float32(np.sqrt(dimension)))


def table_of_texts(
    texts: Texts,
    *,
    tokenizer: str | None = None,
    vocabulary: int = 30_000,
    dimension: int = 256,
    window: int = 5,
    sif_a: float | None = SIF_A,
    components: int = 0,
    most_pairs: int = 50_000_000,
    seed: int = 0,
) -> StaticTable:
    """Make a table from nothing but texts: PPMI of co-occurring tokens, and its singular vectors.

    Tokens that never occur, `[UNK]` mostly among them, have the vector 0.

    # Parameters

    texts : the texts, which are read twice for the tokenizer and once for the counts.
    tokenizer : the content of a `tokenizer.json`; by default a word-piece tokenizer is trained.
    vocabulary : the largest number of tokens of a tokenizer that is trained.
    dimension : the width d of vectors.
    window, most_pairs : see `Cooccurrences`.
    sif_a : the constant of SIF weights (`sif_weights`), which are multiplied into the vectors of
        length 1; `None` leaves the vectors at length 1.
    components : the number of common directions that are removed. On the test sets of similarity
        that were tried, none is best; for retrieval, two are.
    seed : the seed of the decomposition.

    # Raises

    `ValueError` : the texts are too few.
    """
    tokenizer = tokenizer or trained_word_pieces(texts, vocabulary)
    counts = {"window": window, "most_pairs": most_pairs}
    vectors, tokens = vectors_of_texts(tokenizer, texts(), dimension, seed=seed, **counts)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    table = StaticTable(tokenizer, vectors / np.maximum(lengths, 1e-9))
    return weighted(table, tokens, sif_a, components)


def vectors_of_texts(
    tokenizer: str, texts: Iterable[str], dimension: int, *, seed: int = 0, **counts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the singular vectors `(V, d)` of PPMI, and how often each token occurs, `(V,)`.

    # Parameters

    tokenizer : the content of a `tokenizer.json`.
    texts : the texts, which are read once.
    dimension, seed : as for `table_of_texts`.
    counts : `window` and `most_pairs` of `Cooccurrences`.
    """
    counted = Cooccurrences(_rows(tokenizer), **counts)
    counted.add(token_ids(tokenizer, texts))
    return singular_vectors(ppmi(counted.counts), dimension, seed=seed), counted.tokens


def weighted(
    table: StaticTable, tokens: np.ndarray, sif_a: float | None, components: int
) -> StaticTable:
    """Return a table with SIF weights multiplied in, and common directions removed.

    The mean square of the lengths of vectors is 1, so that one learning rate suits all tables.

    # Parameters

    table : the tokenizer and vectors `(V, d)`.
    tokens : how often each token occurs, `(V,)`.
    sif_a, components : as for `table_of_texts`.
    """
    vectors = table.vectors
    if sif_a is not None:
        vectors = vectors * sif_weights(tokens, sif_a)[:, None].astype(np.float32)
    vectors = without_common_components(vectors, tokens, components)
    scale = np.sqrt(np.mean(np.square(vectors).sum(axis=1)))
    return table.with_vectors((vectors / max(scale, 1e-9)).astype(np.float32))


def table_of_transformer(transformer: Any, tokenizer: Any, dimension: int | None) -> StaticTable:
    """Return the table of input embeddings of a transformer, cut to principal components.

    # Parameters

    transformer : a model of transformers.
    tokenizer : its tokenizer, one of the tokenizers library.
    dimension : the number of principal components; `None` keeps the vectors as they are.
    """
    vectors = transformer.get_input_embeddings().weight.detach().float().cpu().numpy()
    if dimension is not None:
        vectors = principal_components(vectors, dimension)
    return StaticTable(tokenizer.backend_tokenizer.to_str(), vectors)


def table_of_words(words: list[str], vectors: np.ndarray) -> StaticTable:
    """Return a table of word vectors `(n, d)`, such as those of GloVe, with their tokenizer.

    Texts are lowercased if all words are. Of a word that comes twice, the first vector is used. The
    vector of unknown words is 0, the first row of the table.
    """
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    row: dict[str, int] = {UNKNOWN: 0}
    for number, word in enumerate(words, start=1):
        row.setdefault(word, number)
    tokenizer = Tokenizer(models.WordLevel(row, unk_token=UNKNOWN))
    if all(word == word.lower() for word in words):
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([AddedToken(UNKNOWN, special=True)])
    table = np.vstack([np.zeros_like(vectors[:1]), vectors]).astype(np.float32, copy=False)
    return StaticTable(tokenizer.to_str(), table)


def table_of_encoder(
    embed: Callable[[list[np.ndarray]], np.ndarray], tokenizer: str, dimension: int | None = 256
) -> StaticTable:
    """Distil a sentence encoder: its embedding of every token alone, PCA, and Zipf weights.

    This is the method of model2vec (Tulkens & van Dongen, 2024), which takes the order of tokens in
    the vocabulary for their order by frequency. Tokens that texts do not contain, special ones and
    BERT's `[unused0]` and so on, have no rank and the vector 0.

    # Parameters

    embed : a function from arrays of token ids to embeddings `(n, d)`.
    tokenizer : the content of the encoder's `tokenizer.json`.
    dimension : the number of principal components; `None` keeps all.
    """
    of_texts = _ids_of_texts(tokenizer)
    vectors = embed([np.array([token]) for token in of_texts])
    if dimension is not None:
        vectors = principal_components(vectors, min(dimension, vectors.shape[1]))
    table = np.zeros((_rows(tokenizer), vectors.shape[1]), dtype=np.float32)
    table[of_texts] = vectors * zipf_weights(len(of_texts))[:, None]
    return StaticTable(tokenizer, table)


def token_ids(tokenizer: str, texts: Iterable[str]) -> Iterator[np.ndarray]:
    """Yield the token ids of each text."""
    loaded = loaded_tokenizer(tokenizer)
    block: list[str] = []

    def encoded() -> Iterator[np.ndarray]:
        for one in loaded.encode_batch_fast(block, add_special_tokens=False):
            yield np.asarray(one.ids, dtype=np.int32)

    for text in texts:
        block.append(text)
        if len(block) == _TEXTS:
            yield from encoded()
            block = []
    yield from encoded()


def _rows(tokenizer: str) -> int:
    """Return the number of rows that a table needs: one more than the highest token id."""
    return max(loaded_tokenizer(tokenizer).get_vocab().values(), default=-1) + 1


def _ids_of_texts(tokenizer: str) -> list[int]:
    """Return the ids of the tokens that texts can contain, in order."""
    loaded = loaded_tokenizer(tokenizer)
    special = {
        number for number, token in loaded.get_added_tokens_decoder().items() if token.special
    }
    return sorted(
        number
        for token, number in loaded.get_vocab().items()
        if number not in special and not _UNUSED.fullmatch(token)
    )
