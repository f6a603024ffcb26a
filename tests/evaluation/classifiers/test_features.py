"""Features of sentences and pairs, made at once or batch by batch."""

import numpy as np
import pytest
import torch

from declutr.evaluation.classifiers import features as module
from declutr.evaluation.classifiers.features import (
    both_product_and_difference,
    difference_and_product,
    pair_features,
    sentence_features,
)
from tests.evaluation.known_encoders import WIDTH, random

FIRST = ["a b", "c", "d e f", "c"]
SECOND = ["c", "a b", "d e f", "g"]


def test_sentences_keep_their_order() -> None:
    features = sentence_features(FIRST, random)
    assert (len(features), features.width) == (4, WIDTH)
    np.testing.assert_array_equal(features.array(np.arange(4)), random(FIRST))
    places = torch.tensor([[2, 0], [3, 3]])
    assert features.rows(places).shape == (2, 2, WIDTH)
    np.testing.assert_array_equal(features.rows(places)[1, 0], random(["c"])[0])


@pytest.mark.parametrize("at_once", [True, False])
def test_pairs_are_combined_as_senteval_does(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(module, "MATERIALISED", 0)
    asked = []

    def vectors(sentences: list[str]) -> np.ndarray:
        asked.append(sentences)
        return random(sentences)

    features = pair_features(FIRST, SECOND, both_product_and_difference, vectors)
    assert (features.left is None) == at_once
    assert asked == [["a b", "c", "d e f", "g"]]  # each distinct sentence once
    u, v = random(FIRST), random(SECOND)
    expected = np.hstack([u, v, u * v, np.abs(u - v)])
    np.testing.assert_array_equal(features.array(np.arange(4)), expected)
    places = torch.tensor([[2, 0], [3, 3]])
    np.testing.assert_array_equal(features.rows(places), expected[places.numpy()])
    assert (len(features), features.width) == (4, 4 * WIDTH)
    assert features.to("cpu").rows(places).equal(features.rows(places))


def test_difference_and_product_by_hand() -> None:
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert difference_and_product(u, v).tolist() == [[2.0, 6.0, 3.0, -8.0]]
