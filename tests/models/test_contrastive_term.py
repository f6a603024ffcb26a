"""The inputs that the model gives to objectives of this package and of others."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.modules.text_batches import text_keys
from declutr.objectives import NTXent, Objective
from declutr.objectives.objective import OF_DATA, VIEWS
from tests.test_given import HEAD, embedded, plain_model, spans

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since declutr:FutureWarning")

LABELS, IDS = torch.tensor([5, 2, 5]), torch.tensor([8, 0, 3])


class AllViews(Objective):
    """An objective that takes every input and keeps it."""

    def forward(  # type: ignore[override]
        self, anchors: Tensor, positives: Tensor, projected_anchors: Tensor,
        projected_positives: Tensor, keys: Tensor, target_anchors: Tensor,
        target_positives: Tensor, positive_views: Tensor, labels: Tensor,
        ids: Optional[Tensor] = None, documents: Optional[Tensor] = None,
        texts: Optional[Tensor] = None, negatives: Optional[Tensor] = None,
    ) -> Tensor:  # fmt: skip
        self.given = {name: value for name, value in locals().items() if name in VIEWS + OF_DATA}
        return (projected_anchors * projected_positives).sum()


class AnyNames(NTXent):
    """An objective that names its two views as it likes, as every release allows."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, y)


class NeedsAndTakes(NTXent):
    """An objective that declares its inputs as in earlier releases."""

    needs = ("ids",)
    takes = ("labels", "texts")

    def forward(self, first: Tensor, second: Tensor, **given: Tensor) -> Tensor:  # type: ignore[override]
        self.given = given
        return super().forward(first, second)


