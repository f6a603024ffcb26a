"""The momentum encoder: its updates, its keys and targets, and resuming."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.inference.encoder import Encoder
from declutr.modules.heads import MomentumEncoder
from declutr.objectives import symmetric_byol_loss
from tests.conftest import run_config
from tests.models.test_views import model_of, seen_by, spans
from tests.objectives.waits import NeverWaits

HEAD = {"type": "projector", "hidden_dims": [12, 8]}
MOCO = {"type": "moco", "embedding_size": 8, "queue_size": 20}


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_moves_after_each_step_of_the_optimizer(schedule: str) -> None:
    layer = torch.nn.Linear(3, 2).double()
    encoder = MomentumEncoder(0.9, schedule)
    encoder.follow({"layer": layer, "nothing": None})
    expected = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    encoder.follow_optimizer(optimizer, steps=4)
    assert encoder["nothing"] is None and not encoder["layer"].weight.requires_grad
    for step in range(4):
        assert torch.allclose(encoder["layer"].weight, expected, atol=1e-12)
        layer(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        m = 0.9
        if schedule == "cosine":
            m = 1 - (1 - 0.9) * (math.cos(math.pi * step / 4) + 1) / 2
        expected = m * expected + (1 - m) * layer.weight.detach()
    assert torch.allclose(encoder["layer"].weight, expected, atol=1e-12)
    assert encoder.steps_done == 4
    assert not torch.allclose(encoder["layer"].weight, layer.weight)


@pytest.mark.parametrize("in_step, steps", [(1, 10), (2, 6), (None, 2)])
def test_a_schedule_ends_with_the_last_step(in_step: int | None, steps: int) -> None:
    """Two epochs of five batches have that many steps; for null, a step takes a whole epoch."""
    encoder, layer = MomentumEncoder(0.9, "cosine"), torch.nn.Linear(3, 2)
    encoder.follow({"layer": layer})
    encoder.follow_trainer(
        SimpleNamespace(
            data_loader=[0] * 5,
            optimizer=torch.optim.SGD(layer.parameters(), lr=0.1),
            _num_gradient_accumulation_steps=in_step,
            _num_epochs=2,
        )
    )
    torch.nn.init.ones_(layer.weight)
    for _ in range(steps):
        encoder.move()
    before = encoder["layer"].weight.clone()
    torch.nn.init.zeros_(layer.weight)
    encoder.move()
    assert torch.equal(encoder["layer"].weight, before)  # its momentum has risen to 1


@pytest.mark.parametrize("wide", [False, True])
def test_updating_all_parameters_at_once_gives_the_same_bits(wide: bool) -> None:
    torch.manual_seed(0)
    parts = {"pair": torch.nn.Bilinear(3, 4, 2), "nothing": torch.nn.Identity()}
    parts["layer"] = torch.nn.Linear(5, 3)
    encoder = MomentumEncoder(0.97)
    encoder.follow(parts)
    if wide:  # a copy in another precision than its original
        encoder.copies["layer"].double()
    for part in parts.values():
        for parameter in part.parameters():
            torch.nn.init.normal_(parameter)
    expected = copy.deepcopy(encoder.copies)
    for name, part in parts.items():
        for target, source in zip(expected[name].parameters(), part.parameters(), strict=True):
            target.data.mul_(0.97).add_(source.data.to(target.dtype), alpha=1 - 0.97)
    encoder.move()
    for moved, one in zip(encoder.copies.parameters(), expected.parameters(), strict=True):
        assert torch.equal(moved, one) and moved.dtype == one.dtype
    empty = MomentumEncoder()
    empty.move()
    assert empty.steps_done == 1


def test_a_schedule_continues_from_a_checkpoint_without_reading_the_device() -> None:
    layer = torch.nn.Linear(3, 2)
    encoder, other = (MomentumEncoder(0.9, "cosine") for _ in range(2))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match=r"cosine.*needs to know the number of steps"):
        encoder.follow_optimizer(optimizer, None)
    for one in (encoder, other):
        one.follow({"layer": layer})
        one.follow_optimizer(optimizer, steps=6)
    torch.nn.init.ones_(layer.weight)
    for _ in range(3):
        encoder.move()
    other.move()  # reads its count
    other.load_state_dict(encoder.state_dict())
    encoder.move()
    other.move()
    assert torch.equal(encoder["layer"].weight, other["layer"].weight)
    with NeverWaits():
        other.move()
    assert other.steps_done == 5


def test_keys_are_those_of_the_copy(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(checkpoint, head=HEAD, loss=MOCO, momentum_encoder={})
    with torch.no_grad():
        for parameter in model._momentum_encoder["embedder"].parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    given = seen_by(model, monkeypatch)
    torch.manual_seed(1)
    model(spans(0), spans(1))["loss"].backward()
    ((queries, keys),) = given
    assert queries.requires_grad and not keys.requires_grad
    assert queries.shape == keys.shape == (6, 8)
    own = {n for n, p in model.named_parameters() if p.grad is not None}
    assert own and not any("_momentum_encoder" in name for name in own)
    # With the weights of the model itself they would be others.
    model._momentum_encoder.copies["embedder"].load_state_dict(
        model._text_field_embedder.state_dict()
    )
    torch.manual_seed(1)
    model(spans(0), spans(1))
    assert torch.allclose(given[1][0], queries, atol=1e-5)
    assert not torch.allclose(given[1][1], keys, atol=1e-3)


@pytest.mark.parametrize("momentum", [{"schedule": "cosine"}, None])
def test_byol_predicts_the_other_view(
    momentum: dict | None, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a momentum encoder, targets are the model's own projections (SimSiam)."""
    settings: dict[str, Any] = {"momentum_encoder": momentum} if momentum else {}
    model = model_of(checkpoint, head=HEAD, predictor=HEAD, loss={"type": "byol"}, **settings)
    given = seen_by(model, monkeypatch)
    loss = model(spans(0), spans(1))["loss"]
    loss.backward()
    (views,) = given
    assert [view.requires_grad for view in views] == [True, True, False, False]
    assert loss.item() == pytest.approx(symmetric_byol_loss(*views).item(), rel=1e-6)
    trained = [p for n, p in model.named_parameters() if "_momentum_encoder" not in n]
    assert all(p.grad is not None for p in trained if p.requires_grad)


