"""Tests of weighted sums of objectives against their terms."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.objectives import (
    BYOL,
    SCD,
    AlignUniform,
    BarlowTwins,
    ContrastiveTension,
    InfoNCE,
    ISBert,
    MomentumContrast,
    NTXent,
    Objective,
    PairMarginMiner,
)
from declutr.objectives.weighted_sum import WeightedObjective, WeightedSum
from tests.objectives import laws
from tests.objectives.oracles import views


def built(*terms: dict[str, Any]) -> WeightedSum:
    params = Params({"type": "weighted_sum", "objectives": [deepcopy(term) for term in terms]})
    objective = Objective.from_params(params)
    assert isinstance(objective, WeightedSum)
    return objective


def sum_of(*terms: Objective, weights: tuple[float, ...] = (1.0, 1.0)) -> WeightedSum:
    return WeightedSum([WeightedObjective(*term) for term in zip(terms, weights, strict=False)])


def two() -> WeightedSum:
    return sum_of(NTXent(0.5), AlignUniform(), weights=(1.0, 0.25))


def test_equals_the_weighted_sum_of_its_terms() -> None:
    objective = built(
        {"objective": {"type": "nt_xent", "temperature": 0.5}},
        {"weight": 0.5, "objective": {"type": "align_uniform"}},
        {"weight": 0.0, "objective": {"type": "barlow_twins"}},
    )
    batch = [view.requires_grad_() for view in views(5)]
    loss = objective(*batch)
    expected = [NTXent(0.5)(*batch), AlignUniform()(*batch), BarlowTwins()(*batch)]
    assert list(objective.last_terms) == ["nt_xent", "align_uniform", "barlow_twins"]
    for term, value in zip(objective.last_terms.values(), expected, strict=True):
        assert not term.requires_grad and term.item() == pytest.approx(value.item())
    laws.assert_same_gradients(loss, expected[0] + 0.5 * expected[1], *batch)


def test_names_are_given_or_registered_and_differ() -> None:
    class Mine(NTXent):
        """A class that is not registered, whose name is that of the class."""

    n_pair = {"objective": {"type": "n_pair"}}
    objective = built(n_pair, {**n_pair, "name": "other"}, n_pair, {**n_pair, "weight": 0.5})
    assert objective.names == ["n_pair", "other", "n_pair_2", "n_pair_3"]
    with pytest.raises(ConfigurationError, match="Two terms are called 'other': rename one"):
        built({**n_pair, "name": "other"}, {**n_pair, "name": "other"})
    assert sum_of(Mine()).names == ["Mine"]


def test_projections_are_given_beside_embeddings_only_where_named() -> None:
    """Check that other objectives get projections only, as they do outside of a sum."""
    objective = sum_of(SCD(), BarlowTwins(), weights=(1.0, 3.0))
    embeddings, projections = views(5), views(5, 7, seed=3)
    loss = objective(*embeddings, *projections)
    expected = SCD()(*embeddings, *projections) + 3 * BarlowTwins()(*projections)
    assert loss.item() == pytest.approx(expected.item())
    assert list(objective.inputs)[2:] == ["projected_anchors", "projected_positives"]
    assert two().inputs == {"anchors": True, "positives": True} and two().min_pairs == 2


def test_memories_inside_are_saved() -> None:
    objective = sum_of(MomentumContrast(4, 6), InfoNCE())
    for training in (True, False):
        objective.train(training)(*views(3, dtype=torch.float32))
        assert int(objective.state_dict()["objectives.0.queue.valid"].sum()) == 3


def test_keys_are_given_where_named_and_default_to_positives() -> None:
    """Check that keys are the positives if none are given, as without a momentum encoder."""
    objective = sum_of(MomentumContrast(4, 6), InfoNCE(), weights=(1.0, 0.5)).eval()
    assert objective.inputs == {
        "anchors": True, "keys": True, "positives": True, "negatives": False
    }  # fmt: skip
    anchors, positives = views(3, dtype=torch.float32)
    moco, info_nce = objective.objectives
    for given, keys in (({"keys": positives + 1}, positives + 1), ({}, positives)):
        expected = moco(anchors, keys) + info_nce(anchors, positives) / 2
        assert objective(anchors, positives, **given).item() == pytest.approx(expected.item())
    both = sum_of(MomentumContrast(4, 6), MomentumContrast(4, 6))
    assert both.inputs == {"anchors": True, "keys": True}


def test_a_miner_goes_to_every_term() -> None:
    miner, single, objective = PairMarginMiner(0.4, 0.1), NTXent(0.5), sum_of(NTXent(0.5))
    single.attach_miner(miner)
    objective.attach_miner(miner)
    assert objective(*views(6)).item() == pytest.approx(single(*views(6)).item())
    with pytest.raises(ConfigurationError, match="AlignUniform takes no miner"):
        two().attach_miner(miner)


def test_what_a_term_needs_of_the_data_the_sum_needs() -> None:
    bank = {"type": "reclaim", "embedding_size": 6, "instances": 9, "num_negatives": 2}
    larger = {**bank, "instances": 12}
    terms = [{"objective": {"type": "quick_thoughts"}}, {"objective": larger}, {"objective": bank}]
    objective, plain = built(*terms), two()
    assert objective.same_texts and objective.min_consecutive == 2 and objective.instances == 9
    assert objective.embedding_size == 6 and objective.more_room is None
    assert not plain.same_texts and plain.min_consecutive == 1
    assert plain.instances is plain.embedding_size is plain.more_room is None


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
    sizes = [{"type": "moco", "embedding_size": size} for size in (4, 8)]
    with pytest.raises(ConfigurationError, match=r"embedding_size \['4', '8'\], expected one"):
        built(*({"objective": size} for size in sizes))
    with pytest.raises(ConfigurationError, match=r"groups of \[1, 3\] pairs, expected equal"):
        sum_of(NTXent(), ContrastiveTension(2))
    assert sum_of(ContrastiveTension(2), ContrastiveTension(2)).group == 3 and two().group == 1


def test_terms_report_metrics_of_the_same_name_under_their_own() -> None:
    """Of two learnt temperatures, the first was not logged."""
    learnt = {"type": "info_nce", "learn_temperature": True}
    sum_ = built(*({"objective": {**learnt, "temperature": one}} for one in (0.1, 0.5)))
    sum_(*views(4))
    metrics = {name: value.item() for name, value in sum_.last_metrics.items()}
    assert metrics == pytest.approx({"temperature": 0.1, "info_nce_2_temperature": 0.5})
