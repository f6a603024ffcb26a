"""A Model that records its steps: running means, and losses that are not numbers."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from allennlp.models import Model

if TYPE_CHECKING:
    from declutr.models.metrics import RunningMeans, StepRecord


class NonFiniteLoss(ValueError):
    """The loss of a training step is not a number."""


class RecordedModel(Model):
    """A Model with a record of its steps, in `record`."""

    asked_rarely: bool = False
    """Whether metrics of training are read whenever they are asked for. The trainer "declutr" sets
    this, as it asks only when it wants them; otherwise `get_metrics` reads every tenth time."""

    @cached_property
    def record(self) -> "StepRecord":
        """The metrics and losses of its steps."""
        from declutr.models.metrics import StepRecord  # which embedding does without

        return StepRecord()

    @property
    def training_means(self) -> "RunningMeans":
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
