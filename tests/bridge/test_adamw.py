"""Compare the optimizer of `huggingface_adamw` with plain loops and with torch's optimizers."""

import copy
import math

import pytest
import torch

from declutr.bridge.adamw import AdamW


def by_hand(
    weight: list[float],
    gradients: list[list[float]],
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    correct_bias: bool,
) -> list[float]:
    """Compute algorithm 2 of arXiv:1711.05101 number by number, with the decay after the step."""
    w, mean, square = list(weight), [0.0] * len(weight), [0.0] * len(weight)
    for step, gradient in enumerate(gradients, start=1):
        for i, g in enumerate(gradient):
            mean[i] = betas[0] * mean[i] + (1 - betas[0]) * g
            square[i] = betas[1] * square[i] + (1 - betas[1]) * g * g
            size = lr
            if correct_bias:
                size = lr * math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
            w[i] = w[i] - size * mean[i] / (math.sqrt(square[i]) + eps)
            w[i] = w[i] - lr * weight_decay * w[i]
    return w


GRADIENTS = [[0.5, -1.0, 0.0], [0.25, 2.0, 1e-4], [-3.0, 0.5, 1e-3], [0.1, 0.1, -0.2]]
WEIGHT = [1.0, -2.0, 3.0]


def run(weight: torch.Tensor, optimizer: torch.optim.Optimizer) -> list[float]:
    for gradient in GRADIENTS:
        weight.grad = torch.tensor(gradient, dtype=weight.dtype)
        optimizer.step()
    return weight.tolist()


@pytest.mark.parametrize("correct_bias", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_steps_equal_algorithm_2(correct_bias: bool, weight_decay: float, eps: float) -> None:
    weight = torch.tensor(WEIGHT, dtype=torch.float64, requires_grad=True)
    options = {
        "lr": 0.05,
        "betas": (0.8, 0.99),
        "eps": eps,
        "weight_decay": weight_decay,
        "correct_bias": correct_bias,
    }
    expected = by_hand(WEIGHT, GRADIENTS, **options)
    assert run(weight, AdamW([weight], **options)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fused_kernel_equals_the_loop(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Compare both for many tensors, two groups and a parameter that joins late."""
    results = []
    for devices in (("cpu",), ()):
        monkeypatch.setattr("declutr.bridge.adamw._FUSED", devices)
        generator = torch.Generator().manual_seed(0)
        shapes = [(3, 4), (5,), (2, 2, 2), (7,)]
        weights = [torch.randn(s, dtype=dtype, generator=generator) for s in shapes]
        for weight in weights:
            weight.requires_grad_()
        optimizer = AdamW(
            [{"params": weights[:2], "weight_decay": 0.1}, {"params": weights[2:]}], lr=0.05
        )
        for step in range(5):
            for number, weight in enumerate(weights):
                gradient = torch.randn(weight.shape, dtype=dtype, generator=generator)
                weight.grad = gradient if number or step > 1 else None
            optimizer.step()
        results.append(weights)
    tolerance = 1e-12 if dtype is torch.float64 else 1e-6
    for fused, looped in zip(*results, strict=True):
        torch.testing.assert_close(fused, looped, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("weight", "gradient"),
    [
        (torch.randn(4, 5)[:, :3], torch.randn(4, 3)),  # a part of each row of a larger tensor
        (torch.randn(4, 3), torch.randn(3, 4).T),
        (torch.randn(3, 4).T, torch.randn(4, 3)),
        (torch.randn(4, 3), torch.randn(3).expand(4, 3)),  # one row, which stands for all
    ],
)
def test_views_are_updated_and_nothing_beside_them(
    weight: torch.Tensor, gradient: torch.Tensor
) -> None:
    weight = torch.nn.Parameter(weight)
    of_all = torch.empty(0, dtype=weight.dtype).set_(weight.untyped_storage())
    before = of_all.clone()
    expected = torch.nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    others = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]  # are updated in the same step
    for one, other in ((weight, others[0]), (expected, others[1])):
        optimizer = AdamW([one, other], lr=0.1, weight_decay=0.1)
        for _ in range(2):
            one.grad = gradient if one is weight else gradient.contiguous()
            other.grad = torch.ones(2)
            optimizer.step()
    torch.testing.assert_close(weight, expected)
    torch.testing.assert_close(*others)
    untouched = torch.ones_like(of_all, dtype=torch.bool)
    untouched.as_strided(weight.size(), weight.stride()).fill_(False)
    assert torch.equal(of_all[untouched], before[untouched])


def test_copies_of_an_optimizer_continue_alike() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = AdamW([weight], lr=0.1)
    weight.grad = torch.ones(2)
    optimizer.step()
    copied = copy.deepcopy(optimizer)
    optimizer.step(), copied.step()
    torch.testing.assert_close(copied.param_groups[0]["params"][0], weight)


def test_a_learning_rate_of_zero_updates_only_the_means() -> None:
    """Schedules with warmup begin with a learning rate of 0."""
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = AdamW([weight], lr=0.0, weight_decay=0.1)
    weight.grad = torch.ones(2, dtype=torch.float64)
    optimizer.step()
    assert torch.equal(weight, torch.ones(2, dtype=torch.float64))
    assert optimizer.state[weight]["exp_avg"].tolist() == pytest.approx([0.1, 0.1])


def test_differs_from_torch_adamw_where_recipes_depend_on_it() -> None:
    ours = torch.tensor(WEIGHT, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    expected = run(theirs, torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.1))
    assert run(ours, AdamW([ours], lr=0.05, weight_decay=0.1)) != pytest.approx(expected, rel=1e-6)


def test_groups_and_parameters_without_gradient() -> None:
    decayed, plain, unused = (torch.ones(2, requires_grad=True) for _ in range(3))
    optimizer = AdamW(
        [{"params": [decayed, unused], "weight_decay": 0.5}, {"params": [plain]}], lr=0.1
    )
    decayed.grad, plain.grad = torch.ones(2), torch.ones(2)
    optimizer.step()
    torch.testing.assert_close(decayed, plain * (1 - 0.1 * 0.5))
    assert torch.equal(unused, torch.ones(2)) and unused not in optimizer.state


def test_a_closure_and_a_saved_state_are_used() -> None:
    def fresh() -> tuple[torch.Tensor, AdamW]:
        weight = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        return weight, AdamW([weight], lr=0.1, weight_decay=0.01)

    def step(weight: torch.Tensor, optimizer: AdamW) -> float:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (weight**2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    weight, optimizer = fresh()
    losses = [step(weight, optimizer) for _ in range(4)]
    again, first = fresh()
    resumed_losses = [step(again, first) for _ in range(2)]
    second = AdamW([again], lr=9.0)
    second.load_state_dict(first.state_dict())
    resumed_losses += [step(again, second) for _ in range(2)]
    assert losses == resumed_losses and losses[0] > losses[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "learning rate: -1.0"),
        ({"betas": (1.0, 0.9)}, "beta at index 0: 1.0"),
        ({"betas": (0.9, -0.1)}, "beta at index 1: -0.1"),
        ({"eps": -1e-3}, "epsilon value: -0.001"),
    ],
)
def test_invalid_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdamW([torch.ones(1, requires_grad=True)], **options)


def test_sparse_gradients_are_refused() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="use SparseAdam instead"):
        AdamW([weight]).step()
