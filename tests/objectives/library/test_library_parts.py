"""Tests of parts of pytorch-metric-learning that are built by name, nested or refused."""

import re
from typing import Any

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

from declutr.objectives.library.library_parts import FAMILIES, REFUSED, built, names


def test_nested_parts_are_built() -> None:
    arguments = {
        "margin": 0.2,
        "distance": {"class": "LpDistance", "power": 2, "normalize_embeddings": False},
        "reducer": {"class": "PerAnchorReducer", "reducer": {"class": "SumReducer"}},
        "embedding_regularizer": {"class": "LpRegularizer", "p": 1},
    }
    loss = built("loss", "TripletMarginLoss", arguments)
    assert isinstance(loss, losses.TripletMarginLoss) and loss.margin == 0.2
    assert isinstance(loss.distance, distances.LpDistance)
    assert (loss.distance.power, loss.distance.normalize_embeddings) == (2, False)
    inner = loss.reducer.reducers if hasattr(loss.reducer, "reducers") else None
    assert inner is not None and {type(part) for part in inner.values()} == {
        reducers.PerAnchorReducer
    }
    assert isinstance(loss.embedding_regularizer, regularizers.LpRegularizer)


def test_parts_in_lists_and_dictionaries_are_built() -> None:
    arguments = {
        "losses": [{"class": "NTXentLoss", "temperature": 0.5}, {"class": "ContrastiveLoss"}],
        "miners": [{"class": "PairMarginMiner"}, None],
        "weights": [1.0, 0.5],
    }
    several = built("loss", "MultipleLosses", arguments)
    assert [type(part) for part in several.losses] == [losses.NTXentLoss, losses.ContrastiveLoss]
    kinds = {"pos_loss": {"class": "SumReducer"}, "neg_loss": {"class": "MeanReducer"}}
    reducer = built("reducer", "MultipleReducers", {"reducers": kinds})
    assert isinstance(reducer.reducers["pos_loss"], reducers.SumReducer)


def test_arguments_may_be_params_of_allennlp() -> None:
    loss = built("loss", "NCALoss", Params({"distance": {"class": "CosineSimilarity"}}))
    assert isinstance(loss.distance, distances.CosineSimilarity)
    assert built("miner", "BatchHardMiner", None).neg_strategy == "hard"


ARGUMENTS: dict[str, dict[str, Any]] = {
    "ThresholdReducer": {"low": 0.1},
    "MultipleReducers": {"reducers": {"loss": {"class": "MeanReducer"}}},
}


@pytest.mark.parametrize(
    "family, name",
    [(family, name) for family in FAMILIES if family != "loss" for name in names(family)],
)
def test_every_small_part_can_be_made(family: str, name: str) -> None:
    assert type(built(family, name, ARGUMENTS.get(name))) is getattr(FAMILIES[family], name)


def test_every_refused_name_exists_in_the_library() -> None:
    for name, reason in REFUSED.items():
        families = [family for family, module in FAMILIES.items() if hasattr(module, name)]
        assert len(families) == 1, name
        assert name not in names(families[0])
        message = f"{name} of pytorch-metric-learning cannot be used here: {reason}."
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            built(families[0], name, None)


def distance(**arguments: Any) -> dict[str, Any]:
    return {"distance": {"class": "LpDistance", **arguments}}


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("TripletMargin", None, "has no loss 'TripletMargin'. Did you mean TripletMarginL"),
        ("ntxentloss", None, "Did you mean NTXentLoss"),
        ("Qqqq", None, "has no loss 'Qqqq'. Known: AngularLoss, CircleLoss"),
        ("GenericPairLoss", None, "has no loss 'GenericPairLoss'"),
        ("os.system", None, "has no loss 'os.system'"),
        ("__name__", None, "has no loss '__name__'"),
        ("NCALoss", {"sofmax_scale": 1}, "no argument 'sofmax_scale'. Did you mean softm"),
        ("NCALoss", {"qqqq": 1}, "NCALoss takes no argument 'qqqq'. Known: softmax_scale"),
        ("NCALoss", {"distance": {"class": "Lp"}}, "has no class 'Lp'"),
        ("NCALoss", {"distance": {"class": ["Lp"]}}, r"has no class '\['Lp'\]'"),
        ("NCALoss", distance(q=2), "LpDistance takes no a"),
        ("NCALoss", {"reducer": {"class": "DoNothingReducer"}}, "it returns no scalar"),
        ("ArcFaceLoss", {"num_classes": 4}, "ArcFaceLoss .* there are no classes"),
        ("MarginLoss", {"learn_beta": True, "num_classes": 4}, "used with num_classes: it"),
        ("RankedListLoss", {}, r"RankedListLoss cannot be made with \{\}: .*'margin'"),
        ("SupConLoss", {"num_classes": None}, "SupConLoss takes no argument 'num_classes'"),
        ("CircleLoss", distance(), "CircleLoss cannot be made with .*CosineSimilarity"),
    ],
)
def test_errors_say_what_is_wrong(name: str, arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built("loss", name, arguments)
    with pytest.raises(ConfigurationError, match=f"has no miner '{name}'"):
        built("miner", name, arguments)


def test_families_are_those_of_the_library() -> None:
    assert set(FAMILIES.values()) == {losses, miners, distances, reducers, regularizers}
