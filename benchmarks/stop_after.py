"""A trainer callback for benchmarks: end the run after some steps, as if the epoch were over."""

from typing import Any

from allennlp.training import TrainerCallback


@TrainerCallback.register("benchmark_stop_after")
class StopAfter(TrainerCallback):
    """Ends the process with status 0 after so many steps; nothing is written any more.

    # Parameters

    steps : how many.
    """

    looks_at_metrics = False

    def __init__(self, serialization_dir: str, steps: int) -> None:
        super().__init__(serialization_dir)
        self._left = steps

    def on_batch(self, *args: Any, is_training: bool, **kwargs: Any) -> None:  # type: ignore[override]
        self._left -= is_training
        if not self._left:
            raise SystemExit(0)
