"""Tests of parts of pytorch-metric-learning that are built by name, nested or refused."""

import re
from typing import Any

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

from declutr.objectives.library.library_parts import FAMILIES, REFUSED, built, names


def test_nested_parts_are_built() -> None:
    loss = built(
        "loss",
        "TripletMarginLoss",
        {
            "margin": 0.2,
            "distance": {"class": "LpDistance", "power": 2, "normalize_embeddings": False},
            "reducer": {"class": "PerAnchorReducer", "reducer": {"class": "SumReducer"}},
            "embedding_regularizer": {"class": "LpRegularizer", "p": 1},
        },
    )
    assert isinstance(loss, losses.TripletMarginLoss) and loss.margin == 0.2
    assert isinstance(loss.distance, distances.LpDistance)
    assert (loss.distance.power, loss.distance.normalize_embeddings) == (2, False)
    inner = loss.reducer.reducers if hasattr(loss.reducer, "reducers") else None
    assert inner is not None and {type(part) for part in inner.values()} == {
        reducers.PerAnchorReducer
    }
    assert isinstance(loss.embedding_regularizer, regularizers.LpRegularizer)


def test_parts_in_lists_and_dictionaries_are_built() -> None:
    several = built(
        "loss",
        "MultipleLosses",
        {
            "losses": [{"class": "NTXentLoss", "temperature": 0.5}, {"class": "ContrastiveLoss"}],
            "miners": [{"class": "PairMarginMiner"}, None],
            "weights": [1.0, 0.5],
        },
    )
    assert [type(part) for part in several.losses] == [losses.NTXentLoss, losses.ContrastiveLoss]
    reducer = built(
        "reducer",
        "MultipleReducers",
        {"reducers": {"pos_loss": {"class": "SumReducer"}, "neg_loss": {"class": "MeanReducer"}}},
    )
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


@pytest.mark.parametrize(
    "family, name, arguments, message",
    [
        (
            "loss",
            "TripletMargin",
            None,
            r"has no loss 'TripletMargin'. Did you mean TripletMarginL",
        ),
        ("loss", "ntxentloss", None, r"Did you mean NTXentLoss"),
        ("loss", "Qqqq", None, r"has no loss 'Qqqq'. Known: AngularLoss, CircleLoss"),
        ("loss", "GenericPairLoss", None, r"has no loss 'GenericPairLoss'"),
        ("miner", "NTXentLoss", None, r"has no miner 'NTXentLoss'"),
        ("loss", "os.system", None, r"has no loss 'os.system'"),
        ("loss", "__name__", None, r"has no loss '__name__'"),
        ("loss", "NCALoss", {"sofmax_scale": 1}, r"no argument 'sofmax_scale'. Did you mean softm"),
        ("loss", "NCALoss", {"qqqq": 1}, r"NCALoss takes no argument 'qqqq'. Known: softmax_scale"),
        ("loss", "NCALoss", {"distance": {"class": "Lp"}}, r"has no class 'Lp'"),
        ("loss", "NCALoss", {"distance": {"class": ["Lp"]}}, r"has no class '\['Lp'\]'"),
        (
            "loss",
            "NCALoss",
            {"distance": {"class": "LpDistance", "q": 2}},
            r"LpDistance takes no a",
        ),
        ("loss", "NCALoss", {"reducer": {"class": "DoNothingReducer"}}, r"it returns no scalar"),
        ("loss", "ArcFaceLoss", {"num_classes": 4}, r"ArcFaceLoss .* there are no classes"),
        (
            "loss",
            "MarginLoss",
            {"learn_beta": True, "num_classes": 4},
            r"used with num_classes: it",
        ),
        ("loss", "RankedListLoss", {}, r"RankedListLoss cannot be made with \{\}: .*'margin'"),
        (
            "loss",
            "SupConLoss",
            {"distance": {"class": "LpDistance"}, "num_classes": None},
            r"SupConLoss takes no argument 'num_classes'",
        ),
        (
            "loss",
            "CircleLoss",
            {"distance": {"class": "LpDistance"}},
            r"CircleLoss cannot be made with .*CosineSimilarity",
        ),
    ],
)
def test_errors_say_what_is_wrong(family: str, name: str, arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built(family, name, arguments)


def test_families_are_those_of_the_library() -> None:
    assert set(FAMILIES.values()) == {losses, miners, distances, reducers, regularizers}
