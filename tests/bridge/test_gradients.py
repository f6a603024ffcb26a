"""Gradients are rescaled if sparse, too, are means of batches, and are limited in a search."""

import copy
import importlib
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common import Lazy, Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance, Vocabulary
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.data.fields import TensorField
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer
from allennlp.training.optimizers import Optimizer

from declutr.bridge import gradients, lending

MODULES = [
    "allennlp.training.gradient_descent_trainer",
    "allennlp.training.util",
    "allennlp.nn.parallel.ddp_accelerator",
]


def parameters_with_gradients(sparse: bool) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    embedding, linear = torch.nn.Embedding(6, 3, sparse=sparse), torch.nn.Linear(3, 1)
    linear(embedding(torch.tensor([1, 4, 1, 1, 0]))).pow(2).sum().backward()
    return [*embedding.parameters(), *linear.parameters(), torch.nn.Parameter(torch.ones(1))]


@pytest.mark.parametrize("name", MODULES)
def test_the_repair_is_needed(name: str, bare: Any) -> None:
    module = bare(name)
    with pytest.raises((NotImplementedError, RuntimeError), match="Sparse"):
        module.clip_grad_norm_(parameters_with_gradients(True), 1.0)
    assert gradients.sparse_norms(module)
    assert module.clip_grad_norm_(parameters_with_gradients(True), 1.0) > 0


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("bound", [0.1, 1e6])
@pytest.mark.parametrize("kind", [2.0, 1.0, float("inf")])
def test_sparse_gradients_are_rescaled_as_dense_ones(name: str, bound: float, kind: float) -> None:
    clip = importlib.import_module(name).clip_grad_norm_
    dense, sparse = parameters_with_gradients(False), parameters_with_gradients(True)
    assert torch.equal(clip(sparse, bound, kind), clip(dense, bound, kind))
    assert sparse[0].grad is not None and sparse[0].grad.is_sparse and sparse[-1].grad is None
    for one, other in zip(sparse[:-1], dense[:-1], strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad.to_dense(), other.grad, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("kind", [2.0, float("inf")])
def test_a_sparse_gradient_without_values_counts_as_zero(name: str, kind: float) -> None:
    clip = importlib.import_module(name).clip_grad_norm_
    embedding, other = torch.nn.Embedding(5, 3, sparse=True), torch.nn.Parameter(torch.ones(1))
    embedding(torch.zeros(0, dtype=torch.long)).sum().backward()
    assert clip(embedding.parameters(), 1.0, kind) == 0
    other.grad = torch.full((1,), 2.0)
    assert clip([embedding.weight, other], 1.0, kind) == 2 and other.grad < 1.001


def test_one_parameter_is_enough() -> None:
    clip = importlib.import_module(MODULES[0]).clip_grad_norm_
    parameter = parameters_with_gradients(True)[0]
    assert clip(parameter, 0.5) > 0.5 and parameter.grad is not None
    assert parameter.grad.coalesce().values().norm() == pytest.approx(0.5, abs=1e-5)


@pytest.mark.slow
def test_a_model_with_sparse_embeddings_trains(train: Any, tmp_path: Path) -> None:
    def weights(sparse: bool) -> Any:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        embedder = {"type": "embedding", "embedding_dim": 16, "sparse": sparse}
        return train(
            dataset_reader={
                "tokenizer": {"type": "whitespace"},
                "token_indexers": {"tokens": {"type": "single_id"}},
            },
            model={
                "namespace": "tokens",
                "text_field_embedder": {"token_embedders": {"tokens": embedder}},
                "seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": 16},
            },
            trainer={"optimizer": {"type": "sgd", "lr": 0.5}, "grad_norm": 0.05},
        ).state_dict()

    dense, sparse = weights(False), weights(True)
    for name, value in dense.items():
        torch.testing.assert_close(sparse[name], value, rtol=1e-6, atol=1e-7)


