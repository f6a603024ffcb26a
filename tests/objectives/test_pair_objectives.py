"""Laws that every objective over pairs obeys, built from its registered name."""

from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr import objectives
from declutr.objectives import Miner, Objective
from tests.objectives import oracles

SETTINGS: dict[str, dict[str, Any]] = {
    "info_nce": {"type": "info_nce", "similarity": "cosine", "temperature": 0.1},
    "info_nce, dot": {"type": "info_nce"},
    "info_nce, bilinear": {"type": "info_nce", "similarity": "bilinear", "embedding_size": 0},
    "info_nce, CLIP": {"type": "info_nce", "similarity": "cosine", "symmetric": True},
    "n_pair": {"type": "n_pair"},
    "nce": {"type": "nce", "learn_scale": True, "learn_bias": True, "bias": -1},
    "nce, dot": {"type": "nce", "similarity": "dot", "scale": 0.5, "gamma": 1},
    "soft_nearest_neighbours": {"type": "soft_nearest_neighbours"},
    "soft_nearest_neighbours, cosine": {
        "type": "soft_nearest_neighbours",
        "distance": "cosine",
        "temperature": 0.2,
    },
    "lifted_structured": {"type": "lifted_structured"},
    "lifted_structured, hinge": {"type": "lifted_structured", "hinge": True},
    "triplet": {"type": "triplet"},
    "triplet, FaceNet": {
        "type": "triplet",
        "squared": True,
        "normalize_embeddings": True,
        "margin": 0.2,
    },
    "contrastive": {"type": "contrastive", "margin": 2.5},
    "contrastive, unit": {"type": "contrastive", "normalize_embeddings": True, "reduction": "sum"},
    "sup_con": {"type": "sup_con"},
}
COSINE = ["info_nce", "info_nce, CLIP", "nce", "soft_nearest_neighbours, cosine"]
COSINE += ["triplet, FaceNet", "contrastive, unit", "sup_con"]
TRANSLATED = ["soft_nearest_neighbours", "lifted_structured", "lifted_structured, hinge"]
TRANSLATED += ["triplet", "contrastive"]
ALONE_IS_NOTHING = [key for key in SETTINGS if not key.startswith("contrastive")]

every = pytest.mark.parametrize("key", SETTINGS)


def built(key: str, width: int = 3) -> Objective:
    settings = dict(SETTINGS[key])
    if "embedding_size" in settings:
        settings["embedding_size"] = width
    return Objective.from_params(Params(settings))


@every
def test_registered_and_exported(key: str) -> None:
    import declutr.objectives

    objective = built(key)
    assert type(objective).__name__ in declutr.objectives.__all__
    assert getattr(objective, "reduction") in ("mean", "sum")  # noqa: B009 for the run's record


@every
@pytest.mark.parametrize("kind", oracles.HARD)
def test_values_and_gradients_of_hard_batches_are_finite(key: str, kind: str) -> None:
    oracles.assert_finite(built(key, width=4), kind)


@pytest.mark.parametrize("key", ALONE_IS_NOTHING)
def test_one_pair_has_no_negatives(key: str) -> None:
    first, second = oracles.normal(1, 3).requires_grad_(), oracles.normal(1, 3, seed=1)
    loss = built(key)(first, second)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert first.grad is not None and first.grad.abs().max() < 1e-12


@every
@pytest.mark.parametrize("seed", [0, 7])
def test_the_order_of_pairs_does_not_matter(key: str, seed: int) -> None:
    oracles.assert_order_means_nothing(built(key), seed)


@every
@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_gradcheck(key: str, pairs: int) -> None:
    oracles.assert_gradient(built(key), pairs)


@every
def test_stable_under_autocast(key: str) -> None:
    oracles.assert_stable_under_autocast(built(key, width=16))


@every
def test_memory_is_not_cubic(key: str) -> None:
    oracles.assert_not_cubic(built(key, width=8))


@pytest.mark.parametrize("key", COSINE)
def test_cosine_losses_do_not_depend_on_the_length_of_rows(key: str) -> None:
    first, second = oracles.normal(5, 3), oracles.normal(5, 3, seed=1)
    scale = torch.linspace(0.01, 50, 5, dtype=torch.float64).unsqueeze(1)
    expected = built(key)(first, second).item()
    assert built(key)(first * scale, second * scale.flip(0)).item() == pytest.approx(expected)


