"""What a model tells of its steps: running means, and losses that are not numbers."""

from typing import Any

import torch
from allennlp.models import Model

from declutr.models.metrics import RunningMeans, UnreadLosses, retrieval_accuracy
from declutr.objectives import Objective, alignment, uniformity


class NonFiniteLoss(ValueError):
    """The loss of a training step is not a number."""


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


class RecordedModel(Model):
    """A Model with a record of its steps, in `record`."""

    asked_rarely: bool = False
    """Whether metrics of training are read whenever they are asked for. The trainer "declutr" sets
    this, as it asks only when it wants them; otherwise `get_metrics` reads every tenth time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record = StepRecord()

    @property
    def training_means(self) -> RunningMeans:
        """The metrics of the current epoch of training, for checkpoints."""
        return self.record.training

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Means since the last reset: `contrastive_loss`, `mlm_loss`, `mlm_accuracy`,
        `retrieval_accuracy`, `alignment` and `uniformity`, as far as they are computed, and what
        the objective reports of itself.

        Without `reset`, and unless they are `asked_rarely`, they may be up to 10 steps old where
        the model is not on the CPU.

        # Raises

        `NonFiniteLoss` : as `require_finite`.
        """
        means = self.record.means(self.training)
        if not (reset or (self.asked_rarely and self.training) or means.due()):
            return means.last
        self.require_finite()
        computed = means.compute()
        if reset:
            means.reset()
        return computed

    def require_finite(self) -> None:
        """Look at the losses of training since this was called last.

        In the forward pass the host does not wait for them, unless it computes them itself (CPU).

        # Raises

        `NonFiniteLoss` : one of them is not a finite number.
        """
        broken = self.record.losses.first_broken()
        if broken is None:
            return
        loss, number, last = broken
        place = "" if number == last else f" in training pass {number} of {last}"
        raise NonFiniteLoss(
            f"The loss is {loss}{place}: not a finite number (running means of this epoch: "
            f"{self.record.training.compute()}). Training stops here; the last checkpoint is "
            "kept, and --recover continues from it. Lower the learning rate, or set "
            'precision to "float32".'
        )

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The weights, of which none are written after a step that broke them (`require_finite`:
        whoever writes a checkpoint or the best weights asks for them here)."""
        self.require_finite()
        return super().state_dict(*args, **kwargs)
