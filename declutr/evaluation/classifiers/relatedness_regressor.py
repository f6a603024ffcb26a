"""SentEval's trained similarity: a five-class softmax over features of two sentence embeddings."""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch

from declutr.evaluation.classifiers.networks import seeded_linear
from declutr.evaluation.scores import pearson

CLASSES = 5
"""The number of classes, which stand for the scores 1 to 5."""
BATCH = 64
"""The number of pairs in a batch."""
EPOCHS_A_LOOK = 50
"""The number of epochs between two evaluations on the development pairs."""
MAX_EPOCH = 1000
"""The most epochs of training."""
TENACITY = 3
"""The number of evaluations without improvement that are allowed in total."""


class Rated(NamedTuple):
    """The features of pairs with their gold scores."""

    features: torch.Tensor
    """The features `[|u - v|, u * v]` of n pairs, `(n, 2d)` float32."""
    gold: np.ndarray
    """The gold scores, `(n,)`, from 0 to 5."""


def class_targets(gold: np.ndarray) -> np.ndarray:
    """Return the target distributions `(n, 5)` of scores `(n,)` (Tai et al., 2015, equation 15).

    A score y has 1 - (y - floor(y)) in class floor(y) and the rest in the next class. There is no
    class 0: as in SentEval, the targets of scores below 1 do not sum to 1.

    >>> class_targets(np.array([3.75])).tolist()
    [[0.0, 0.0, 0.25, 0.75, 0.0]]
    """
    floor = np.floor(gold)
    classes = np.arange(1, CLASSES + 1)
    targets = np.where(classes == floor[:, None], (floor - gold + 1)[:, None], 0)
    targets = np.where(classes == floor[:, None] + 1, (gold - floor)[:, None], targets)
    return targets.astype(np.float32)


class Predicted(NamedTuple):
    """The scores between 1 and 5 that the best model on the development pairs predicts."""

    dev: np.ndarray
    """The predicted scores of the development pairs."""
    test: np.ndarray
    """The predicted scores of the test pairs."""


def trained_relatedness(
    train: Rated,
    dev: Rated,
    test: torch.Tensor,
    seed: int,
    device: str = "cpu",
    max_epoch: int = MAX_EPOCH,
) -> Predicted:
    """Train a linear layer with a softmax to predict scores, as SentEval does.

    The loss is the squared error to the class targets, the optimizer is Adam, a batch has 64 pairs.
    Every 50 epochs the model is evaluated by the Pearson correlation of its expected class with the
    gold scores of `dev`. Training ends at the fourth evaluation without improvement in total:
    SentEval never resets that count, and published scores come from it.

    # Parameters

    train : training pairs in SentEval's order, on which the draws of batches depend.
    dev : development pairs.
    test : features of the test pairs, `(n, 2d)`.
    seed : the seed of the initial weights and of the order of pairs; both are the very numbers that
        SentEval draws.
    device : where to train.
    max_epoch : the most epochs of training.
    """
    model = _Softmax(train.features.shape[1], torch.Generator().manual_seed(seed), device)
    draw = np.random.RandomState(seed)
    features, dev_features = train.features.to(device), dev.features.to(device)
    targets = torch.from_numpy(class_targets(train.gold)).to(device)
    best, best_weights, patience = -1.0, deepcopy(model.linear.state_dict()), TENACITY
    for _ in range(0, max_epoch + 1, EPOCHS_A_LOOK):
        for _ in range(EPOCHS_A_LOOK):
            model.fit_epoch(features, targets, torch.from_numpy(draw.permutation(len(features))))
        correlation = np.nan_to_num(pearson(model.expected(dev_features), dev.gold))
        if correlation > best:
            best, best_weights = correlation, deepcopy(model.linear.state_dict())
        elif patience == 0:
            break
        else:
            patience -= 1
    model.linear.load_state_dict(best_weights)
    return Predicted(model.expected(dev_features), model.expected(test.to(device)))


class _Softmax:
    """A model softmax(W x + b), trained to predict class targets.

    The gradient is written out, and batches are gathered in memory that is reused. This halves the
    time of an epoch compared to autograd, and there are hundreds of epochs.
    """

    def __init__(self, inputs: int, rng: torch.Generator, device: str) -> None:
        self.linear = seeded_linear(inputs, CLASSES, rng).to(device)
        self._adam = torch.optim.Adam(self.linear.parameters(), fused=True)

    @torch.no_grad()
    def fit_epoch(self, features: torch.Tensor, targets: torch.Tensor, order: torch.Tensor) -> None:
        """Make a step for every 64 rows `(n, f)`, targets `(n, 5)`, in the given order `(n,)`."""
        order = order.to(features.device)
        space = features.new_empty(min(BATCH, len(features)), features.shape[1])
        for rows in order.split(BATCH):
            x = torch.index_select(features, 0, rows, out=space[: len(rows)])  # (b, f)
            shares = self._shares(x)  # (b, 5)
            # L = mean (p - y)^2; dL/dz = p (g - sum g p), where g = dL/dp
            slope = (shares - targets[rows]) * (2 / shares.numel())
            slope = shares * (slope - (slope * shares).sum(dim=1, keepdim=True))
            self.linear.weight.grad, self.linear.bias.grad = slope.T @ x, slope.sum(dim=0)
            self._adam.step()

    def _shares(self, features: torch.Tensor) -> torch.Tensor:
        return self.linear(features).softmax(dim=-1)

    @torch.no_grad()
    def expected(self, features: torch.Tensor) -> np.ndarray:
        """Return the expected class of each row, `(n,)` float64, for features `(n, f)`."""
        classes = torch.arange(1, CLASSES + 1, dtype=torch.float64)
        return (self._shares(features).double().cpu() @ classes).numpy()