@pytest.mark.parametrize("key", TRANSLATED)
def test_distance_losses_do_not_depend_on_the_origin(key: str) -> None:
    first, second = oracles.normal(5, 3), oracles.normal(5, 3, seed=1)
    expected = built(key)(first, second).item()
    moved = built(key)(first + 30, second + 30).item()
    assert moved == pytest.approx(expected, rel=1e-9)
    moved = built(key)((first + 30).float(), (second + 30).float()).item()
    assert moved == pytest.approx(expected, rel=1e-4)  # The inputs are rounded to float32.


@every
def test_steps_along_the_gradient_lower_the_loss(key: str) -> None:
    """Take ten steps against the gradient of both views."""
    objective = built(key)
    views = [oracles.normal(6, 3, seed=seed).requires_grad_() for seed in (0, 1)]
    before = objective(*views)
    for _ in range(10):
        gradients = torch.autograd.grad(objective(*views), views)
        norm = torch.cat(gradients).norm()
        views = [
            (view - 0.02 * gradient / norm).detach().requires_grad_()
            for view, gradient in zip(views, gradients, strict=True)
        ]
    assert objective(*views) < before


@every
def test_takes_no_miner(key: str) -> None:
    miner = Miner.from_params(Params({"pos_margin": 0.2, "neg_margin": 0.8}))
    with pytest.raises(ConfigurationError, match="takes no miner: remove the key 'miner'"):
        built(key).attach_miner(miner)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"type": "info_nce", "temperature": 0}, "temperature must be above 0, got 0"),
        (
            {"type": "info_nce", "similarity": "cos"},
            "Unknown similarity 'cos': expected one of dot",
        ),
        ({"type": "info_nce", "similarity": "bilinear"}, "embedding_size is needed .* None"),
        (
            {"type": "info_nce", "embedding_size": 3},
            "has no meaning otherwise; got similarity 'dot'",
        ),
        ({"type": "nce", "scale": -1}, "scale must be above 0, got -1"),
        ({"type": "nce", "gamma": 0}, "gamma must be above 0, got 0"),
        ({"type": "nce", "similarity": "bilinear"}, "expected one of cosine, dot"),
        ({"type": "soft_nearest_neighbours", "distance": "l2"}, "Unknown distance 'l2'"),
        ({"type": "sup_con", "temperature": -0.1}, "temperature must be above 0, got -0.1"),
        ({"type": "triplet", "margin": -1}, "margin must be 0 or above, got -1"),
        ({"type": "lifted_structured", "margin": -1}, "margin must be 0 or above, got -1"),
        ({"type": "contrastive", "margin": 0}, "margin must be above 0, got 0"),
        (
            {"type": "n_pair", "reduction": "none"},
            "Unknown reduction 'none': expected one of mean, sum",
        ),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Objective.from_params(Params(settings))


def test_views_of_different_shapes_raise() -> None:
    def mismatched(key: str) -> Tensor:
        return built(key)(torch.ones(3, 3), torch.ones(2, 3))

    for key in ("info_nce", "triplet"):
        with pytest.raises(ValueError, match=r"row i of both belonging together; got \(3, 3\)"):
            mismatched(key)


@pytest.mark.parametrize("name", ["sup_con", "soft_nearest_neighbours", "lifted_structured"])
def test_rows_without_a_term_have_finite_gradients(name: str) -> None:
    """Use rows whose label no other row has, and batches with a single label."""
    functions = {
        "sup_con": objectives.sup_con_loss,
        "soft_nearest_neighbours": objectives.soft_nearest_neighbour_loss,
        "lifted_structured": objectives.lifted_structured_loss,
    }
    loss = functions[name]
    rows = oracles.normal(5, 3).requires_grad_()
    for labels in ([0, 1, 0, 2, 3], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0]):
        value = loss(rows, torch.tensor(labels))
        (gradient,) = torch.autograd.grad(value, rows)
        assert gradient.isfinite().all()
        assert bool(gradient.any()) == bool(value.detach() != 0)
    alone = rows[:1]
    assert not torch.autograd.grad(loss(alone, torch.tensor([3])), rows)[0].any()
    some = torch.tensor([0, 1, 0, 2, 3])
    assert torch.autograd.gradcheck(lambda x: loss(x, some), (rows,))
