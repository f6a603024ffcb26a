"""SentEval's trained similarity: a five-class softmax over what two embeddings have in common."""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch

from declutr.evaluation.classifiers.networks import seeded_linear
from declutr.evaluation.scores import pearson

CLASSES = 5
BATCH = 64
EPOCHS_A_LOOK = 50
MAX_EPOCH = 1000
TENACITY = 3


class Rated(NamedTuple):
    """Pairs of embeddings with gold scores."""

    features: torch.Tensor
    """`(n, 2d)` float32: `[|u - v|, u * v]`."""
    gold: np.ndarray
    """`(n,)`, from 0 to 5."""


def class_targets(gold: np.ndarray) -> np.ndarray:
    """Scores `(n,)` as shares `(n, 5)` of the two classes beside each (Tai et al., 2015, eq. 15).

    A score of y has 1 - (y - floor y) in class floor y and the rest in the next. There is no class
    0: as in SentEval, scores below 1 have shares that do not sum to 1.
    """
    floor = np.floor(gold)
    classes = np.arange(1, CLASSES + 1)
    targets = np.where(classes == floor[:, None], (floor - gold + 1)[:, None], 0)
    targets = np.where(classes == floor[:, None] + 1, (gold - floor)[:, None], targets)
    return targets.astype(np.float32)


class Predicted(NamedTuple):
    """Scores between 1 and 5 by the model that was best on the development pairs."""

    dev: np.ndarray
    test: np.ndarray


def trained_relatedness(
    train: Rated,
    dev: Rated,
    test: torch.Tensor,
    seed: int,
    device: str = "cpu",
    max_epoch: int = MAX_EPOCH,
) -> Predicted:
    """Fit a linear layer and a softmax to class shares, by squared error and Adam, batches of 64.

    Every 50 epochs Pearson's correlation of the expected class with the gold scores of `dev` is
    looked at. Training ends at the fourth look without an improvement: SentEval never resets that
    count, and published scores come from it.

    # Parameters

    train : pairs in SentEval's order, of which batches are drawn.
    test : features `(n, 2d)`.
    seed : of the first weights and of the order of pairs: the very numbers SentEval draws.
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
    """softmax(W x + b), fitted to shares of classes.

    The gradient is written out, and batches are gathered in one place: an epoch takes about half as
    long as with autograd, and there are hundreds.
    """

    def __init__(self, inputs: int, rng: torch.Generator, device: str) -> None:
        self.linear = seeded_linear(inputs, CLASSES, rng).to(device)
        self._adam = torch.optim.Adam(self.linear.parameters(), fused=True)

    @torch.no_grad()
    def fit_epoch(self, features: torch.Tensor, targets: torch.Tensor, order: torch.Tensor) -> None:
        """A step for every 64 rows of `features` `(n, f)` and `targets` `(n, 5)`, in this order."""
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
        """The mean class of each row: `(n, f)` to `(n,)` float64."""
        classes = torch.arange(1, CLASSES + 1, dtype=torch.float64)
        return (self._shares(features).double().cpu() @ classes).numpy()
