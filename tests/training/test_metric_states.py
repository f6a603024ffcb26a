"""The states of AllenNLP's metrics are saved in a checkpoint and restored."""

from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.training.metrics import (
    BLEU,
    ROUGE,
    Average,
    CategoricalAccuracy,
    F1Measure,
    Metric,
    PearsonCorrelation,
    SpearmanCorrelation,
)

from declutr.training.metric_states import load_metric_states, metric_states

LOGITS = torch.tensor([[0.1, 0.9], [0.7, 0.3], [0.2, 0.8]])
LABELS = torch.tensor([1, 1, 0])
TOKENS = torch.tensor([[1, 2, 3, 4, 5]])


class Metered(torch.nn.Module):
    """A model with metrics in attributes, lists, dictionaries, submodules and other metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = CategoricalAccuracy()
        self.same = self.accuracy
        self.several: list[Any] = [F1Measure(1), Average()]
        self.texts = {"bleu": BLEU(), "rouge": ROUGE()}
        self.part = torch.nn.Linear(1, 1)
        self.part.numbers = (PearsonCorrelation(), SpearmanCorrelation())

    def count(self) -> None:
        self.accuracy(LOGITS, LABELS)
        self.several[0](LOGITS, LABELS)
        self.several[1](2.5)
        for metric in self.texts.values():
            metric(TOKENS, TOKENS.flip(1))
        for metric in self.part.numbers:
            metric(LOGITS[:, 0], LABELS.float())

    def values(self) -> list[Any]:
        metrics = [self.accuracy, *self.several, *self.texts.values(), *self.part.numbers]
        return [metric.get_metric() for metric in metrics]


def test_metrics_are_restored_wherever_a_model_has_them(tmp_path: Path) -> None:
    whole, resumed = Metered(), Metered()
    whole.count()
    states, left_out = metric_states(whole)
    assert left_out == [] and "accuracy" in states and "same" not in states
    assert "part.numbers.0._labels_variance" in states
    torch.save(states, tmp_path / "state.th")
    load_metric_states(resumed, torch.load(tmp_path / "state.th"), torch.device("cpu"))
    assert resumed.values() == whole.values()
    for model in (whole, resumed):
        model.count()
    assert resumed.values() == whole.values()  # also what they count from here on


def test_states_are_copies() -> None:
    model = Metered()
    model.count()
    states, _ = metric_states(model)
    before = states["several.0"]["_true_positive_sum"].tolist()
    model.count()
    assert states["several.0"]["_true_positive_sum"].tolist() == before


def test_tensors_on_a_device_are_restored_to_a_device() -> None:
    model = torch.nn.Module()
    model.metric = Average()
    states = {"metric": {"_total_value": ("device", torch.ones(2)), "_count": torch.ones(2)}}
    load_metric_states(model, states, torch.device("meta"))
    assert model.metric._total_value.device.type == "meta"
    assert model.metric._count.device.type == "cpu"


class Holder(Metric):
    """A metric with a single attribute."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing


def holding(thing: Any) -> torch.nn.Module:
    model = torch.nn.Module()
    model.metric = Holder(thing)
    return model


def same(one: Any, other: Any) -> bool:
    """Return whether two values and the types of all their parts are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        one, other = list(one.items()), list(other.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


KEPT = [
    {(1, "a"), (2, "b")},
    [{1, 2}, frozenset({(3, 4)}), (5, [6, (7,)]), ()],
    {"seen": {1}, 2: (1.5, None), None: True},
    Counter({"a": 2}),
    OrderedDict(b=1, a=2),
    defaultdict(set, {"a": {(1, 2)}}),
    [defaultdict(list, {1: [2]}), defaultdict(None), defaultdict(Counter, {1: Counter("aab")})],
    [np.float32(0.1), np.int64(3), np.bool_(True)],
]


@pytest.mark.parametrize("value", KEPT)
def test_saved_values_are_restored_with_their_types(value: Any, tmp_path: Path) -> None:
    states, left_out = metric_states(holding(value))
    assert left_out == []
    torch.save(states, tmp_path / "state.th")
    resumed = holding(type(value)())
    loaded = torch.load(tmp_path / "state.th", weights_only=True)
    load_metric_states(resumed, loaded, torch.device("cpu"))
    assert same(resumed.metric.thing, value)
    if isinstance(value, defaultdict):
        assert resumed.metric.thing.default_factory is value.default_factory


endless: list[Any] = [1]
endless.append({"self": endless})


@pytest.mark.parametrize(
    "value, left_out",
    [
        (Path("x"), True),
        (len, False),
        (Counter({("gold", "predicted"): 3}), True),
        ({Path("x"): 1}, True),
        (defaultdict(lambda: 5), True),
        ([np.timedelta64(1, "s")], True),
        (torch.nn.Parameter(torch.ones(1)), True),
        (torch.ones(2, device="meta"), True),
        (endless, True),
    ],
)
def test_values_that_cannot_be_saved_are_named(value: Any, left_out: bool, tmp_path: Path) -> None:
    states, named = metric_states(holding(value))
    assert named == ["metric.thing"] * left_out and states == {"metric": {}}


def test_values_that_contain_themselves_or_each_other_are_handled() -> None:
    model = holding(3)
    model.metric.other = Holder(model.metric)
    model.endless = endless
    model.names = {"metric": model.metric}
    model.names["names"] = model.names
    model.deep = [Holder(4)]
    for _ in range(5000):
        model.deep = [model.deep]
    states, left_out = metric_states(model)
    assert left_out == []
    assert list(states.values()) == [{"thing": 3}, {}, {"thing": 4}]
