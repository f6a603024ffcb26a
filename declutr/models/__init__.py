"""A Model that records metrics of its steps, and fails if a loss is not a finite number."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from allennlp.models import Model

if TYPE_CHECKING:
    from declutr.models.metrics import RunningMeans, StepRecord


class NonFiniteLoss(ValueError):
    """An error for a loss of a training step that is not a finite number."""


class RecordedModel(Model):
    """A Model that records metrics and losses of its steps in `record`."""

    asked_rarely: bool = False
    """Whether `get_metrics` reads the metrics of training at every call.

    The trainer "declutr" sets this, because it calls `get_metrics` only when it needs new metrics.
    For other trainers, which call it at every step, `get_metrics` reads every tenth time.
    """

    @cached_property
    def record(self) -> "StepRecord":
        """The metrics of training and validation, and the losses of training steps."""
        from declutr.models.metrics import StepRecord  # needed in training only

        return StepRecord()

    @property
    def training_means(self) -> "RunningMeans":
        """The metrics of the current training epoch, which checkpoints save."""
        return self.record.training

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Return the means since the last reset.

        They are `contrastive_loss`, `mlm_loss`, `mlm_accuracy`, `retrieval_accuracy`, `alignment`
        and `uniformity`, as far as they are computed, and the metrics of the objective. On a device
        other than the CPU they may be up to 10 steps old, unless `reset` or `asked_rarely` is true.

        # Raises

        `NonFiniteLoss` : a loss since the last check is not a finite number.
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
        """Raise if a loss of training since the last call is not a finite number.

        The forward pass checks each loss on the CPU only, as on a device the host would have to
        wait for it.

        # Raises

        `NonFiniteLoss` : a loss is not a finite number.
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
        """Return the weights, after checking the losses.

        Checkpoints and best weights are written from them, so none are written after a loss that is
        not a finite number.

        # Raises

        `NonFiniteLoss` : a loss since the last check is not a finite number.
        """
        self.require_finite()
        return super().state_dict(*args, **kwargs)
