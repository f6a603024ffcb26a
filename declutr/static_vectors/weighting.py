"""Changes of the vectors of a table: weights of tokens, common components, principal components.

Each is a linear map of vectors, or a factor for each token. The embedding of a text is the mean of
its tokens' vectors, so that a change of the table is that change of all embeddings.
"""

import numpy as np

from declutr.inference.sources.word_vectors import SIF_A


def sif_weights(counts: np.ndarray, a: float = SIF_A) -> np.ndarray:
    """Return the weights a / (a + p) `(V,)` of tokens that occurred so many times.

    Arora, Liang & Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", ICLR 2017,
    equation 3, with the probability p of each token.
    """
    total = counts.sum()
    return a / (a + counts / total) if total else np.ones(len(counts))


def zipf_weights(tokens: int, a: float = 1e-4) -> np.ndarray:
    """Return SIF weights `(V,)` of tokens sorted by frequency, whose counts are not known.

    The probability of the token of rank r is taken to be proportional to 1 / (r + 1), as model2vec
    does.
    """
    ranks = 1 / np.arange(2, tokens + 2)
    return a / (a + ranks / ranks.sum())


def without_common_components(vectors: np.ndarray, weights: np.ndarray, number: int) -> np.ndarray:
    """Return vectors `(V, d)` without their projections on the first common directions.

    # Parameters

    vectors : `(V, d)`.
    weights : how often each token occurs, `(V,)`: the directions are the first eigenvectors of the
        second moments of tokens in text (Arora et al., 2017, algorithm 1, over tokens of the corpus
        in place of the sentences of a task, so that no embedding depends on other texts).
    number : the number of directions.
    """
    if number == 0:
        return vectors
    share = (weights / weights.sum())[:, None]
    moments = vectors.T.astype(np.float64) @ (vectors * share)
    _, directions = np.linalg.eigh(moments)
    first = directions[:, ::-1][:, :number]
    return (vectors - (vectors @ first) @ first.T).astype(np.float32)


def principal_components(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """Return the coordinates `(V, k)` of vectors `(V, d)` along their k principal components.

    # Raises

    `ValueError` : the vectors have fewer dimensions than that.
    """
    if not 1 <= dimension <= vectors.shape[1]:
        raise ValueError(
            f"Expected a dimension of 1 to {vectors.shape[1]}, that of the vectors, got "
            f"{dimension}."
        )
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    return (centred @ directions[:, ::-1][:, :dimension]).astype(np.float32)
