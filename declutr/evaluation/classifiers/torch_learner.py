"""SentEval's own classifiers, trained as SentEval trains them.

Three properties of SentEval's `classifier.py` are kept, so that results compare with published
ones:

- Every `epoch_size` epochs a classifier is evaluated on the development set, and the best one is
  kept. The patience counter is never reset: training ends at evaluation number `tenacity + 1`
  without improvement in total, not in a row. That is a fault, but every published number has it,
  and longer training would change them.
- The loss is the mean over a batch. SentEval asks for the sum by an attribute that torch has
  ignored since 0.4.1, so papers have the mean; the difference matters beside an L2 penalty.
- Every classifier has the same seed. Initial weights and the order of batches are the very numbers
  that SentEval draws (from torch's CPU generator and numpy's `RandomState`); only dropout differs.

What differs is speed: all classifiers of a search are trained at once (see `networks`), and none is
trained a second time on the same data.
"""

import numpy as np
import torch

from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.classifiers.learner import Found, Learner, Rows
from declutr.evaluation.classifiers.networks import OPTIMIZERS, Network, Optimizer
from declutr.evaluation.task import Protocol

HELD_OUT = 0.05
"""The share of the data that replaces a missing development set, as in SentEval."""

BLOCK = 4096
"""The number of items that are classified at once."""

Draws = list[np.random.RandomState]
"""Random states, one for each fold, that draw the order of its batches."""


class TorchLearner(Learner):
    """A learner that trains SentEval's classifiers: logistic regression, or a network of one layer.

    Which of them, and with which optimizer, the protocol says. The penalties that are tried are
    strengths of weight decay. See `Learner` for the parameters and for what methods return.

    # Raises

    `ValueError` : the constructor was given a protocol with an unknown optimizer.
    """

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
        self.features = features.to(protocol.trained_on)
        self._gold = torch.from_numpy(labels.astype(np.int64)).to(protocol.trained_on)
        self._one_hot = torch.eye(classes, device=protocol.trained_on)

    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        return self._fit(train, dev, penalties, self._draws(len(train)))

    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        draws = self._draws(len(train))
        dev, rest = [], []
        for rows, draw in zip(train, draws, strict=True):
            order = rows[draw.permutation(len(rows))]
            held = max(1, int(HELD_OUT * len(rows)))
            dev.append(order[:held])
            rest.append(order[held:])
        return self._fit(rest, dev, penalties[:, None], draws)

    def _fit(self, train: Rows, dev: Rows, penalties: np.ndarray, draws: Draws) -> Found:
        protocol, device = self.protocol, self.protocol.trained_on
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

    def _pass(self, network: Network, optimizer: Optimizer, train: Rows, draws: Draws) -> None:
        """Train one epoch on every fold, step by step in parallel."""
        batch, device = self.protocol.batch_size, self.protocol.trained_on
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
            # Folds differ by a row, and therefore so do their last batches.
            if (step + 1) * batch > counts.min():
                left = (counts - step * batch).clip(0, batch)
                shares = (np.arange(batch) < left[:, None]) / left.clip(1)[:, None]  # (F, B)
                weights = torch.from_numpy(shares.astype(np.float32))[:, None, None].to(device)
                none = np.flatnonzero(left == 0)
                idle = torch.from_numpy(none).to(device) if len(none) else None
            inputs = self.features.rows(places[step])
            wanted = self._one_hot[:, gold[step]].transpose(0, 1).unsqueeze(1)
            gradient = network.gradient(optimizer.values, inputs, wanted, weights)
            optimizer.step(gradient, idle)

    def _classes(self, network: Network, values: torch.Tensor, rows: np.ndarray) -> np.ndarray:
        """Return the classes `(n, R)` of rows `(n,)` for the parameters `(1, P)` of one fold."""
        places = torch.from_numpy(rows).to(self.protocol.trained_on)
        found = [
            network.logits(values, self.features.rows(some[None]))[0].argmax(dim=1).t()
            for some in places.split(BLOCK)
        ]
        return torch.cat(found).cpu().numpy()

    def _network(self, penalties: int) -> Network:
        protocol, width = self.protocol, self.features.width
        generator = torch.Generator(protocol.trained_on).manual_seed(protocol.seed)
        return Network(width, self.classes, penalties, protocol.hidden, protocol.dropout, generator)

    def _draws(self, folds: int) -> Draws:
        return [np.random.RandomState(self.protocol.seed) for _ in range(folds)]


class _Best:
    """The best parameters so far of classifiers in training, judged on their development rows.

    # Parameters

    values : parameters `(F, P)` before training.
    owner : the classifier that each parameter belongs to, `(P,)`; see `Network.owner`.
    dev : the development rows of each fold.
    penalties : the number of classifiers in a fold.
    tenacity : the number of evaluations without improvement that are allowed.
    """

    def __init__(
        self, values: torch.Tensor, owner: torch.Tensor, dev: Rows, penalties: int, tenacity: int
    ) -> None:
        self.values, self._owner, self._tenacity = values.clone(), owner, tenacity
        self.accuracy = np.full((len(dev), penalties), -1.0)
        self.correct = [np.zeros((len(rows), penalties), bool) for rows in dev]
        self.going = list(range(len(dev)))
        """Folds in which at least one classifier has not exhausted its patience."""
        self._misses = np.zeros((len(dev), penalties), np.int64)

    def look(self, values: torch.Tensor, right: list[np.ndarray]) -> list[int]:
        """Store the classifiers that improved, and drop the folds whose training is over.

        # Parameters

        values : parameters of the folds that are in training, `(f, P)`.
        right : for each of these folds, which rows are classified correctly, `(n, R)`.

        # Returns

        The indices, in `values`, of the folds whose training goes on.
        """
        for place, fold in enumerate(self.going):
            now = right[place].mean(axis=0)
            # A classifier without patience left trains on with its fold, but is not evaluated.
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