def test_adversarial_gradients_are_those_of_the_paper(bare: Any) -> None:
    """Loops over equation 1 of Zhang et al. (2018); a step has the mean of its batches."""
    module = bare("allennlp.fairness.adversarial_bias_mitigator")
    torch.manual_seed(0)
    model: Any = torch.nn.Module().double()
    model.predictor = torch.nn.Linear(3, 2, bias=False).double()
    model.adversary = torch.nn.Linear(2, 1, bias=False).double()
    weights = [model.predictor.weight, model.adversary.weight]
    data = [[torch.randn(5, n, dtype=torch.double) for n in (3, 2, 1)] for _ in range(2)]
    trainer = SimpleNamespace(
        model=model, optimizer=torch.optim.SGD(weights, lr=1.0), _batches_in_step=2
    )

    def outputs(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
        found = model.predictor(x)
        of_adversary = model.adversary(found) - z
        return {"loss": (found - y).square().mean(), "adversary_loss": of_adversary.square().mean()}

    def expected(alpha: float) -> list[list[float]]:
        sums = [[0.0] * 6, [0.0] * 2]
        for rows in data:
            of_predictor = torch.autograd.grad(outputs(*rows)["loss"], weights[:1])[0]
            against, own = torch.autograd.grad(outputs(*rows)["adversary_loss"], weights)
            g, a = of_predictor.flatten().tolist(), against.flatten().tolist()
            length = math.sqrt(sum(number**2 for number in a))
            product = sum(m * n / length for m, n in zip(g, a, strict=True))
            for i, (m, n) in enumerate(zip(g, a, strict=True)):
                sums[0][i] += (m - product * n / length - alpha * n) / 2
            for i, number in enumerate(own.flatten().tolist()):
                sums[1][i] += number / 2
        return sums

    def found(alpha: float) -> list[list[float]]:
        model.zero_grad()
        callback = module.AdversarialBiasMitigatorBackwardCallback("", alpha)
        for rows in data:
            told = outputs(*rows)
            assert callback.on_backward(trainer, told, backward_called=False)
            assert not told["adversary_loss"].requires_grad
        return [weight.grad.flatten().tolist() for weight in weights]

    assert found(0.5)[1] != pytest.approx(expected(0.5)[1])
    gradients.adversarial_gradients(module)
    for alpha in (0.5, 2.0):
        for numbers, wanted in zip(found(alpha), expected(alpha), strict=True):
            assert numbers == pytest.approx(wanted, abs=1e-12)
    torch.nn.init.zeros_(model.adversary.weight)  # it tells nothing of the predictor
    assert all(math.isfinite(number) for number in found(1.0)[0])
    with pytest.raises(module.OnBackwardException):
        module.AdversarialBiasMitigatorBackwardCallback("").on_backward(trainer, {}, True)


class Unknown(SimpleDataLoader):
    """A loader of data whose number of batches is not known before they are read."""

    def __len__(self) -> int:
        raise TypeError


class Fewer(SimpleDataLoader):
    """A loader that has fewer batches than it tells, as steps of several processes may have."""

    def __len__(self) -> int:
        return super().__len__() + 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SimpleDataLoader, Unknown, Fewer])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_mixed_precision_divides_by_the_batches_of_a_step(
    size: int, kind: type[SimpleDataLoader], bare: Any
) -> None:
    training = bare("allennlp.training.gradient_descent_trainer")
    backward = bare("allennlp.training.callbacks.backward")

    def trained(scaler: Any) -> list[float]:
        rows = [Instance({"x": TensorField(torch.tensor([float(n)]))}) for n in (1, 3, 8, 2, 7)]
        model, loader = Steep(), kind(rows, 1)
        trainer = training.GradientDescentTrainer(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            loader,
            cuda_device=-1,
            num_epochs=1,
            num_gradient_accumulation_steps=size,
            callbacks=[backward.MixedPrecisionBackwardCallback("")] if scaler else [],
        )
        trainer._scaler = scaler
        trainer.train()
        return model.weights.tolist()

    def scaled() -> list[float]:  # powers of two scale without rounding
        return trained(torch.amp.GradScaler("cpu", init_scale=1024.0))

    expected = trained(None)
    assert (scaled() == expected) is (size == 1)
    gradients.means_of_batches(backward)
    gradients.batches_of_processes(training)
    lazy_groups_of = training.common_util.lazy_groups_of
    assert trained(None) == scaled() == expected
    assert training.common_util.lazy_groups_of is lazy_groups_of


class Steep(Model):
    """A model of two weights whose gradients are 3 and 4 times a hundred."""

    def __init__(self) -> None:
        super().__init__(Vocabulary())
        self.weights = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"loss": (self.weights * torch.tensor([300.0, 400.0]) * x.mean()).sum()}


