"""Small classifiers, many at once, and their optimizers: one product does for all folds.

Cross-validation trains hundreds of classifiers that differ only in which rows they see and in the
weight of their L2 penalty. Those of one fold see the same batches, since SentEval seeds each of
them alike; so F folds of R penalties are one network with parameters `(F, P)`, where P counts the
parameters of R classifiers, and a step costs little more than that of a single classifier.
Gradients are written out: with so little arithmetic a step, autograd would take most of the time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import nn

EPSILON = 1e-8

# Shapes: F folds, R penalties, c classes, h hidden units, d features, B rows a batch. Rows come
# last in what a network computes: softmax then runs over whole vectors, and products are faster
# than with classes last.


def seeded_linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Make a linear layer whose weights are drawn as torch draws them, from a generator."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


class Network:
    """R classifiers with the same features, whose parameters are one vector of P numbers.

    Each is a logistic regression with one weight vector for each class (SentEval's `nhid=0`), or
    with hidden units linear, dropout, sigmoid and linear, in SentEval's order.

    # Parameters

    width : of the features.
    penalties : R.
    hidden : units of the hidden layer; 0 for none.
    generator : of dropout. Its draws are shared by folds and penalties.
    """

    def __init__(
        self,
        width: int,
        classes: int,
        penalties: int,
        hidden: int = 0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        self.shapes: list[tuple[int, ...]] = []
        """Of each parameter, R first."""
        for inputs, outputs in pairwise([width, hidden, classes] if hidden else [width, classes]):
            self.shapes += [(penalties, outputs, inputs), (penalties, outputs)]
        self._sizes = [math.prod(shape) for shape in self.shapes]
        self._dropout, self._generator = dropout, generator

    def pieces(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Views `(F, *shape)` of parameters `(F, P)`."""
        parts = flat.split(self._sizes, dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def owner(self) -> torch.Tensor:
        """`(P,)`: to which of the R classifiers each parameter belongs."""
        owners = [
            torch.arange(shape[0]).repeat_interleave(size // shape[0])
            for shape, size in zip(self.shapes, self._sizes, strict=True)
        ]
        return torch.cat(owners)

    def initial(self, generator: torch.Generator) -> torch.Tensor:
        """Parameters `(P,)`: for each of R the same, drawn as `torch.nn.Linear` draws them."""
        drawn = []
        for weight, bias in zip(self.shapes[::2], self.shapes[1::2], strict=True):
            bound = 1 / math.sqrt(weight[-1])
            for shape in (weight, bias):
                one = torch.empty(shape[1:]).uniform_(-bound, bound, generator=generator)
                drawn.append(one.expand(shape).reshape(-1))
        return torch.cat(drawn)

    def logits(self, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """`(F, R, c, B)` of parameters `(F, P)` and features `(F, B, d)`."""
        first, first_bias, *second = self.pieces(flat)
        out = _linear(rows, first, first_bias)
        return _second(torch.sigmoid(out), *second) if second else out

    def gradient(
        self, flat: torch.Tensor, rows: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Of the weighted sum over rows of the cross-entropy, by each parameter.

        # Parameters

        flat : parameters, `(F, P)`.
        rows : features, `(F, B, d)`.
        gold : ones at the right classes, `(F, 1, c, B)`.
        weights : of rows, `(F, 1, 1, B)`: 1 / n for a mean over n rows, 0 for padding.

        # Returns

        `(F, P)`.
        """
        first, first_bias, *second = self.pieces(flat)
        out = _linear(rows, first, first_bias)  # (F, R, h or c, B)
        above = []
        if second:
            kept = self._kept(out)
            hidden = torch.sigmoid(out * kept)
            error = _error(_second(hidden, *second), gold, weights)  # (F, R, c, B)
            above = [error @ hidden.transpose(2, 3), error.sum(3)]
            error = (second[0].transpose(2, 3) @ error) * hidden * (1 - hidden) * kept
        else:
            error = _error(out, gold, weights)
        by_first = torch.bmm(error.flatten(1, 2), rows)  # (F, R * (h or c), d)
        gradients = [by_first, error.sum(3), *above]
        return torch.cat([piece.flatten(1) for piece in gradients], dim=1)

    def _kept(self, inner: torch.Tensor) -> torch.Tensor | float:
        if not self._dropout:
            return 1.0
        shape = (1, 1, *inner.shape[2:])
        draws = torch.rand(shape, generator=self._generator, device=inner.device)
        return (draws >= self._dropout).to(inner.dtype) / (1 - self._dropout)


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`(F, R, o, B)` of rows `(F, B, d)`, weight `(F, R, o, d)` and bias `(F, R, o)`."""
    out = torch.baddbmm(bias.flatten(1).unsqueeze(2), weight.flatten(1, 2), rows.transpose(1, 2))
    return out.unflatten(1, bias.shape[1:])


def _second(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`(F, R, c, B)` of hidden units `(F, R, h, B)`, weight `(F, R, c, h)` and bias `(F, R, c)`."""
    return weight @ hidden + bias.unsqueeze(3)


def _error(logits: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The gradient of the weighted cross-entropy by the logits, `(F, R, c, B)`."""
    return torch.softmax(logits, dim=2).sub_(gold).mul_(weights)


class Optimizer(ABC):
    """Changes the parameters of many classifiers at once, some of which may sit out a step.

    `torch.optim` knows one step count and one weight decay a tensor. Here each row of the
    parameters has its own count, and each parameter its own decay. Values are those of
    `torch.optim`.

    # Parameters

    values : parameters `(F, P)`, changed in place by `step`.
    decay : the weight of the L2 penalty of each, `(F, P)`; the penalty's gradient is
        `decay * values`, and goes through the optimiser like the rest, as in `torch.optim`.
    """

    def __init__(self, values: torch.Tensor, decay: torch.Tensor) -> None:
        # One block, so that rows are dropped and put back in one go.
        self._state = torch.stack([values, *[torch.zeros_like(values)] * self.moments])
        self._decay = decay
        self._steps = torch.zeros(len(values), 1, device=values.device)

    moments: int
    """How many running averages there are for each parameter."""

    @property
    def values(self) -> torch.Tensor:
        return self._state[0]

    def step(self, gradient: torch.Tensor, idle: torch.Tensor | None = None) -> None:
        """# Parameters

        gradient : `(F, P)`; overwritten.
        idle : rows, by number, that stay as they are.
        """
        kept = None if idle is None else self._state[:, idle]
        self._steps += 1
        self._update(gradient.addcmul_(self._decay, self.values))
        if kept is not None:
            self._state[:, idle] = kept
            self._steps[idle] -= 1

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these."""
        self._state, self._decay = self._state[:, rows], self._decay[rows]
        self._steps = self._steps[rows]

    @abstractmethod
    def _update(self, gradient: torch.Tensor) -> None: ...


class Adam(Optimizer):
    """Kingma and Ba (2015), algorithm 1, with torch's default settings."""

    moments = 2
    rate, betas = 1e-3, (0.9, 0.999)

    def _update(self, gradient: torch.Tensor) -> None:
        values, first, second = self._state
        one, two = self.betas
        first.lerp_(gradient, 1 - one)
        second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
        # (F, 1) corrections of the averages' start at zero.
        scale = self.rate / (1 - one**self._steps)
        spread = second.sqrt().mul_((1 - two**self._steps).rsqrt()).add_(EPSILON)
        values.addcmul_(first.div(spread), scale, value=-1)


class RMSprop(Optimizer):
    """Tieleman and Hinton (2012), with torch's default settings."""

    moments = 1
    rate, alpha = 1e-2, 0.99

    def _update(self, gradient: torch.Tensor) -> None:
        values, second = self._state
        second.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        values.addcdiv_(gradient, second.sqrt().add_(EPSILON), value=-self.rate)


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop}
"""By the names of SentEval's settings."""
