"""Metrics and losses of training steps, which stay on the device until they are read."""

import math
from collections.abc import Sequence

import torch
from torch.nn.functional import normalize

from declutr.objectives import Objective

READ_EVERY = 10
"""The number of steps between two reads for which the host waits for the device."""

# The most values that are kept unread, since each occupies a little memory of the device.
_MOST_UNREAD = 1000
_MOST_UNREAD_LOSSES = 10 * READ_EVERY


class RunningMeans:
    """Weighted running means of named values.

    Values on a device are kept until the means are read, and then copied to the host all together,
    so that `record` starts no work on the device and does not wait for it. Values on the CPU are
    added immediately. Sums are in float64.

    >>> means = RunningMeans()
    >>> means.record("loss", torch.tensor(1.0), weight=3.0)
    >>> means.record("loss", torch.tensor(5.0))
    >>> means.compute()
    {'loss': 2.0}

    # Parameters

    keep : True keeps values on the CPU until they are read, as if they were on a device.
    """

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._totals: dict[str, tuple[float, float]] = {}  # sum of weight * value, sum of weight
        self._unread: list[tuple[str, torch.Tensor, torch.Tensor | float]] = []
        self._last: dict[str, float] = {}
        self._asked = 0

    def record(self, name: str, value: torch.Tensor, weight: torch.Tensor | float = 1.0) -> None:
        """Add a value to the mean of a name.

        # Parameters

        name : the name of the mean.
        value : a scalar, which must not be changed in place afterwards if it is on a device.
        weight : the weight of the value in the mean.
        """
        if value.device.type == "cpu" and not self._keep:
            self._add(name, value.item(), float(weight))
            return
        if isinstance(weight, torch.Tensor):
            same_device = weight.device == value.device
            weight = weight.detach() if same_device else float(weight)
        self._unread.append((name, value.detach(), weight))
        if len(self._unread) >= _MOST_UNREAD:
            self._read()

    def compute(self) -> dict[str, float]:
        """Return the means so far, without names whose total weight is 0."""
        self._read()
        totals = sorted(self._totals.items())
        self._last = {name: total / weight for name, (total, weight) in totals if weight}
        return dict(self._last)

    @property
    def names(self) -> set[str]:
        """The names that values have been recorded for, which need not be read for this."""
        return {*self._totals, *(name for name, *_ in self._unread)}

    def due(self) -> bool:
        """Return whether a caller that asks at every step should call `compute` and not use `last`.

        That is so at the first call, every `READ_EVERY` calls, and whenever nothing is unread.
        """
        asked, self._asked = self._asked, self._asked + 1
        return not self._unread or asked % READ_EVERY == 0

    @property
    def last(self) -> dict[str, float]:
        """The means that `compute` returned last."""
        return dict(self._last)

    def state_dict(self) -> dict[str, list[float]]:
        """Return the weighted sum and the total weight of each name."""
        self._read()
        return {name: list(pair) for name, pair in self._totals.items()}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restore the sums and weights of a `state_dict`."""
        self.reset()
        self._totals = {name: (total, weight) for name, (total, weight) in state.items()}

    def reset(self) -> None:
        """Remove all values and means."""
        self._totals.clear()
        self._unread.clear()
        self._last, self._asked = {}, 0

    def _add(self, name: str, value: float, weight: float) -> None:
        known = self._totals.get(name)
        added = value * weight, weight
        self._totals[name] = added if known is None else (known[0] + added[0], known[1] + weight)

    def _read(self) -> None:
        unread, self._unread = self._unread, []
        weights = [weight for _, _, weight in unread if isinstance(weight, torch.Tensor)]
        numbers = read_scalars([value for _, value, _ in unread] + weights)
        values, read = numbers[: len(unread)], iter(numbers[len(unread) :])
        for (name, _, weight), value in zip(unread, values, strict=True):
            self._add(name, value, next(read) if isinstance(weight, torch.Tensor) else weight)


class UnreadLosses:
    """Losses of training steps that are still to be checked for values that are not finite.

    Losses on a device are kept, and checked later all together.

    # Parameters

    keep : True keeps losses on the CPU as well.
    """

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._losses: list[torch.Tensor] = []
        self._seen = 0

    def add(self, loss: torch.Tensor) -> bool:
        """Add a loss, and return whether to check now: it is on the CPU, or many are unread."""
        self._losses.append(loss.detach())
        at_once = loss.device.type == "cpu" and not self._keep
        return at_once or len(self._losses) >= _MOST_UNREAD_LOSSES

    def first_broken(self) -> tuple[float, int, int] | None:
        """Check the losses that were added since the last call.

        # Returns

        The first loss that is not finite, its number, and the number of the last loss; `None` if
        all are finite. Losses are numbered from 1, over all calls.
        """
        losses, self._losses = read_scalars(self._losses), []
        before, self._seen = self._seen, self._seen + len(losses)
        for number, loss in enumerate(losses, start=before + 1):
            if not math.isfinite(loss):
                return loss, number, self._seen
        return None


def read_scalars(scalars: Sequence[torch.Tensor]) -> list[float]:
    """Return the values of tensors of one element, with one copy for all those on a device.

    Each value is exactly the one that `item()` returns, for every dtype; only MPS devices, which
    have no float64, round to float32.
    """
    on_device = [scalar for scalar in scalars if scalar.device.type != "cpu"]
    read = iter(read_together(on_device) if on_device else ())
    return [float(s) if s.device.type == "cpu" else next(read) for s in scalars]


def read_together(scalars: Sequence[torch.Tensor]) -> list[float]:
    """Return the values of tensors of one element on a device, with a single copy to the host."""
    places: dict[torch.dtype, list[int]] = {}
    for place, scalar in enumerate(scalars):
        places.setdefault(scalar.dtype, []).append(place)
    widest = torch.float32 if scalars[0].device.type == "mps" else torch.float64
    alike = ([scalars[i].reshape(()) for i in same] for same in places.values())
    stacked = [torch.stack(same).to(widest) for same in alike]
    numbers: list[float] = torch.cat(stacked).tolist()
    order = [place for same in places.values() for place in same]
    return [number for _, number in sorted(zip(order, numbers, strict=True))]


def retrieval_accuracy(anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Return the share of positives whose nearest anchor by cosine similarity is their own.

    The share is 1 / N by chance, so values for different N are not comparable.

    # Parameters

    anchors, positives : `(N, d)`, not necessarily normalised. Row i of both is a pair.
    """
    similarity = normalize(positives, dim=-1) @ normalize(anchors, dim=-1).T  # (N, N)
    own = torch.arange(similarity.size(0), device=similarity.device)
    return (similarity.argmax(dim=1) == own).double().mean()


