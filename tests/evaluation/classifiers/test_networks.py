"""Many classifiers at once against single `torch.nn` modules with autograd in float64."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from declutr.evaluation.classifiers.networks import Network

FOLDS, PENALTIES, CLASSES, HIDDEN, WIDTH, ROWS = 3, 2, 4, 5, 6, 7


def modules(network: Network, flat: torch.Tensor) -> list[list[nn.Module]]:
    """Make a module for each fold and penalty with the parameters of the network."""
    pieces, made = network.pieces(flat), []
    for fold in range(FOLDS):
        made.append([])
        for penalty in range(PENALTIES):
            parameters = [nn.Parameter(piece[fold, penalty].clone()) for piece in pieces]
            layers = []
            for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
                layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
                layer.weight, layer.bias = weight, bias
                layers += [layer, nn.Sigmoid()]
            made[-1].append(nn.Sequential(*layers[:-1]))
    return made


@pytest.fixture(params=["logistic", "perceptron"])
def network(request: pytest.FixtureRequest) -> Network:
    if request.param == "logistic":
        return Network(WIDTH, CLASSES, PENALTIES)
    return Network(WIDTH, CLASSES, PENALTIES, HIDDEN)


@pytest.fixture
def flat(network: Network) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(FOLDS, len(network.owner()), dtype=torch.float64)


def test_logits_and_gradients_equal_those_of_single_modules(
    network: Network, flat: torch.Tensor
) -> None:
    rows = torch.randn(FOLDS, ROWS, WIDTH, dtype=torch.float64)
    labels = torch.randint(CLASSES, (FOLDS, ROWS))
    counts = [ROWS, ROWS - 2, 0]  # the second fold is padded, the third is empty in this batch
    weights = torch.zeros(FOLDS, 1, 1, ROWS, dtype=torch.float64)
    for fold, count in enumerate(counts):
        weights[fold, ..., :count] = 1 / max(count, 1)
    gold = torch.eye(CLASSES, dtype=torch.float64)[:, labels].transpose(0, 1).unsqueeze(1)
    logits = network.logits(flat, rows)
    gradients = network.pieces(network.gradient(flat, rows, gold, weights))
    assert logits.shape == (FOLDS, PENALTIES, CLASSES, ROWS)
    for fold, of_fold in enumerate(modules(network, flat)):
        count = counts[fold]
        for penalty, module in enumerate(of_fold):
            out = module(rows[fold])
            torch.testing.assert_close(logits[fold, penalty].t(), out)
            if count:
                cross_entropy(out[:count], labels[fold, :count]).backward()
            for gradient, parameter in zip(gradients, module.parameters(), strict=True):
                expected = parameter.grad if count else torch.zeros_like(parameter)
                torch.testing.assert_close(gradient[fold, penalty], expected)


def test_initial_weights_are_those_that_torch_draws(network: Network) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1111)
        layers = [nn.Linear(*shape[:0:-1]) for shape in network.shapes[::2]]
    drawn = network.initial(torch.Generator().manual_seed(1111))
    pieces = network.pieces(drawn[None])
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    for piece, parameter in zip(pieces, parameters, strict=True):
        for penalty in range(PENALTIES):
            torch.testing.assert_close(piece[0, penalty], parameter.detach())


def test_owner_is_the_classifier_of_each_parameter(network: Network) -> None:
    flat = network.owner()[None]
    for piece in network.pieces(flat):
        for penalty in range(PENALTIES):
            assert (piece[0, penalty] == penalty).all()


def test_dropout_drops_hidden_units_before_the_sigmoid() -> None:
    draw = torch.Generator().manual_seed(3)
    network = Network(WIDTH, CLASSES, 1, HIDDEN, dropout=0.5, generator=draw)
    flat = torch.randn(1, len(network.owner()), generator=torch.Generator().manual_seed(0))
    rows, labels = torch.randn(1, ROWS, WIDTH), torch.randint(CLASSES, (ROWS,))
    gold = torch.eye(CLASSES)[:, labels[None]].transpose(0, 1).unsqueeze(1)
    got = network.gradient(flat, rows, gold, torch.full((1, 1, 1, 1), 1 / ROWS))

    draws = torch.rand((1, 1, HIDDEN, ROWS), generator=torch.Generator().manual_seed(3))
    kept = 2 * (draws >= 0.5).float()[0, 0].t()  # (B, h)
    assert 0 < (kept == 0).float().mean() < 1
    leaf = flat.clone().requires_grad_()
    first, first_bias, second, second_bias = (piece[0, 0] for piece in network.pieces(leaf))
    hidden = torch.sigmoid((rows[0] @ first.t() + first_bias) * kept)
    cross_entropy(hidden @ second.t() + second_bias, labels).backward()
    torch.testing.assert_close(got, leaf.grad)
    # Prediction uses no dropout.
    whole = Network(WIDTH, CLASSES, 1, HIDDEN)
    torch.testing.assert_close(network.logits(flat, rows), whole.logits(flat, rows))
