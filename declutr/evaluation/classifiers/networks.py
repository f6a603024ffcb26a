"""Small classifiers, many at once: one batched product does for all folds and regularisations.

Cross-validation trains hundreds of classifiers that differ only in which rows they see and in the
weight of their L2 penalty. Those of one fold see the same batches, since SentEval seeds each of
them alike; so F folds of R penalties are one network with parameters `(F, P)`, where P counts the
parameters of R classifiers, and a step costs little more than that of a single classifier.
Gradients are written out: with so little arithmetic a step, autograd would take most of the time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

# Shapes: F folds, R penalties, c classes, h hidden units, d features, B rows a batch. Rows come
# last in what a network computes: softmax then runs over whole vectors, and products are faster
# than with classes last.


class Network(ABC):
    """R classifiers with the same features, whose parameters are one vector of P numbers.

    # Parameters

    shapes : of each parameter, R first.
    """

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        self.shapes = shapes
        self._sizes = [math.prod(shape) for shape in shapes]

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

    @abstractmethod
    def logits(self, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """`(F, R, c, B)` of parameters `(F, P)` and features `(F, B, d)`."""

    @abstractmethod
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


class Logistic(Network):
    """Logistic regression with one weight vector for each class, SentEval's `nhid=0`."""

    def __init__(self, width: int, classes: int, penalties: int) -> None:
        super().__init__([(penalties, classes, width), (penalties, classes)])

    def logits(self, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return _linear(rows, *self.pieces(flat))

    def gradient(
        self, flat: torch.Tensor, rows: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        error = _error(self.logits(flat, rows), gold, weights).flatten(1, 2)  # (F, R * c, B)
        by_weight = torch.bmm(error, rows)  # (F, R * c, d)
        return torch.cat([by_weight.flatten(1), error.sum(2)], dim=1)


class Perceptron(Network):
    """One hidden layer: linear, dropout, sigmoid, linear, in SentEval's order.

    # Parameters

    generator : of dropout. Its draws are shared by folds and penalties.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        classes: int,
        penalties: int,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        below = [(penalties, hidden, width), (penalties, hidden)]
        super().__init__([*below, (penalties, classes, hidden), (penalties, classes)])
        self._dropout, self._generator = dropout, generator

    def logits(self, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        first, first_bias, second, second_bias = self.pieces(flat)
        hidden = torch.sigmoid(_linear(rows, first, first_bias))
        return second @ hidden + second_bias.unsqueeze(3)

    def gradient(
        self, flat: torch.Tensor, rows: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        first, first_bias, second, second_bias = self.pieces(flat)
        inner = _linear(rows, first, first_bias)  # (F, R, h, B)
        kept = self._kept(inner)
        hidden = torch.sigmoid(inner * kept)
        error = _error(second @ hidden + second_bias.unsqueeze(3), gold, weights)  # (F, R, c, B)
        by_second = error @ hidden.transpose(2, 3)  # (F, R, c, h)
        below = (second.transpose(2, 3) @ error) * hidden * (1 - hidden) * kept  # (F, R, h, B)
        by_first = torch.bmm(below.flatten(1, 2), rows)  # (F, R * h, d)
        gradients = [by_first, below.sum(3), by_second, error.sum(3)]
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


def _error(logits: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The gradient of the weighted cross-entropy by the logits, `(F, R, c, B)`."""
    return torch.softmax(logits, dim=2).sub_(gold).mul_(weights)