class StepRecord:
    """Metrics of training and of validation, and the losses of training steps."""

    def __init__(self) -> None:
        self.training, self.validation = RunningMeans(), RunningMeans()
        self.losses = UnreadLosses()  # of training steps

    def means(self, training: bool) -> RunningMeans:
        """Return the running means of training or of validation."""
        return self.training if training else self.validation

    def tokens(
        self,
        task: str,
        loss: torch.Tensor,
        accuracy: torch.Tensor,
        predicted: torch.Tensor,
        training: bool,
    ) -> None:
        """Record the mean loss and accuracy of a task, such as "mlm", over `predicted` tokens."""
        self.means(training).record(f"{task}_loss", loss, predicted)
        self.means(training).record(f"{task}_accuracy", accuracy, predicted)

    def geometry(self, views: dict[str, torch.Tensor], training: bool) -> None:
        """Record retrieval accuracy, alignment and uniformity of two views `(N, d)`.

        With one view, only uniformity is recorded.
        """
        from declutr.objectives import alignment, uniformity  # needed in training only

        means = self.means(training)
        anchors, pairs = views["anchors"].detach(), float(views["anchors"].size(0))
        positives = views.get("positives", views.get("keys"))
        if positives is not None and positives.size(1) == anchors.size(1):
            positives = positives.detach()
            means.record("retrieval_accuracy", retrieval_accuracy(anchors, positives), pairs)
            means.record("alignment", alignment(anchors, positives), pairs)
        if pairs > 1:
            means.record("uniformity", uniformity(anchors), pairs)

    def contrastive(
        self, loss: torch.Tensor, objective: Objective, rows: int, training: bool
    ) -> None:
        """Record the loss of an objective, and the terms and metrics that it reports."""
        means = self.means(training)
        means.record("contrastive_loss", loss)
        for name, value in getattr(objective, "last_terms", {}).items():
            means.record(f"{name}_term", value)
        for name, value in getattr(objective, "last_metrics", {}).items():
            means.record(name, value, float(rows))
