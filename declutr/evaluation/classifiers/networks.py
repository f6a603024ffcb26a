"""Many small classifiers that are trained at once, and their optimizers.

Cross-validation trains hundreds of classifiers that differ only in the rows they see and in the
weight of their L2 penalty. Classifiers of the same fold see the same batches, because SentEval
seeds each of them alike. F folds with R penalties each are therefore one network with parameters
`(F, P)`, where P counts the parameters of R classifiers, and a step costs little more than a step
of one classifier. Gradients are written out: with so little arithmetic in a step, autograd would
take most of the time.
"""

import math
from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import nn

EPSILON = 1e-8
"""The term that keeps the denominators of optimizers above 0, as in torch."""

# Shapes: F folds, R penalties, c classes, h hidden units, d features, B rows in a batch. Rows are
# the last dimension of all that a network computes, because softmax and matrix products are faster
# that way than with classes last.


def seeded_linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Make a linear layer with torch's initial distribution, drawn from a generator."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


class Network:
    """R classifiers with the same features, whose parameters are one vector of P numbers.

    Each is a logistic regression with one weight vector for each class (SentEval's `nhid=0`), or a
    perceptron with linear, dropout, sigmoid and linear layers, in SentEval's order.

    # Parameters

    width : the number of features d.
    classes : the number of classes c.
    penalties : the number of classifiers R.
    hidden : the number of hidden units h; 0 for logistic regression.
    dropout : the probability of dropping a hidden unit in training.
    generator : the source of dropout masks, which folds and penalties share.
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
        """The shapes of weights and biases, with R as the first dimension."""
        for inputs, outputs in pairwise([width, hidden, classes] if hidden else [width, classes]):
            self.shapes += [(penalties, outputs, inputs), (penalties, outputs)]
        self._sizes = [math.prod(shape) for shape in self.shapes]
        self._dropout, self._generator = dropout, generator

    def pieces(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return views `(F, *shape)` of parameters `(F, P)`, one for each weight and bias."""
        parts = flat.split(self._sizes, dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def owner(self) -> torch.Tensor:
        """Return the number of the classifier that each parameter belongs to, `(P,)`."""
        owners = [
            torch.arange(shape[0]).repeat_interleave(size // shape[0])
            for shape, size in zip(self.shapes, self._sizes, strict=True)
        ]
        return torch.cat(owners)

    def initial(self, generator: torch.Generator) -> torch.Tensor:
        """Draw initial parameters `(P,)` as `torch.nn.Linear` does, equal for all classifiers."""
        drawn = []
        for weight, bias in zip(self.shapes[::2], self.shapes[1::2], strict=True):
            bound = 1 / math.sqrt(weight[-1])
            for shape in (weight, bias):
                one = torch.empty(shape[1:]).uniform_(-bound, bound, generator=generator)
                drawn.append(one.expand(shape).reshape(-1))
        return torch.cat(drawn)

    def logits(self, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return logits `(F, R, c, B)` for parameters `(F, P)` and features `(F, B, d)`."""
        first, first_bias, *second = self.pieces(flat)
        out = _linear(rows, first, first_bias)
        return _second(torch.sigmoid(out), *second) if second else out

    def gradient(
        self, flat: torch.Tensor, rows: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of the weighted sum of cross-entropies over rows.

        # Parameters

        flat : parameters, `(F, P)`.
        rows : features, `(F, B, d)`.
        gold : one-hot vectors of the gold classes, `(F, 1, c, B)`.
        weights : weights of rows, `(F, 1, 1, B)`: 1 / n for a mean over n rows, 0 for padding.

        # Returns

        The gradient with respect to each parameter, `(F, P)`.
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
    """Apply weights `(F, R, o, d)` and biases `(F, R, o)` to rows `(F, B, d)`: `(F, R, o, B)`."""
    out = torch.baddbmm(bias.flatten(1).unsqueeze(2), weight.flatten(1, 2), rows.transpose(1, 2))
    return out.unflatten(1, bias.shape[1:])


def _second(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply weights `(F, R, c, h)` and biases `(F, R, c)` to hidden units: `(F, R, c, B)`."""
    return weight @ hidden + bias.unsqueeze(3)


def _error(logits: torch.Tensor, gold: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the weighted cross-entropy with respect to logits `(F, R, c, B)`."""
    return torch.softmax(logits, dim=2).sub_(gold).mul_(weights)


class Optimizer(ABC):
    """An optimizer for many classifiers at once, some of which may be idle in a step.

    Unlike in `torch.optim`, each row of the parameters has a step count of its own, and each
    parameter a weight decay of its own. The results are those of `torch.optim`.

    # Parameters

    values : parameters `(F, P)`.
    decay : the weight of the L2 penalty of each parameter, `(F, P)`. As in `torch.optim`, the
        gradient of the penalty, `decay * values`, is added to the gradient of the loss.
    """

    def __init__(self, values: torch.Tensor, decay: torch.Tensor) -> None:
        # One tensor, so that rows can be dropped and restored in one operation.
        self._state = torch.stack([values, *[torch.zeros_like(values)] * self.moments])
        self._decay = decay
        self._steps = torch.zeros(len(values), 1, device=values.device)

    moments: int
    """The number of running averages of each parameter."""

    @property
    def values(self) -> torch.Tensor:
        """The parameters, `(F, P)`."""
        return self._state[0]

    def step(self, gradient: torch.Tensor, idle: torch.Tensor | None = None) -> None:
        """Update the parameters with one optimizer step.

        # Parameters

        gradient : the gradient, `(F, P)`; it is overwritten.
        idle : numbers of rows that remain unchanged.
        """
        kept = None if idle is None else self._state[:, idle]
        self._steps += 1
        self._update(gradient.addcmul_(self._decay, self.values))
        if kept is not None:
            self._state[:, idle] = kept
            self._steps[idle] -= 1

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows of the parameters but these."""
        self._state, self._decay = self._state[:, rows], self._decay[rows]
        self._steps = self._steps[rows]

    @abstractmethod
    def _update(self, gradient: torch.Tensor) -> None: ...


class Adam(Optimizer):
    """Adam with torch's default settings (Kingma and Ba, 2015, algorithm 1)."""

    moments = 2
    rate, betas = 1e-3, (0.9, 0.999)

    def _update(self, gradient: torch.Tensor) -> None:
        values, first, second = self._state
        one, two = self.betas
        first.lerp_(gradient, 1 - one)
        second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
        # Corrections `(F, 1)` for running averages that start at zero.
        scale = self.rate / (1 - one**self._steps)
        spread = second.sqrt().mul_((1 - two**self._steps).rsqrt()).add_(EPSILON)
        values.addcmul_(first.div(spread), scale, value=-1)


class RMSprop(Optimizer):
    """RMSprop with torch's default settings (Tieleman and Hinton, 2012)."""

    moments = 1
    rate, alpha = 1e-2, 0.99

    def _update(self, gradient: torch.Tensor) -> None:
        values, second = self._state
        second.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        values.addcdiv_(gradient, second.sqrt().add_(EPSILON), value=-self.rate)


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop}
"""Optimizers by the names that SentEval's settings give them."""
