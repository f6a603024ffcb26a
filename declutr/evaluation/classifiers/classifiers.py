"""The classifiers that SentEval trains on top of embeddings, and its search for their penalty.

What is kept of SentEval's `classifier.py`, so that numbers can be held against published ones:

- Training looks at the development set every `epoch_size` passes over the data and keeps the best
  classifier. Its patience counter never resets: the look without an improvement that is number
  `tenacity + 1` *in all*, not in a row, ends training. That is a fault, but every published number
  has it, and longer training would change them.
- The loss is the mean over a batch. SentEval asks for the sum by an attribute that torch ignores
  since 0.4.1, so papers have the mean; it matters beside an L2 penalty.
- Each classifier is seeded alike. Initial weights and the order of batches are the very numbers
  SentEval draws (torch's CPU generator and numpy's `RandomState`); only dropout differs.

What differs is speed: all classifiers of a search are trained at once (see `networks`), and one
that would be trained a second time on the same data is not.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.classifiers.networks import Logistic, Network, Perceptron
from declutr.evaluation.classifiers.optimizers import OPTIMIZERS, Optimizer
from declutr.evaluation.task import Protocol

Rows = Sequence[np.ndarray]
"""Of each fold, numbers of items."""

HELD_OUT = 0.05
"""The share of the data that stands in for a development set where there is none (SentEval)."""

BLOCK = 4096
"""How many items are classified at once."""

SKLEARN_ITERATIONS = 1000
"""At most; scikit-learn's default, 100, leaves large embeddings unconverged."""


@dataclass(frozen=True)
class Found:
    """Classifiers trained on F folds with R penalties each."""

    accuracy: np.ndarray
    """On the development rows, between 0 and 1, `(F, R)`."""
    correct: list[np.ndarray]
    """Of each fold, which development rows are classified rightly, `(n, R)`."""
    predict: Callable[[int, int, np.ndarray], np.ndarray]
    """The classes `(n,)` that a fold's classifier with a penalty gives to rows `(n,)`."""


class Learner(ABC):
    """Trains classifiers on rows of features.

    # Parameters

    features, labels : of n items; labels `(n,)` are 0 ... classes - 1.
    protocol : SentEval's settings.
    """

    grid: Sequence[float]
    """The penalties to choose from, in the classifier's own terms."""
    kfold_grid: Sequence[float]
    """The same for tasks that have a test set and are cross-validated for the penalty alone."""
    unpenalised: float
    """So weak a penalty that it is none."""

    def __init__(
        self, features: Features, labels: np.ndarray, classes: int, protocol: Protocol
    ) -> None:
        self.labels, self.classes, self.protocol = labels, classes, protocol
        self.features = features

    @abstractmethod
    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        """A classifier for each fold and penalty.

        # Parameters

        train, dev : of each of F folds, rows to train on and to look at.
        penalties : `(F, R)`.
        """

    @abstractmethod
    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        """A classifier for each fold with its own penalty `(F,)`, without a development set."""


