"""Tests of first tables against naive computations: counts, PPMI, weights, tokenizers."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr

from declutr.archives.static_folder import StaticTable
from declutr.static_vectors.cooccurrence import Cooccurrences, ppmi, singular_vectors
from declutr.static_vectors.first_tables import (
    random_table,
    table_of_encoder,
    table_of_texts,
    table_of_words,
    token_ids,
)
from declutr.static_vectors.tokenizers import trained_word_pieces
from declutr.static_vectors.weighting import (
    principal_components,
    sif_weights,
    without_common_components,
    zipf_weights,
)


def naive_counts(documents: list[np.ndarray], window: int) -> dict[tuple[int, int], float]:
    counts: Counter[tuple[int, int]] = Counter()
    for document in documents:
        for place, one in enumerate(document):
            for distance in range(1, window + 1):
                if place + distance < len(document):
                    other = document[place + distance]
                    counts[one, other] += 1 / distance
                    counts[other, one] += 1 / distance
    return dict(counts)


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_counts_are_those_of_a_loop_whatever_the_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("declutr.static_vectors.cooccurrence._BLOCK", block)
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 9, length) for length in (0, 1, 2, 5, 30, 3)]
    counted = Cooccurrences(9, window=3)
    counted.add(documents)
    dense = counted.counts.toarray()
    expected = naive_counts(documents, 3)
    for pair in np.ndindex(9, 9):
        assert dense[pair] == pytest.approx(expected.get(pair, 0), rel=1e-5)
    assert counted.tokens.tolist() == np.bincount(np.concatenate(documents), minlength=9).tolist()


def test_memory_is_bounded_by_leaving_out_the_rarest_pairs() -> None:
    rng = np.random.default_rng(0)
    text = np.concatenate([np.tile([1, 2], 50), rng.integers(0, 200, 2000)])
    counted = Cooccurrences(200, window=2, most_pairs=500)
    counted.add([text])
    assert 300 < counted.counts.nnz <= 500 and counted.dropped > 0
    assert counted.counts[1, 2] == pytest.approx(99 + 0, abs=3)


def test_ppmi_is_its_formula() -> None:
    counts = np.array([[0, 4, 1.0], [4, 2, 0], [1, 0, 6]])
    found = ppmi(csr_matrix(counts), smoothing=0.75, shift=1.5).toarray()
    contexts = counts.sum(0) ** 0.75
    for w, c in np.ndindex(3, 3):
        value = 0.0
        if counts[w, c]:
            conditional = counts[w, c] / counts[w].sum()
            value = max(0.0, math.log(conditional / (contexts[c] / contexts.sum())) - math.log(1.5))
        assert found[w, c] == pytest.approx(value, rel=1e-5)


def test_singular_vectors_reproduce_the_matrix() -> None:
    rng = np.random.default_rng(0)
    half = rng.random((12, 4))
    matrix = csr_matrix((half @ half.T).astype(np.float32))
    vectors = singular_vectors(matrix, 4)
    assert np.allclose(vectors @ vectors.T, matrix.toarray(), atol=1e-4)
    with pytest.raises(ValueError, match="12 different tokens, too few for 13 dimensions"):
        singular_vectors(matrix, 13)


def test_vectors_of_nothing_but_rounding_errors_are_zero() -> None:
    """Of rows without entries, and of rows that have no part in the first singular vectors."""
    rng = np.random.default_rng(0)
    dense = np.zeros((300, 300), np.float32)
    dense[:200, :200] = rng.random((200, 200)) + 5 * np.eye(200)
    dense[200:250, 200:250] = 1e-3
    vectors = singular_vectors(csr_matrix((dense + dense.T) / 2), 64)
    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths[:200].min() > 0.1 and not lengths[200:].any()


def test_tokens_that_never_occur_have_no_vector(documents: list[str]) -> None:
    """SIF would weigh them most: a text with an emoji was as near to others with one."""
    table = table_of_texts(lambda: documents, vocabulary=700, dimension=20)
    (seen, unseen) = token_ids(table.tokenizer, [" ".join(documents), "\N{SLIGHTLY SMILING FACE}"])
    used = np.isin(np.arange(len(table.vectors)), seen)
    lengths = np.linalg.norm(table.vectors, axis=1)
    assert unseen.tolist() == [1] and not lengths[~used].any() and lengths[used].min() > 0.1


def test_texts_about_the_same_are_near_in_a_table_of_texts(documents: list[str]) -> None:
    """Words of a document, which has its own favourites, are nearer to each other than others."""
    table = table_of_texts(lambda: documents, vocabulary=700, dimension=20)
    again = table_of_texts(lambda: documents, vocabulary=700, dimension=20)
    assert np.array_equal(table.vectors, again.vectors) and table.tokenizer == again.tokenizer
    assert np.square(table.vectors).sum(1).mean() == pytest.approx(1, rel=1e-5)
    halves = [half for text in documents for half in (text[:900], text[900:])]
    means = np.stack([table.vectors[ids].mean(0) for ids in token_ids(table.tokenizer, halves)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosines = means @ means.T
    np.fill_diagonal(cosines, -1)
    nearest = cosines.argmax(axis=1)
    partners = np.arange(len(halves)) ^ 1
    assert (nearest == partners).mean() > 0.9


def test_weights_are_their_formulas() -> None:
    counts = np.array([0, 10, 90])
    assert sif_weights(counts, 1e-3) == pytest.approx([1, 1e-3 / 0.101, 1e-3 / 0.901])
    assert sif_weights(np.zeros(2)).tolist() == [1, 1]
    ranks = [1 / 2, 1 / 3, 1 / 4]
    expected = [1e-4 / (1e-4 + rank / sum(ranks)) for rank in ranks]
    assert zipf_weights(3) == pytest.approx(expected)


def test_common_components_are_the_directions_of_frequent_tokens() -> None:
    rng = np.random.default_rng(0)
    direction = np.array([3.0, 4, 0, 0]) / 5
    vectors = (rng.standard_normal((50, 4)) * 0.1 + 5 * direction).astype(np.float32)
    left = without_common_components(vectors, np.ones(50), 1)
    assert np.abs(left @ direction).max() < 0.1 < np.abs(left).max()
    assert without_common_components(vectors, np.ones(50), 0) is vectors


def test_principal_components_keep_the_largest_distances() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((40, 5)) * [5, 3, 0.01, 0.01, 0.01]
    cut = principal_components(vectors, 2)
    distances = [np.linalg.norm(v - v[:1], axis=1) for v in (vectors, cut)]
    assert spearmanr(*distances)[0] > 0.999
    with pytest.raises(ValueError, match="dimension of 1 to 5, that of the vectors, got 6"):
        principal_components(vectors, 6)


def test_word_vectors_get_a_tokenizer_of_their_words() -> None:
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    table = table_of_words(["the", "cat", ",", "the"], vectors)
    (ids,) = token_ids(table.tokenizer, ["The cat, the dog"])
    assert table.vectors[ids].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [0, 0]]
    cased = table_of_words(["The", "the"], vectors[:2])
    (ids,) = token_ids(cased.tokenizer, ["The the"])
    assert cased.vectors[ids].tolist() == [[0, 1], [2, 3]]


def test_distillation_embeds_each_token_alone(documents: list[str]) -> None:
    tokenizer = trained_word_pieces(lambda: documents, 120)
    tokens = json.loads(tokenizer)
    vocabulary = tokens["model"]["vocab"]
    vocabulary["[unused7]"] = vocabulary.pop(sorted(vocabulary)[9])  # a place that is kept free
    kept = [n for n in range(len(vocabulary)) if n not in (0, 1, vocabulary["[unused7]"])]
    own = np.random.default_rng(0).standard_normal((len(vocabulary), 6)).astype(np.float32)
    given = json.dumps(tokens)
    table = table_of_encoder(lambda ids: own[np.concatenate(ids)], given, dimension=3)
    expected = np.zeros((len(own), 3))
    expected[kept] = principal_components(own[kept], 3) * zipf_weights(len(kept))[:, None]
    assert np.allclose(table.vectors, expected, atol=1e-6)


def test_random_vectors_have_length_near_1(documents: list[str]) -> None:
    tokenizer = trained_word_pieces(lambda: documents, 200)
    one, same, other = (random_table(tokenizer, 64, seed).vectors for seed in (0, 0, 1))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert np.square(one).sum(1).mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [([], 500, "texts are empty"), (["a b"], 50, "vocabulary of 50 is too small")],
)
def test_a_tokenizer_needs_texts_and_room(texts: list[str], size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trained_word_pieces(lambda: texts, size)


def test_a_table_keeps_its_tokenizer_when_vectors_change(tmp_path: Path) -> None:
    table = StaticTable("{}", np.ones((2, 3), np.float32), normalizes=True)
    other = table.with_vectors(np.zeros((2, 1), np.float32))
    assert (other.tokenizer, other.dimension, other.normalizes) == ("{}", 1, True)
