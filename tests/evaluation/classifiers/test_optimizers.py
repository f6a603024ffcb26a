"""Adam and RMSprop against `torch.optim` with one tensor for each row."""

import pytest
import torch

from declutr.evaluation.classifiers.networks import OPTIMIZERS, Optimizer

ROWS, WIDTH, STEPS = 4, 6, 12


def reference(name: str, start: torch.Tensor, decay: float) -> tuple:
    parameter = torch.nn.Parameter(start.clone())
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[name]
    return parameter, kind([parameter], weight_decay=decay)


@pytest.fixture(params=["adam", "rmsprop"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def made(name: str) -> tuple[torch.Tensor, list[float], Optimizer]:
    start = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    decays = [0.0, 1e-4, 1e-2, 1.0]
    decay = torch.tensor(decays)[:, None].expand(-1, WIDTH)
    return start, decays, OPTIMIZERS[name](start, decay)


def test_each_row_is_updated_as_by_torch_while_others_are_idle(name: str) -> None:
    start, decays, ours = made(name)
    theirs = [reference(name, row, decay) for row, decay in zip(start, decays, strict=True)]
    draw = torch.Generator().manual_seed(1)
    for number in range(STEPS):
        gradient = torch.randn(ROWS, WIDTH, generator=draw)
        idle = [2, 3] if number % 3 == 1 else []
        for row, (parameter, optimizer) in enumerate(theirs):
            if row not in idle:
                parameter.grad = gradient[row].clone()
                optimizer.step()
        ours.step(gradient.clone(), torch.tensor(idle) if idle else None)
    for row, (parameter, _) in enumerate(theirs):
        torch.testing.assert_close(ours.values[row], parameter.detach())


def test_dropped_rows_do_not_change_the_others(name: str) -> None:
    _, _, some = made(name)
    start, _, every = made(name)
    draw = torch.Generator().manual_seed(1)
    for number in range(STEPS):
        gradient = torch.randn(ROWS, WIDTH, generator=draw)
        if number == 5:
            some.keep(torch.tensor([1, 3]))
        every.step(gradient.clone())
        some.step(gradient[[1, 3]].clone() if number >= 5 else gradient.clone())
    torch.testing.assert_close(some.values, every.values[[1, 3]])
    assert not torch.equal(every.values, start)
