"""Running means that stay on the device until somebody looks."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize


class RunningMeans:
    """Weighted means by name.

    Nothing is copied from the device until `compute`, so recording costs no synchronisation.
    """

    def __init__(self) -> None:
        self._totals: dict[str, torch.Tensor] = {}  # name -> (sum of weight * value, sum of weight)

    def record(self, name: str, value: torch.Tensor, weight: torch.Tensor | float = 1.0) -> None:
        """Add a value."""
        value = value.detach().double() if value.device.type == "cpu" else value.detach().float()
        weight = torch.as_tensor(weight, dtype=value.dtype, device=value.device)
        pair = torch.stack([value * weight, weight])
        known = self._totals.get(name)
        self._totals[name] = pair if known is None else known + pair

    def compute(self) -> dict[str, float]:
        """The means so far, of names with a weight above 0."""
        pairs = {name: self._totals[name].tolist() for name in sorted(self._totals)}
        return {name: total / weight for name, (total, weight) in pairs.items() if weight}

    def state_dict(self) -> dict[str, list[float]]:
        """Sums and weights by name."""
        return {name: pair.tolist() for name, pair in self._totals.items()}

    def load_state_dict(self, state: dict[str, list[float]], device: torch.device) -> None:
        """Continue from a `state_dict`."""
        dtype = torch.float64 if device.type == "cpu" else torch.float32
        self._totals = {
            name: torch.tensor(pair, dtype=dtype, device=device) for name, pair in state.items()
        }

    def reset(self) -> None:
        """Forget everything."""
        self._totals.clear()


def retrieval_accuracy(anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """The share of positives whose nearest anchor, by cosine, is their own.

    `anchors` and `positives` are raw `(N, d)`. Chance is 1 / N, so values of different N do not
    compare.
    """
    similarity = normalize(positives, dim=-1) @ normalize(anchors, dim=-1).T  # (N, N)
    own = torch.arange(similarity.size(0), device=similarity.device)
    return (similarity.argmax(dim=1) == own).double().mean()