@pytest.mark.parametrize(
    "limits, step",
    [
        ({"grad_clipping": 0.5}, [0.5, 0.5]),
        ({"grad_clipping": 3.5, "grad_norm": 5.0}, [3.0, 3.5]),
        ({"grad_norm": 5.0}, [3.0, 4.0]),
        ({}, [300.0, 400.0]),
    ],
)
def test_the_search_for_a_rate_limits_gradients_as_training_does(
    limits: dict[str, float], step: list[float], bare: Any
) -> None:
    module = bare("allennlp.commands.find_learning_rate")

    def moved() -> list[float]:
        """Return the step of each weight at a rate of 1."""
        model, rows = Steep(), [Instance({"x": TensorField(torch.ones(1))}) for _ in range(4)]
        loader = SimpleDataLoader(rows, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer = GradientDescentTrainer(model, optimizer, loader, cuda_device=-1, **limits)
        rates, _ = module.search_learning_rate(trainer, 1e-3, 1e-2, num_batches=11)
        assert "rescale_gradients" not in vars(trainer)
        return (-model.weights / sum(rates)).tolist()

    assert (moved() == pytest.approx(step)) is ("grad_clipping" not in limits)
    gradients.limited_in_search(module)
    assert moved() == pytest.approx(step)


def test_a_step_of_the_search_for_a_rate_has_the_batches_of_a_step_of_training(bare: Any) -> None:
    module = bare("allennlp.commands.find_learning_rate")

    def moved() -> tuple[float, list[float]]:
        """Return the first step at a rate of 1 with each number of batches, and its losses."""
        rows = [Instance({"x": TensorField(torch.tensor([float(n)]))}) for n in (1, 3, 8)]
        model, loader = Steep(), SimpleDataLoader(rows, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer = GradientDescentTrainer(
            model, optimizer, loader, cuda_device=-1, num_gradient_accumulation_steps=2
        )
        search = module.search_learning_rate
        rates, losses = search(trainer, 1.0, 1.0 + 1e-9, num_batches=11, linear_steps=True)
        assert trainer.data_loader is loader and "batch_outputs" not in vars(trainer)
        assert len(rates) == 12
        return -model.weights[0].item() / 300, [loss / -250_000 for loss in losses[:4]]

    total, losses = moved()  # of 1, 3, 8, 1, ...
    assert total == pytest.approx(4 * 12) and losses == pytest.approx([0, 3, 4 * 8, 12])
    gradients.accumulated_in_search(module)
    total, losses = moved()  # of the means 2, 8, 2, ...
    assert total == pytest.approx(5 * 12) and losses == pytest.approx([0, 2 * 8, 10 * 2, 12 * 8])


def test_null_for_the_norm_of_gradients_is_no_limit(bare: Any) -> None:
    module = bare("allennlp.training.gradient_descent_trainer")
    parts = {"model": torch.nn.Linear(1, 1), "_ddp_wrapped_model": None, "_scaler": None}
    trainer = SimpleNamespace(_grad_norm=None, **parts)
    with pytest.raises(TypeError, match="NoneType"):
        module.GradientDescentTrainer.rescale_gradients(trainer)
    gradients.no_norms(module)
    assert module.GradientDescentTrainer.rescale_gradients(trainer) is None


@pytest.mark.slow
def test_a_pattern_that_freezes_nothing_is_told(
    bare: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    module = bare("allennlp.training.gradient_descent_trainer")

    def told(*patterns: str) -> list[str]:
        caplog.clear()
        model, rows = Steep(), [Instance({"x": TensorField(torch.ones(1))})]
        loader = SimpleDataLoader(rows, 1)
        module.GradientDescentTrainer.from_partial_objects(
            model,
            str(tmp_path),
            loader,
            no_grad=[*patterns],
            optimizer=Lazy(Optimizer.by_name("sgd"), constructor_extras={"lr": 1.0}),
        )
        warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        return [message for message in warned if "no_grad" in message]

    assert told("wieghts") == []
    gradients.frozen_names(module)
    first, second = told("nothing$", "wieghts")
    assert "'nothing$'" in first and "'wieghts'" in second and "'weights'" in second
    assert told() == []


def test_a_group_has_a_list_of_patterns(bare: Any) -> None:
    with lending.adamw():
        module = bare("allennlp.training.optimizers")
    parameters = [(name, torch.nn.Parameter(torch.zeros(1))) for name in ("a.bias", "b.weight")]
    wrong, right = ([[patterns, {"lr": 2.0}]] for patterns in ("bias", ["bias"]))
    first, _ = module.make_parameter_groups(parameters, wrong)
    assert len(first["params"]) == 2, "each letter is a pattern: the test is for nothing"
    gradients.listed_patterns(module)
    for build in (module.make_parameter_groups, lambda *a: module.MultiOptimizer(a[0], {}, a[1])):
        with pytest.raises(ConfigurationError, match=r"Got \['bias', .* a list of patterns"):
            build(parameters, wrong)
    assert len(module.make_parameter_groups(parameters, right)[0]["params"]) == 1


def test_settings_of_groups_that_change_nothing_are_told(
    bare: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = bare("allennlp.training.gradient_descent_trainer")
    gradients.settings_of_groups(module)

    def told(**settings: Any) -> list[str]:
        caplog.clear()
        rows = [Instance({"x": TensorField(torch.ones(1))})]
        optimizer = {"type": "sgd", "lr": 1.0, "parameter_groups": [[["weights"], settings]]}
        module.GradientDescentTrainer.from_partial_objects(
            Steep(),
            str(tmp_path),
            SimpleDataLoader(rows, 1),
            optimizer=Lazy(Optimizer, params=Params(optimizer)),
        )
        return [message for message in caplog.messages if "parameter_groups changes" in message]

    rate, decay = told(learning_rate=2.0, wieght_decay=0.1)
    assert rate.startswith("'learning_rate' in parameter_groups changes nothing: the optimizer")
    assert "Did you mean 'weight_decay' for 'wieght_decay'?" in decay
    assert told(lr=2.0, weight_decay=0.1) == told(requires_grad=False, lr=2.0) == []
    assert told(initial_lr=2.0) == [], "schedules begin with it"
    init = torch.optim.SGD.__init__

    def without_defaults(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        del self.defaults

    monkeypatch.setattr(torch.optim.SGD, "__init__", without_defaults)
    assert told(of_its_own=1) == [], "an optimizer that does not say what it has"


GROUPS = [[["^weights$"], {"requires_grad": False}], [["^other$"], {"lr": 2.0}]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer, no_grad, frozen",
    [
        (Params({"type": "sgd", "lr": 1.0, "parameter_groups": GROUPS}), None, True),
        (Params({"type": "sgd", "lr": 1.0}), ["^weights$"], True),
        (Params({"type": "sgd", "lr": 1.0}), None, False),
        ("adam", ["^weights$"], True),
        ("adam", None, False),
    ],
)
def test_several_processes_get_a_model_that_is_frozen(
    optimizer: Any, no_grad: Any, frozen: bool, bare: Any, tmp_path: Path
) -> None:
    """The optimizer may be its name alone."""
    module = bare("allennlp.training.gradient_descent_trainer")
    given: list[dict[str, bool]] = []

    class Accelerator:
        def wrap_model(self, model: Any) -> tuple[Any, Any]:
            given.append({name: p.requires_grad for name, p in model.named_parameters()})
            return model, SimpleNamespace(model=model, is_sharded=False)

    def trainer() -> Any:
        model, rows = Steep(), [Instance({"x": TensorField(torch.ones(1))})]
        model.other = torch.nn.Parameter(torch.ones(1))
        return module.GradientDescentTrainer.from_partial_objects(
            model,
            str(tmp_path),
            SimpleDataLoader(rows, 1),
            distributed=True,
            world_size=2,
            cuda_device=-1,
            no_grad=no_grad,
            optimizer=Lazy(Optimizer, params=copy.deepcopy(optimizer)),
            ddp_accelerator=Accelerator(),
        )

    groups = [len(group["params"]) for group in trainer().optimizer.param_groups]
    assert given.pop() == {"weights": True, "other": True}
    gradients.frozen_in_processes(module)
    after = [len(group["params"]) for group in trainer().optimizer.param_groups]
    assert given.pop() == {"weights": not frozen, "other": True} and after == groups


@pytest.mark.slow
def test_a_step_without_a_number_of_batches_is_told(
    bare: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = bare("allennlp.training.gradient_descent_trainer")

    def trainer(batches: Any) -> Any:
        loader = SimpleDataLoader([Instance({"x": TensorField(torch.ones(1))})], 1)
        optimizer = Lazy(Optimizer.by_name("sgd"), constructor_extras={"lr": 1.0})
        return module.GradientDescentTrainer.from_partial_objects(
            Steep(),
            str(tmp_path),
            loader,
            optimizer=optimizer,
            num_gradient_accumulation_steps=batches,
        )

    gradients.whole_steps(module)
    assert trainer(2) and "is null" not in caplog.text
    assert trainer(None) and "is null: a step has all batches of an epoch" in caplog.text
    for batches in (0, -1):
        with pytest.raises(ConfigurationError, match=rf"_steps is {batches}, expected the number"):
            trainer(batches)
