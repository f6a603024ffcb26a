"""The trained regressor against autograd and a plain version of SentEval's rules."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from declutr.evaluation.classifiers import relatedness_regressor
from declutr.evaluation.classifiers.relatedness_regressor import (
    Rated,
    class_targets,
    trained_relatedness,
)
from tests.evaluation.plain_senteval import regressor


def rated(count: int, seed: int, noise: float = 0.3) -> Rated:
    """Draw features of which only the first one depends on the score."""
    rng = np.random.default_rng(seed)
    gold = rng.uniform(0, 5, size=count).round(2)
    features = rng.normal(size=(count, 6)).astype(np.float32)
    features[:, 0] = gold - 2.5 + noise * rng.normal(size=count)
    return Rated(torch.from_numpy(features), gold)


def test_targets_equal_those_of_the_paper() -> None:
    targets = class_targets(np.array([3.0, 3.6, 5.0, 1.25, 0.5, 0.0]))
    expected = [
        [0, 0, 1, 0, 0],
        [0, 0, 0.4, 0.6, 0],
        [0, 0, 0, 0, 1],
        [0.75, 0.25, 0, 0, 0],
        [0.5, 0, 0, 0, 0],  # SentEval has no class 0
        [0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(targets, expected, atol=1e-6)


@given(arrays(np.float64, 7, elements=st.floats(1, 5)))
def test_targets_have_the_score_as_their_mean(gold: np.ndarray) -> None:
    targets = class_targets(gold)
    np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(targets @ np.arange(1, 6), gold, atol=1e-5)


@pytest.mark.parametrize("looks", [1, 12])
def test_training_equals_a_plain_loop_with_autograd(looks: int) -> None:
    train, dev, test = rated(100, 0), rated(40, 1), rated(30, 2).features
    got = trained_relatedness(train, dev, test, seed=7, max_epoch=50 * (looks - 1))
    expected = regressor(*train, *dev, test, seed=7, max_epoch=50 * (looks - 1))
    np.testing.assert_allclose(got.test, expected, atol=2e-4)


def test_training_finds_the_informative_feature() -> None:
    train, dev, test = rated(300, 0, noise=0), rated(50, 1, noise=0), rated(80, 2, noise=0)
    got = trained_relatedness(train, dev, test.features, seed=0, max_epoch=200)
    above = test.gold >= 1  # it cannot tell scores below 1 apart
    assert stats.spearmanr(got.test[above], test.gold[above])[0] > 0.97
    assert got.test.min() >= 1 and got.test.max() <= 5
    assert got.dev.shape == (50,)


def test_training_depends_on_its_seed_and_leaves_global_random_states_alone() -> None:
    train, dev, test = rated(60, 0), rated(20, 1), rated(20, 2).features
    state, draws = torch.get_rng_state(), np.random.get_state()[1].tolist()
    first, second, other = (
        trained_relatedness(train, dev, test, seed=seed, max_epoch=0).test for seed in (3, 3, 4)
    )
    assert first.tolist() == second.tolist() != other.tolist()
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == draws


def test_the_fourth_evaluation_without_improvement_ends_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The count is never reset, as in SentEval, and the best model is kept."""
    looks = iter([0.1, 0.3, 0.2, 0.2, 0.4, 0.3, 0.4, 0.9])
    kept = []

    def correlation(expected: np.ndarray, gold: np.ndarray) -> float:
        kept.append(expected)
        return next(looks)

    monkeypatch.setattr(relatedness_regressor, "pearson", correlation)
    train, dev = rated(20, 0), rated(10, 1)
    got = trained_relatedness(train, dev, dev.features, seed=0)
    assert len(kept) == 7  # evaluations 3, 4, 6 and 7 bring no improvement
    assert got.dev.tolist() == kept[4].tolist()


def test_features_of_zeros_do_not_crash() -> None:
    nothing = Rated(torch.zeros(10, 4), np.linspace(1, 5, 10))
    got = trained_relatedness(nothing, nothing, nothing.features, seed=0, max_epoch=0)
    assert np.ptp(got.test) == 0
