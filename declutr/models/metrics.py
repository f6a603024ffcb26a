"""What is noted of training: numbers that stay on the device until somebody looks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn.functional import normalize

from declutr.objectives import Objective

READ_EVERY = 10
"""Steps between two reads where the host would have to wait for the device."""

# Where nobody reads; each keeps a little of the device's memory.
_MOST_UNREAD = 1000
_MOST_UNREAD_LOSSES = 10 * READ_EVERY


class RunningMeans:
    """Weighted means by name.

    A value on a device is kept as it is until somebody reads, and then all are copied at once: to
    record one starts nothing on the device and waits for nothing. On the CPU they are summed at
    once. Sums are in float64.

    # Parameters

    keep : whether values on the CPU are kept as well, as those on a device are.
    """

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._totals: dict[str, tuple[float, float]] = {}  # sum of weight * value, sum of weight
        self._unread: list[tuple[str, torch.Tensor, torch.Tensor | float]] = []
        self._last: dict[str, float] = {}
        self._asked = 0

    def record(self, name: str, value: torch.Tensor, weight: torch.Tensor | float = 1.0) -> None:
        """Add a value; one on a device must not be changed in place afterwards."""
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
        """The means so far, of names with a weight above 0."""
        self._read()
        totals = sorted(self._totals.items())
        self._last = {name: total / weight for name, (total, weight) in totals if weight}
        return dict(self._last)

    def due(self) -> bool:
        """Whether somebody who asks at every step should `compute` now: the first time, every
        `READ_EVERY` times, and always where that needs no wait. Else `last` will do."""
        asked, self._asked = self._asked, self._asked + 1
        return not self._unread or asked % READ_EVERY == 0

    @property
    def last(self) -> dict[str, float]:
        """What `compute` gave last."""
        return dict(self._last)

    def state_dict(self) -> dict[str, list[float]]:
        """Sums and weights by name."""
        self._read()
        return {name: list(pair) for name, pair in self._totals.items()}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Continue from a `state_dict`."""
        self.reset()
        self._totals = {name: (total, weight) for name, (total, weight) in state.items()}

    def reset(self) -> None:
        """Forget everything."""
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
    """Losses of training steps, and whether they are finite numbers.

    Those on a device are kept, and looked at later all at once.

    # Parameters

    keep : whether losses on the CPU are kept as well.
    """

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._losses: list[torch.Tensor] = []
        self._seen = 0

    def add(self, loss: torch.Tensor) -> bool:
        """Take one; returns whether to look now: on the CPU, or because nobody did for long."""
        self._losses.append(loss.detach())
        at_once = loss.device.type == "cpu" and not self._keep
        return at_once or len(self._losses) >= _MOST_UNREAD_LOSSES

    def first_broken(self) -> tuple[float, int, int] | None:
        """The first that is not finite, its number, and the number of the last one; None if all are
        finite.

        They count from 1, from the first that was ever taken. Each is looked at once.
        """
        losses, self._losses = read_scalars(self._losses), []
        before, self._seen = self._seen, self._seen + len(losses)
        for number, loss in enumerate(losses, start=before + 1):
            if not math.isfinite(loss):
                return loss, number, self._seen
        return None


def read_scalars(scalars: Sequence[torch.Tensor]) -> list[float]:
    """The numbers of tensors of one element, those on a device by one copy from it.

    Each is exactly what `item()` gives, whatever their types (but float64 is rounded on devices
    that do not have it).
    """
    on_device = [scalar for scalar in scalars if scalar.device.type != "cpu"]
    read = iter(read_together(on_device) if on_device else ())
    return [float(s) if s.device.type == "cpu" else next(read) for s in scalars]


def read_together(scalars: Sequence[torch.Tensor]) -> list[float]:
    """What `read_scalars` does where a copy takes long: on every device but the CPU."""
    places: dict[torch.dtype, list[int]] = {}
    for place, scalar in enumerate(scalars):
        places.setdefault(scalar.dtype, []).append(place)
    widest = torch.float32 if scalars[0].device.type == "mps" else torch.float64
    stacked = [
        torch.stack([scalars[i].reshape(()) for i in same]).to(widest) for same in places.values()
    ]
    numbers: list[float] = torch.cat(stacked).tolist()
    order = [place for same in places.values() for place in same]
    return [number for _, number in sorted(zip(order, numbers, strict=True))]


def retrieval_accuracy(anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """The share of positives whose nearest anchor, by cosine, is their own.

    `anchors` and `positives` are raw `(N, d)`. Chance is 1 / N, so values of different N do not
    compare.
    """
    similarity = normalize(positives, dim=-1) @ normalize(anchors, dim=-1).T  # (N, N)
    own = torch.arange(similarity.size(0), device=similarity.device)
    return (similarity.argmax(dim=1) == own).double().mean()


class StepRecord:
    """Metrics of training and of validation, and the losses of training steps."""

    def __init__(self) -> None:
        self.training, self.validation = RunningMeans(), RunningMeans()
        self.losses = UnreadLosses()  # of training

    def means(self, training: bool) -> RunningMeans:
        """Those of training, or of validation."""
        return self.training if training else self.validation

    def masked_lm(
        self, loss: torch.Tensor, accuracy: torch.Tensor, masked: torch.Tensor, training: bool
    ) -> None:
        """Record masked language modelling of so many masked tokens."""
        self.means(training).record("mlm_loss", loss, masked)
        self.means(training).record("mlm_accuracy", accuracy, masked)

    def geometry(self, views: dict[str, torch.Tensor], training: bool) -> None:
        """Record how embeddings `(N, d)` of two views lie, if there are two."""
        from declutr.objectives import alignment, uniformity  # embedding needs neither

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
        """Record the loss of an objective, and what it says of itself."""
        means = self.means(training)
        means.record("contrastive_loss", loss)
        for name, value in getattr(objective, "last_terms", {}).items():
            means.record(f"{name}_term", value)
        for name, value in getattr(objective, "last_metrics", {}).items():
            means.record(name, value, float(rows))
