"""What AllenNLP's metrics counted goes into a checkpoint, and comes back."""

from pathlib import Path
from typing import Any

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

from declutr.metric_states import load_metric_states, metric_states

LOGITS = torch.tensor([[0.1, 0.9], [0.7, 0.3], [0.2, 0.8]])
LABELS = torch.tensor([1, 1, 0])
TOKENS = torch.tensor([[1, 2, 3, 4, 5]])


class Metered(torch.nn.Module):
    """With metrics as an attribute, in a list, in a dictionary, in a part and in another metric."""

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


def test_metrics_go_on_wherever_a_model_has_them(tmp_path: Path) -> None:
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


def test_tensors_of_a_device_come_back_to_one() -> None:
    model = torch.nn.Module()
    model.metric = Average()
    states = {"metric": {"_total_value": (torch.ones(2),), "_count": torch.ones(2)}}
    load_metric_states(model, states, torch.device("meta"))
    assert model.metric._total_value.device.type == "meta"
    assert model.metric._count.device.type == "cpu"


@pytest.mark.parametrize("value, left_out", [(Path("x"), ["metric.thing"]), (len, []), (None, [])])
def test_what_a_checkpoint_cannot_hold_is_named(value: Any, left_out: list[str]) -> None:
    class Strange(Metric):
        thing = None

        def __init__(self) -> None:
            self.thing = value

    model = torch.nn.Module()
    model.metric = Strange()
    assert metric_states(model)[1] == left_out
