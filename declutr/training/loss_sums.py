"""Sums of the losses of an epoch, read from the device only when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from declutr.modules.metrics import read_scalars


class LossSums:
    """What the losses of an epoch, and the penalties of the regularizer in them, sum up to.

    They are kept as they are until somebody reads, and then all are copied at once. Sums are made
    step by step in float64, as AllenNLP's trainer makes them: the same to the bit.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin an epoch."""
        self._loss, self._penalty = 0.0, 0.0
        self._unread: list[tuple[int, Sequence[torch.Tensor], Sequence[torch.Tensor]]] = []
        self.batch_loss: float | None = None
        """Of the step that was read last, all its batches together."""
        self.batch_penalty: float | None = None
        """Of the last batch of that step; None without a regularizer."""

    def load(self, sums: Sequence[float]) -> None:
        """Go on from what `read` gave."""
        self.reset()
        self._loss, self._penalty = sums

    def add(
        self, step: int, losses: Sequence[torch.Tensor], penalties: Sequence[torch.Tensor]
    ) -> None:
        """Keep those of the batches of a step, each divided by the number of batches.

        Tensors must not be changed in place afterwards.
        """
        self._unread.append((step, losses, penalties))

    def read(self) -> list[float]:
        """The sums of losses and of penalties so far.

        # Raises

        `ValueError` : a loss is not a number.
        """
        unread, self._unread = self._unread, []
        scalars = [scalar for _, losses, penalties in unread for scalar in (*losses, *penalties)]
        numbers = iter(read_scalars(scalars))
        for step, losses, penalties in unread:
            self.batch_loss = 0.0
            for _ in losses:
                loss = next(numbers)
                if math.isnan(loss):
                    raise ValueError(_nan_loss(step, unread[-1][0]))
                self.batch_loss += loss
            self._loss += self.batch_loss
            for _ in penalties:
                self.batch_penalty = next(numbers)
                self._penalty += self.batch_penalty
        return [self._loss, self._penalty]


def _nan_loss(step: int, last: int) -> str:
    text = f"nan loss encountered in step {step} of the epoch"
    if step < last:
        text += f" ({last} were done until somebody looked)"
    return f"{text}. No checkpoint was written since; --recover goes on from the last one."