class EarlierKeys(NTXent):
    uses_targets = "keys"

    def forward(self, queries: Tensor, keys_of_theirs: Tensor) -> Tensor:  # type: ignore[override]
        self.keys = keys_of_theirs
        return super().forward(queries, keys_of_theirs)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the objectives above during a test."""
    for name, kind in {
        "all_views": AllViews,
        "any_names": AnyNames,
        "needs_and_takes": NeedsAndTakes,
        "keys_of_earlier_releases": EarlierKeys,
    }.items():
        monkeypatch.setitem(Registrable._registry[Objective], name, (kind, None))


def means(rows: Tensor) -> Tensor:
    return rows.unflatten(0, (3, 2)).mean(dim=1)


def with_target(checkpoint: Path, **changes: Any) -> Any:
    """Return a model whose momentum encoder has other weights."""
    model = plain_model(checkpoint, head=HEAD, momentum_encoder={}, **changes)
    with torch.no_grad():
        for copy in ("embedder", "head"):
            for parameter in model._momentum_encoder[copy].parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def by_target(model: Any, given: dict) -> Tensor:
    """Return the embeddings of spans by the momentum encoder."""
    flat = {"tokens": {key: t.flatten(0, 1) for key, t in given["tokens"].items()}}
    target = model._momentum_encoder
    with torch.no_grad():
        return target["pooler"](target["embedder"](flat), flat["tokens"]["mask"])


def test_an_objective_gets_every_view_and_field_by_name(checkpoint: Path) -> None:
    model = with_target(checkpoint, loss={"type": "all_views"})
    anchors, positives = spans(1, 0), spans(2, 1)
    model(anchors, positives, labels=LABELS, ids=IDS)["loss"].backward()
    given = model._loss.given
    target_head = model._momentum_encoder["head"]
    for name, rows, targets in (
        ("anchors", embedded(model, anchors), by_target(model, anchors)),
        ("positives", *(means(by(model, positives)) for by in (embedded, by_target))),
    ):
        assert torch.allclose(given[name], rows, atol=1e-5)
        assert torch.allclose(given[f"projected_{name}"], model._head(rows), atol=1e-4)
        expected = target_head(targets)
        assert torch.allclose(given[f"target_{name}"], expected, atol=1e-4)
        assert not torch.allclose(expected, model._head(rows), atol=1e-2)
        assert not given[f"target_{name}"].requires_grad
    each = model._head(embedded(model, positives)).unflatten(0, (3, 2))
    assert torch.allclose(given["positive_views"], each, atol=1e-4)
    assert torch.equal(given["keys"], given["target_positives"])
    assert torch.equal(given["labels"], LABELS) and torch.equal(given["ids"], IDS)
    keys = text_keys({"anchors": {"tokens": {k: t[:, 0] for k, t in anchors["tokens"].items()}}})
    assert keys is not None and torch.equal(given["texts"], keys)
    assert given["documents"] is given["negatives"] is None


@pytest.mark.parametrize("by", ["head", "feedforward", None])
def test_positives_are_views_of_their_own(checkpoint: Path, by: str | None) -> None:
    """And no mean of them goes through the head."""
    layers: dict[str, Any] = {
        "head": {"head": HEAD},
        "feedforward": {
            "feedforward": {
                "input_dim": 32, "num_layers": 1, "hidden_dims": [8], "activations": ["tanh"]
            }
        },
        None: {},
    }[by]  # fmt: skip
    loss = {"type": "swav", "embedding_size": 8 if by else 32, "prototypes": 3, "assigned_views": 2}
    model = plain_model(checkpoint, loss=loss, **layers)
    given: dict[str, Tensor] = {}
    model._loss.register_forward_pre_hook(
        lambda module, args, named: given.update(named), with_kwargs=True
    )
    anchors, positives = spans(2, 0), spans(6, 1)  # of three documents
    model(anchors, positives)["loss"].backward()
    project = model._head or model._feedforward or torch.nn.Identity()
    assert given.keys() == {"anchors", "positive_views"}
    assert torch.allclose(given["anchors"], project(embedded(model, anchors)), atol=1e-4)
    expected = project(embedded(model, positives)).unflatten(0, (6, 3))
    assert torch.allclose(given["positive_views"], expected, atol=1e-4)
    if by == "head":
        assert model._head.layers[1].num_batches_tracked == 4  # two here
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []


@pytest.mark.parametrize("summed", [False, True])
def test_an_objective_follows_the_optimizer_of_a_trainer(checkpoint: Path, summed: bool) -> None:
    loss: Any = {"type": "swav", "embedding_size": 32, "prototypes": 3, "renormalise": True}
    if summed:
        loss = {"type": "weighted_sum", "objectives": [{"objective": loss}]}
    model = plain_model(checkpoint, loss=loss)
    trainer = SimpleNamespace(
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=None,
        _metric_tracker=SimpleNamespace(tracked_metrics=[]),
    )
    model.attach(trainer)
    objective = model._loss.objectives[0] if summed else model._loss
    before = objective.prototypes.detach().clone()
    model(spans(1, 0), spans(2, 1))["loss"].backward()
    trainer.optimizer.step()
    assert not torch.allclose(objective.prototypes, before, atol=1e-3)
    assert torch.allclose(objective.prototypes.norm(dim=1), torch.ones(3))


def test_without_a_momentum_encoder_own_projections_are_keys_and_targets(checkpoint: Path) -> None:
    model = plain_model(checkpoint, head=HEAD, loss={"type": "all_views"})
    model(spans(1, 0), spans(2, 1), labels=LABELS)
    given = model._loss.given
    assert torch.equal(given["keys"], given["projected_positives"])
    assert given["keys"].requires_grad
    for name in ("anchors", "positives"):
        assert torch.equal(given[f"target_{name}"], given[f"projected_{name}"])
        assert not given[f"target_{name}"].requires_grad
    with pytest.raises(ConfigurationError, match=r'AllViews needs labels.*"text_pairs" does'):
        model(spans(1, 0), spans(2, 1))


def test_objectives_written_for_earlier_releases_work(checkpoint: Path) -> None:
    anchors, positives = spans(1, 0), spans(2, 1)
    expected = plain_model(checkpoint)(anchors, positives)["loss"].item()
    any_names = plain_model(checkpoint, loss={"type": "any_names"})(anchors, positives)
    assert any_names["loss"].item() == pytest.approx(expected, rel=1e-6)
    model = plain_model(checkpoint, loss={"type": "needs_and_takes"})
    loss = model(anchors, positives, ids=IDS)["loss"]
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert set(model._loss.given) == {"ids", "texts"}
    with pytest.raises(ConfigurationError, match="NeedsAndTakes needs ids"):
        model(anchors, positives)
    model = with_target(checkpoint, loss={"type": "keys_of_earlier_releases"})
    model(anchors, positives)["loss"].backward()
    rows = model._momentum_encoder["head"](means(by_target(model, positives)))
    assert torch.allclose(model._loss.keys, rows, atol=1e-4)


def test_a_sum_gives_each_objective_its_own_positives(checkpoint: Path) -> None:
    """Both encoders embed positives: one for objectives with keys, one for the others."""
    moco = {"type": "moco", "embedding_size": 8, "queue_size": 12}
    terms = [{"objective": moco}, {"objective": {"type": "all_views"}}]
    with pytest.raises(ConfigurationError, match="compares with targets of both"):
        plain_model(checkpoint, head=HEAD, loss={"type": "weighted_sum", "objectives": terms})
    terms = [{"objective": moco}, {"objective": {"type": "nt_xent"}}]
    model = with_target(checkpoint, loss={"type": "weighted_sum", "objectives": terms})
    seen: dict[str, tuple] = {}
    for objective in model._loss.objectives:
        objective.register_forward_pre_hook(
            lambda module, args, given: seen.update({type(module).__name__: given}),
            with_kwargs=True,
        )
    anchors, positives = spans(1, 0), spans(2, 1)
    model(anchors, positives)["loss"].backward()
    own = model._head(means(embedded(model, positives)))
    other = model._momentum_encoder["head"](means(by_target(model, positives)))
    assert torch.allclose(seen["NTXent"]["positives"], own, atol=1e-4)
    assert torch.allclose(seen["MomentumContrast"]["keys"], other, atol=1e-4)
    assert torch.equal(seen["NTXent"]["anchors"], seen["MomentumContrast"]["anchors"])
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