class TorchLearner(Learner):
    """SentEval's logistic regression or perceptron. A penalty is a weight decay."""

    grid = kfold_grid = tuple(10.0**power for power in range(-5, -1))
    unpenalised = 1e-9

    def __init__(
        self, features: Features, labels: np.ndarray, classes: int, protocol: Protocol
    ) -> None:
        super().__init__(features, labels, classes, protocol)
        if protocol.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"Unknown optimizer {protocol.optimizer!r}; known: {sorted(OPTIMIZERS)}."
            )
        self.features = features.to(protocol.device)
        self._gold = torch.from_numpy(labels.astype(np.int64)).to(protocol.device)
        self._one_hot = torch.eye(classes, device=protocol.device)

    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        return self._fit(train, dev, penalties, self._draws(len(train)))

    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        draws = self._draws(len(train))
        orders = [
            rows[draw.permutation(len(rows))] for rows, draw in zip(train, draws, strict=True)
        ]
        held = [max(1, int(HELD_OUT * len(rows))) for rows in orders]
        dev = [rows[:count] for rows, count in zip(orders, held, strict=True)]
        rest = [rows[count:] for rows, count in zip(orders, held, strict=True)]
        return self._fit(rest, dev, penalties[:, None], draws)

    def _fit(
        self,
        train: Rows,
        dev: Rows,
        penalties: np.ndarray,
        draws: list[np.random.RandomState],
    ) -> Found:
        protocol, device = self.protocol, self.protocol.device
        network = self._network(penalties.shape[1])
        owner = network.owner().to(device)
        decay = torch.from_numpy(penalties.astype(np.float32)).to(device)[:, owner]
        initial = network.initial(torch.Generator().manual_seed(protocol.seed))
        optimizer = OPTIMIZERS[protocol.optimizer](initial.to(device).expand(len(train), -1), decay)
        best = _Best(optimizer.values, owner, dev, penalties.shape[1], protocol.tenacity)
        passes = 0
        while best.going and passes <= protocol.max_epoch:
            for _ in range(protocol.epoch_size):
                rows, orders = [train[f] for f in best.going], [draws[f] for f in best.going]
                self._pass(network, optimizer, rows, orders)
            passes += protocol.epoch_size
            right = [
                self._classes(network, values[None], dev[f]) == self.labels[dev[f]][:, None]
                for values, f in zip(optimizer.values, best.going, strict=True)
            ]
            left = best.look(optimizer.values, right)
            if len(left) < len(right):
                optimizer.keep(torch.tensor(left, dtype=torch.long, device=device))

        def predict(fold: int, penalty: int, rows: np.ndarray) -> np.ndarray:
            return self._classes(network, best.values[fold, None], rows)[:, penalty]

        return Found(best.accuracy, best.correct, predict)

    def _pass(
        self,
        network: Network,
        optimizer: Optimizer,
        train: Rows,
        draws: list[np.random.RandomState],
    ) -> None:
        """One pass over the data of each fold, in lockstep."""
        batch, device = self.protocol.batch_size, self.protocol.device
        counts = np.array([len(rows) for rows in train])
        steps = -(-int(counts.max()) // batch)
        order = np.zeros((len(train), steps * batch), np.int64)
        for number, (rows, draw) in enumerate(zip(train, draws, strict=True)):
            order[number, : len(rows)] = rows[draw.permutation(len(rows))]
        places = torch.from_numpy(order.reshape(len(train), steps, batch)).to(device)
        places = places.transpose(0, 1).contiguous()  # (steps, F, B)
        gold = self._gold[places]
        even = torch.full((1, 1, 1, 1), 1 / batch, device=device)
        for step in range(steps):
            idle, weights = None, even
            if (step + 1) * batch > counts.min():  # folds differ by a row: so do the last batches
                left = (counts - step * batch).clip(0, batch)
                shares = (np.arange(batch) < left[:, None]) / left.clip(1)[:, None]  # (F, B)
                weights = torch.from_numpy(shares.astype(np.float32))[:, None, None].to(device)
                none = np.flatnonzero(left == 0)
                idle = torch.from_numpy(none).to(device) if len(none) else None
            gradient = network.gradient(
                optimizer.values,
                self.features.rows(places[step]),
                self._one_hot[:, gold[step]].transpose(0, 1).unsqueeze(1),
                weights,
            )
            optimizer.step(gradient, idle)

    def _classes(self, network: Network, values: torch.Tensor, rows: np.ndarray) -> np.ndarray:
        """The classes `(n, R)` that one fold's parameters `(1, P)` give to rows `(n,)`."""
        places = torch.from_numpy(rows).to(self.protocol.device)
        found = [
            network.logits(values, self.features.rows(some[None]))[0].argmax(dim=1).t()
            for some in places.split(BLOCK)
        ]
        return torch.cat(found).cpu().numpy()

    def _network(self, penalties: int) -> Network:
        protocol, width = self.protocol, self.features.width
        if not protocol.hidden:
            return Logistic(width, self.classes, penalties)
        generator = torch.Generator(protocol.device).manual_seed(protocol.seed)
        return Perceptron(
            width, protocol.hidden, self.classes, penalties, protocol.dropout, generator
        )

    def _draws(self, folds: int) -> list[np.random.RandomState]:
        return [np.random.RandomState(self.protocol.seed) for _ in range(folds)]


class _Best:
    """Of classifiers in training, each as it was at its best look at the development rows.

    # Parameters

    values : parameters `(F, P)` before training.
    owner : `(P,)`, see `Network.owner`.
    dev : development rows of each fold.
    penalties : how many classifiers a fold has.
    tenacity : how many looks without an improvement are borne.
    """

    def __init__(
        self, values: torch.Tensor, owner: torch.Tensor, dev: Rows, penalties: int, tenacity: int
    ) -> None:
        self.values, self._owner, self._tenacity = values.clone(), owner, tenacity
        self.accuracy = np.full((len(dev), penalties), -1.0)
        self.correct = [np.zeros((len(rows), penalties), bool) for rows in dev]
        self.going = list(range(len(dev)))
        """Folds with a classifier whose time is not over."""
        self._misses = np.zeros((len(dev), penalties), np.int64)

    def look(self, values: torch.Tensor, right: list[np.ndarray]) -> list[int]:
        """Keep what is better than before.

        # Parameters

        values : parameters of the folds that are going, `(f, P)`.
        right : of each of them, which rows are classified rightly, `(n, R)`.

        # Returns

        The places, in `values`, of those that go on.
        """
        for place, fold in enumerate(self.going):
            now = right[place].mean(axis=0)
            # A classifier whose time is over trains on with its fold, and is not looked at.
            better = (self._misses[fold] <= self._tenacity) & (now > self.accuracy[fold])
            self.accuracy[fold][better] = now[better]
            self.correct[fold][:, better] = right[place][:, better]
            taken = torch.from_numpy(better).to(values.device)[self._owner]
            self.values[fold] = torch.where(taken, values[place], self.values[fold])
            self._misses[fold] += ~better
        on = (self._misses[self.going] <= self._tenacity).any(axis=1)
        left = np.flatnonzero(on).tolist()
        self.going = [self.going[place] for place in left]
        return left


class SklearnLearner(Learner):
    """scikit-learn's logistic regression. A penalty is its `C`, an inverse weight."""

    grid = tuple(2.0**power for power in range(-2, 4))
    kfold_grid = tuple(2.0**power for power in range(-1, 6))
    unpenalised = 1e9

    def __init__(
        self, features: Features, labels: np.ndarray, classes: int, protocol: Protocol
    ) -> None:
        super().__init__(features, labels, classes, protocol)
        if protocol.hidden:
            raise ValueError(
                f"scikit-learn's logistic regression has no hidden layer, got hidden="
                f"{protocol.hidden}; take classifier='torch'."
            )

    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        models = [
            self._path(rows, strengths) for rows, strengths in zip(train, penalties, strict=True)
        ]

        def predict(fold: int, penalty: int, rows: np.ndarray) -> np.ndarray:
            return models[fold][penalty].predict(self.features.array(rows))

        correct = [np.zeros((len(rows), penalties.shape[1]), bool) for rows in dev]
        accuracy = np.zeros(penalties.shape)
        for fold, rows in enumerate(dev):
            for number in range(penalties.shape[1]) if len(rows) else ():
                correct[fold][:, number] = predict(fold, number, rows) == self.labels[rows]
                accuracy[fold, number] = correct[fold][:, number].mean()
        return Found(accuracy, correct, predict)

    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        return self.search(train, [np.zeros(0, np.int64)] * len(train), penalties[:, None])

    def _path(self, rows: np.ndarray, strengths: np.ndarray) -> list[LogisticRegression]:
        """One model for each `C`; each starts where the last one ended, which is only faster."""
        x, y = self.features.array(rows), self.labels[rows]
        model = LogisticRegression(
            max_iter=SKLEARN_ITERATIONS, random_state=self.protocol.seed, warm_start=True
        )
        return [copy.deepcopy(model.set_params(C=float(c)).fit(x, y)) for c in strengths]


LEARNERS: dict[str, type[Learner]] = {"torch": TorchLearner, "sklearn": SklearnLearner}


def learner(features: Features, labels: np.ndarray, classes: int, protocol: Protocol) -> Learner:
    """The one that the protocol names.

    # Raises

    `ValueError` : there is none of that name.
    """
    if protocol.classifier not in LEARNERS:
        raise ValueError(f"Unknown classifier {protocol.classifier!r}; known: {sorted(LEARNERS)}.")
    return LEARNERS[protocol.classifier](features, labels, classes, protocol)
