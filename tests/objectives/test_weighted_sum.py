"""Tests of weighted sums of objectives against their terms."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.objectives import InfoNCE, NTXent, Objective, PairMarginMiner
from declutr.objectives.memories.momentum_contrast import MomentumContrast
from declutr.objectives.weighted_sum import WeightedObjective, WeightedSum
from declutr.objectives.without_negatives.alignment_uniformity import AlignUniform
from declutr.objectives.without_negatives.bootstrap import BYOL
from declutr.objectives.without_negatives.decorrelation import SCD, BarlowTwins
from declutr.objectives.without_negatives.mutual_information import ISBert
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    permuted,
    views,
)


def built(*terms: dict[str, Any]) -> WeightedSum:
    params = Params({"type": "weighted_sum", "objectives": [deepcopy(term) for term in terms]})
    objective = Objective.from_params(params)
    assert isinstance(objective, WeightedSum)
    return objective


def two() -> WeightedSum:
    return WeightedSum([WeightedObjective(NTXent(0.5)), WeightedObjective(AlignUniform(), 0.25)])


def test_equals_the_weighted_sum_of_its_terms() -> None:
    objective = built(
        {"objective": {"type": "nt_xent", "temperature": 0.5}},
        {"weight": 0.5, "objective": {"type": "align_uniform"}},
        {"weight": 0.0, "objective": {"type": "barlow_twins"}},
    )
    batch = [view.requires_grad_() for view in views(5)]
    loss = objective(*batch)
    expected = [NTXent(0.5)(*batch), AlignUniform()(*batch), BarlowTwins()(*batch)]
    assert loss.shape == ()
    assert loss.item() == pytest.approx((expected[0] + 0.5 * expected[1]).item())
    assert list(objective.last_terms) == ["nt_xent", "align_uniform", "barlow_twins"]
    for term, value in zip(objective.last_terms.values(), expected, strict=True):
        assert not term.requires_grad and term.item() == pytest.approx(value.item())
    (gradient,) = torch.autograd.grad(loss, batch[:1], retain_graph=True)
    (wanted,) = torch.autograd.grad(expected[0] + 0.5 * expected[1], batch[:1])
    assert torch.allclose(gradient, wanted)


def test_gradients_hard_batches_precision_and_order() -> None:
    assert_gradients(two(), *views(4))
    assert_finite_where_it_is_hard(two())
    assert_full_precision(
        WeightedSum([WeightedObjective(AlignUniform(), 2.0), WeightedObjective(BarlowTwins())]),
        *views(16),
    )
    batch = views(6)
    assert two()(*permuted(6, 1, *batch)).item() == pytest.approx(two()(*batch).item())


def test_names_are_given_or_registered_and_differ() -> None:
    n_pair = {"objective": {"type": "n_pair"}}
    objective = built(n_pair, {**n_pair, "name": "other"}, n_pair, {**n_pair, "weight": 0.5})
    assert objective.names == ["n_pair", "other", "n_pair_2", "n_pair_3"]
    with pytest.raises(ConfigurationError, match="Two terms are called 'other': rename one"):
        built({**n_pair, "name": "other"}, {**n_pair, "name": "other"})


def test_an_unregistered_class_has_its_class_name() -> None:
    class Mine(NTXent):
        pass

    assert WeightedSum([WeightedObjective(Mine())]).names == ["Mine"]


def test_projections_are_given_beside_embeddings_only_where_named() -> None:
    """Check that other objectives get projections only, as they do outside of a sum."""
    objective = WeightedSum([WeightedObjective(SCD()), WeightedObjective(BarlowTwins(), 3.0)])
    embeddings, projections = views(5), views(5, 7, seed=3)
    loss = objective(*embeddings, *projections)
    expected = SCD()(*embeddings, *projections) + 3 * BarlowTwins()(*projections)
    assert loss.item() == pytest.approx(expected.item())
    assert list(objective.inputs)[2:] == ["projected_anchors", "projected_positives"]
    assert two().inputs == {"anchors": True, "positives": True}


def test_memories_inside_are_saved() -> None:
    objective = WeightedSum(
        [WeightedObjective(MomentumContrast(4, 6)), WeightedObjective(InfoNCE())]
    )
    objective.train()(*views(3, dtype=torch.float32))
    state = objective.state_dict()
    assert int(state["objectives.0.queue.valid"].sum()) == 3
    objective.eval()(*views(3, dtype=torch.float32))
    assert int(objective.state_dict()["objectives.0.queue.valid"].sum()) == 3
    assert two().min_pairs == 2


def test_keys_are_given_where_named_and_default_to_positives() -> None:
    """Check that keys are the positives if none are given, as without a momentum encoder."""
    objective = WeightedSum(
        [WeightedObjective(MomentumContrast(4, 6)), WeightedObjective(InfoNCE(), 0.5)]
    ).eval()
    assert objective.inputs == {
        "anchors": True, "keys": True, "positives": True, "negatives": False
    }  # fmt: skip
    anchors, positives = views(3, dtype=torch.float32)
    keys = positives + 1
    moco, info_nce = objective.objectives
    expected = moco(anchors, keys) + info_nce(anchors, positives) / 2
    assert objective(anchors, positives, keys=keys).item() == pytest.approx(expected.item())
    expected = moco(anchors, positives) + info_nce(anchors, positives) / 2
    assert objective(anchors, positives).item() == pytest.approx(expected.item())
    both = WeightedSum([WeightedObjective(MomentumContrast(4, 6)) for _ in range(2)])
    assert both.inputs == {"anchors": True, "keys": True}


def test_a_miner_goes_to_every_term() -> None:
    miner = PairMarginMiner(pos_margin=0.4, neg_margin=0.1)
    single = NTXent(0.5)
    single.attach_miner(miner)
    objective = WeightedSum([WeightedObjective(NTXent(0.5), 2.0)])
    objective.attach_miner(miner)
    batch = views(6)
    assert objective(*batch).item() == pytest.approx(2 * single(*batch).item())
    with pytest.raises(ConfigurationError, match="AlignUniform takes no miner"):
        two().attach_miner(miner)


def test_invalid_terms_raise() -> None:
    with pytest.raises(ConfigurationError, match="at least one objective, got none"):
        built()
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="weight must be a number of 0 or above, got"):
            WeightedObjective(NTXent(), weight)
    with pytest.raises(ConfigurationError, match="two views, which ISBert is not"):
        WeightedObjective(ISBert())
    with pytest.raises(ConfigurationError, match="BYOL compares with targets of both"):
        WeightedObjective(BYOL())
