"""Tests of the tensors that objectives get, by the names of arguments or as before release 1.9."""

from typing import Any, Optional

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import (
    BYOL,
    CrossBatchMemory,
    NTXent,
    Objective,
    PytorchMetricLearning,
    SupCon,
    Triplet,
    WeightedSum,
)
from declutr.objectives.objective import OF_DATA, VIEWS, inputs_of, loss_of
from declutr.objectives.weighted_sum import WeightedObjective
from tests.objectives.oracles import views

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since declutr:FutureWarning")

# A different number for each name, so that a sum shows which tensors were given.
GIVEN = {name: torch.tensor(float(2**n)) for n, name in enumerate((*VIEWS, *OF_DATA))}


def sum_of(*names: str) -> float:
    return sum(GIVEN[name].item() for name in names)


class ByName(Objective):
    def forward(  # type: ignore[override]
        self, labels: Tensor, anchors: Tensor, *, keys: Tensor, ids: Optional[Tensor] = None
    ) -> Tensor:
        return anchors + keys + labels + (0 if ids is None else ids)


class OtherNames(Objective):
    """An objective of two views as it could be written for earlier releases."""

    def forward(self, queries: Tensor, documents: Tensor) -> Tensor:
        return queries - documents


class OneOtherName(Objective):
    def forward(self, anchors: Tensor, positive: Tensor, labels: Optional[Tensor] = None) -> Tensor:
        assert labels is not None
        return anchors - positive + labels


class AnyPositions(Objective):
    def forward(self, *views: Tensor, labels: Optional[Tensor] = None, **others: Tensor) -> Tensor:
        assert labels is not None and not others
        first, second = views
        return first - second + labels


class NeedsAndTakes(Objective):
    needs = ("labels",)
    takes = ("ids", "negatives")

    def forward(self, first: Tensor, second: Tensor, **others: Tensor) -> Tensor:
        return first + second + sum(others.values())


class OfTexts(Objective):
    compares = "texts"
    needs = ("ids",)

    def forward(self, features: Tensor, ids: Tensor) -> Tensor:
        return features + ids


class OfTokens(Objective):
    compares = "tokens"

    def forward(self, local: Tensor, mask: Tensor, texts: Tensor) -> Tensor:
        return local + mask + texts


class Beside(Objective):
    uses_projections = "beside"

    def forward(self, x: Tensor, y: Tensor, *projections: Tensor, **others: Tensor) -> Tensor:
        assert not others
        return x + y + sum(projections)


class Keys(Objective):
    uses_targets = "keys"

    def forward(self, queries: Tensor, positives: Tensor) -> Tensor:
        return queries + positives


class Targets(Objective):
    uses_targets = "both"

    def forward(self, p: Tensor, q: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return p + q + t + s


class TakesNothing(SupCon):
    takes = ()


class OfASubclass(NTXent):
    """A subclass that takes more tensors than its base class."""

    needs = ("ids",)

    def forward(self, anchors: Tensor, positives: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]
        return anchors + positives + ids


@pytest.mark.parametrize(
    ("objective", "required", "optional"),
    [
        (ByName(), ("labels", "anchors", "keys"), ("ids",)),
        (NeedsAndTakes(), ("anchors", "positives", "labels"), ("ids", "negatives")),
        (OfTexts(), ("anchors", "ids"), ()),
        (OfTokens(), ("token_vectors", "token_mask", "anchors"), ()),
        (Beside(), ("anchors", "positives", "projected_anchors", "projected_positives"), ()),
        (Keys(), ("anchors", "keys"), ()),
        (Targets(), ("anchors", "positives", "target_anchors", "target_positives"), ()),
        (OfASubclass(), ("anchors", "positives", "ids"), ()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Objective) else "",
)
def test_objectives_get_the_tensors_that_they_name(
    objective: Any, required: tuple, optional: tuple
) -> None:
    assert objective.inputs == dict.fromkeys(required, True) | dict.fromkeys(optional, False)
    assert loss_of(objective, GIVEN).item() == sum_of(*required, *optional)
    without = {name: value for name, value in GIVEN.items() if name not in optional}
    assert loss_of(objective, without).item() == sum_of(*required)


@pytest.mark.parametrize(
    ("objective", "others"), [(OtherNames(), 0), (AnyPositions(), 1), (OneOtherName(), 1)]
)
def test_the_two_views_may_have_any_names(objective: Any, others: int) -> None:
    """Check that views are passed in order, even if the second one is called `documents`."""
    expected = GIVEN["anchors"] - GIVEN["positives"] + others * GIVEN["labels"]
    assert list(objective.inputs)[:2] == ["anchors", "positives"]
    assert loss_of(objective, GIVEN) == expected


def test_an_argument_that_no_model_gives_raises() -> None:
    class Wrong(Objective):
        def forward(self, anchors: Tensor, positives: Tensor, weather: Tensor) -> Tensor:  # type: ignore[override]
            raise AssertionError

    message = r"of Wrong takes 'weather'.*Name it as one of anc"
    with pytest.raises(ConfigurationError, match=message):
        _ = Wrong().inputs


def test_only_objectives_of_classes_get_labels() -> None:
    two_views = {"anchors": True, "positives": True}
    assert SupCon().inputs == {**two_views, "labels": False}
    assert Triplet().inputs == {**two_views, "negatives": False, "labels": False}
    assert PytorchMetricLearning("SupConLoss").inputs == SupCon().inputs
    memory = CrossBatchMemory(NTXent(), 4)
    for objective in (NTXent(), memory, PytorchMetricLearning("VICRegLoss"), TakesNothing()):
        assert objective.inputs == two_views


def test_sums_give_objectives_of_earlier_releases_the_tensors_they_declare() -> None:
    terms = [Keys(), Beside(), NeedsAndTakes()]
    objective = WeightedSum([WeightedObjective(term) for term in terms])
    assert set(objective.inputs) == {
        *("anchors", "positives", "projected_anchors", "projected_positives", "keys"),
        *("labels", "ids", "negatives"),
    }
    loss_of(objective, GIVEN)
    projections = "projected_anchors", "projected_positives"
    assert [term.item() for term in objective.last_terms.values()] == [
        sum_of("projected_anchors", "keys"),
        sum_of("anchors", "positives", *projections),
        sum_of(*projections, "labels", "ids", "negatives"),
    ]


def test_tensors_given_by_name_give_the_same_loss() -> None:
    first, second = views(4)
    given = {"anchors": first, "positives": second, **{name: GIVEN[name] for name in OF_DATA}}
    assert loss_of(NTXent(), given) == NTXent()(first, second)
    targets = {"target_anchors": second, "target_positives": first}
    assert loss_of(BYOL(), given | targets) == BYOL()(first, second, second, first)
    assert inputs_of(BYOL()).positional == ()