def config(checkpoint: Path, corpus_file: Path, epochs: int) -> dict[str, Any]:
    base = run_config(checkpoint, corpus_file)
    del base["model"]["feedforward"]
    base["model"] |= copy.deepcopy(
        {"head": HEAD, "loss": MOCO, "momentum_encoder": {"momentum": 0.5}}
    )
    base["trainer"] |= {
        "num_epochs": epochs,
        "checkpointer": {"type": "atomic"},
        "callbacks": [{"type": "exact_resume"}],
    }
    return base


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(
    checkpoint: Path, corpus_file: Path, tmp_path: Path
) -> None:
    """The copies and the queue of keys are equal too."""
    whole = train_model(Params(config(checkpoint, corpus_file, 2)), str(tmp_path / "whole"))
    train_model(Params(config(checkpoint, corpus_file, 1)), str(tmp_path / "parts"))
    file = tmp_path / "parts" / "config.json"
    file.write_text(file.read_text().replace('"num_epochs": 1', '"num_epochs": 2'))
    parts = train_model(
        Params(config(checkpoint, corpus_file, 2)), str(tmp_path / "parts"), recover=True
    )
    expected, state = whole.state_dict(), parts.state_dict()
    assert int(expected["_momentum_encoder.steps_done"]) == 6
    assert expected.keys() == state.keys()
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor), name
    name = next(n for n in expected if n.endswith("word_embeddings.weight"))
    followed = next(n for n in expected if n.startswith("_momentum") and n.endswith(name[-30:]))
    assert not torch.equal(expected[name], expected[followed])
    rows = Encoder(tmp_path / "whole", device="cpu", dtype="float32")(["ka lo mi", ""])
    assert rows.shape == (2, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"momentum_encoder": {}}, "NTXent does not compare with a target: remove momentum_enc"),
        (
            {"momentum_encoder": {"momentum": 1.0}, "loss": {"type": "byol"}},
            r"momentum must lie in \[0, 1\), got 1.0",
        ),
        (
            {"momentum_encoder": {"schedule": "linear"}, "loss": {"type": "byol"}},
            "Unknown schedule 'linear': expected one of constant, cosine",
        ),
        ({"predictor": HEAD, "head": HEAD}, "A predictor stands between a head and an objective"),
        (
            {"predictor": {"type": "projector", "hidden_dims": [5]}, "head": HEAD,
             "loss": {"type": "byol"}},
            "The input of predictor, which predicts projections, is 5 wide",
        ),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_together_are_refused(
    checkpoint: Path, changes: dict, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_of(checkpoint, **changes)
