"""Tests of Matryoshka against loops over prefixes, and of what it keeps and refuses."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import Matryoshka, NTXent, Objective, PairMarginMiner
from declutr.objectives.objective import loss_of
from tests.objectives import laws
from tests.objectives.oracles import cosine, log_sum_exp, mean, normal, views

WIDTH, TEMPERATURE = 6, 0.5


def built(dimensions: list[int], weights: Any = None, **loss: Any) -> Matryoshka:
    settings = {"type": "matryoshka", "loss": loss, "dimensions": dimensions, "weights": weights}
    objective = Objective.from_params(Params(settings))
    assert isinstance(objective, Matryoshka)
    return objective


def info_nce_of(first: Tensor, second: Tensor, size: int) -> float:
    def logit(i: int, j: int) -> float:
        return cosine(first[i][:size], second[j][:size]) / TEMPERATURE

    rows = range(len(first))
    return mean([log_sum_exp([logit(i, j) for j in rows]) - logit(i, i) for i in rows])


def test_equals_a_loop_over_prefixes() -> None:
    objective = built([4, 1], [0.5, 2.0], type="info_nce", similarity="cosine", temperature=0.5)
    first, second = views(5, WIDTH)
    each = {size: info_nce_of(first, second, size) for size in (WIDTH, 4, 1)}
    loss = objective(first, second)
    assert loss.item() == pytest.approx(each[6] + 0.5 * each[4] + 2 * each[1], abs=1e-12)
    terms = {"whole": each[6], "dimension_4": each[4], "dimension_1": each[1]}
    assert {name: float(one) for name, one in objective.last_terms.items()} == pytest.approx(terms)
    laws.assert_gradients(objective, first, second)


def test_weights_are_1_and_a_miner_goes_to_every_size() -> None:
    objective, single = built([2], temperature=0.5), NTXent(0.5)
    for one in (objective, single):
        one.attach_miner(PairMarginMiner(0.4, 0.1))
    first, second = views(5, WIDTH)
    expected = single(first, second) + single(first[:, :2], second[:, :2])
    assert objective(first, second).item() == pytest.approx(expected.item())


SWAV = {"type": "swav", "prototypes": 3}
KEPT: dict[str, Callable[[int], dict[str, Any]]] = {
    "moco": lambda size: {"embedding_size": size, "queue_size": 8},
    "instance_discrimination": lambda size: {"embedding_size": size, "instances": 9},
    "info_nce": lambda size: {"similarity": "cosine", "learn_temperature": True},
    "weighted_sum": lambda size: {"objectives": [{"objective": {**SWAV, "embedding_size": size}}]},
}


@pytest.mark.parametrize("name", KEPT)
def test_each_size_has_a_state_of_its_own(name: str) -> None:
    """Three steps are those of separate objectives, each of which sees its prefix alone."""
    together = built([2], type=name, **KEPT[name](WIDTH)).train()
    kept = {WIDTH: together.whole, 2: together.prefixes[0]}
    alone = {
        size: Objective.from_params(Params({"type": name, **KEPT[name](size)})) for size in kept
    }
    for size, one in alone.items():
        one.load_state_dict(kept[size].state_dict())
    for step in range(3):
        given = {"anchors": normal(4, WIDTH, seed=step).float(), "ids": torch.arange(4) + step}
        given |= {
            "positives": normal(4, WIDTH, seed=9).float(),
            "negatives": normal(3, WIDTH).float(),
        }
        given["keys"] = given["positives"]
        expected = [
            loss_of(one, {key: t[..., :size] if t.dim() > 1 else t for key, t in given.items()})
            for size, one in alone.items()
        ]
        assert torch.allclose(loss_of(together, given), torch.stack(expected).sum())
    for size, one in alone.items():
        torch.testing.assert_close(dict(one.state_dict()), dict(kept[size].state_dict()))


CLUSTERS = {"type": "deep_cluster", "instances": 9, "clusters": 3, "embedding_size": WIDTH}


@pytest.mark.parametrize(
    "dimensions, weights, loss, message",
    [
        ([], None, {}, r"sizes of prefixes, each at least 1 and named once, got \[\]"),
        ([2, 2], None, {}, r"named once, got \[2, 2\]"),
        ([2], [1.0, 1.0], {}, r"for each of \[2\], got \[1.0, 1.0\]"),
        ([2], [math.inf], {}, "a number of 0 or above"),
        ([2], None, CLUSTERS, "with a DeepCluster, which has clusters of whole embeddings"),
        (
            [2],
            None,
            {"type": "matryoshka", "loss": {}, "dimensions": [1]},
            "cannot wrap an objective with a Matryoshka, which cuts embeddings itself",
        ),
    ],
)
def test_wrong_settings_are_refused(
    dimensions: list[int], weights: Any, loss: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Matryoshka(loss, dimensions, weights)


def test_what_is_no_prefix_of_an_embedding_is_refused() -> None:
    objective = built([2, 4])
    for refused, message in (
        ((6, True, False), "behind a head or feedforward there are projections"),
        ((6, False, True), "with two_encoders they are of the first encoder alone"),
        ((4, False, False), r"prefixes of \[2, 4\] dimensions, and embeddings have 4: remove"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            objective.require_embeddings(*refused)
