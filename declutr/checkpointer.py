"""The Checkpointer "atomic": a checkpoint is there whole, or not at all."""

import os
from typing import Any

import torch
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.trainer import Trainer


@Checkpointer.register("atomic")
class AtomicCheckpointer(Checkpointer):
    """AllenNLP's checkpointer, safe against being killed while it writes.

    Each file is written beside its place, flushed to disk and renamed, and a checkpoint counts only
    when both of its files are there. All parameters are those of AllenNLP's.
    """

    def save_checkpoint(self, trainer: Trainer) -> None:
        state = trainer.get_checkpoint_state()
        if state is not None:
            self._refuse_broken(state.model_state)
            done = state.trainer_state
            place = (done["epochs_completed"], done["batches_in_epoch_completed"])
            save_atomically(state.model_state, self._model_state_path(*place))
            save_atomically(state.trainer_state, self._training_state_path(*place))
        super().save_checkpoint(trainer)  # finds the files, counts and cleans up

    def _refuse_broken(self, weights: dict[str, Any]) -> None:
        """Raise before weights that are not finite push out the last good checkpoint."""
        for name, value in weights.items():
            if torch.is_tensor(value) and value.is_floating_point() and not value.isfinite().all():
                last = self.find_latest_checkpoint()
                raise ValueError(
                    f"The weights are not finite any more (first in {name}), so no checkpoint is "
                    f"written. The last good one is {last[0] if last else 'none'}; lower the "
                    "learning rate and continue from it with --recover."
                )

    def _find_all_checkpoints(self) -> set[tuple[int, int]]:
        return {
            place
            for place in super()._find_all_checkpoints()
            if os.path.isfile(self._training_state_path(*place))
        }


def save_atomically(state: Any, path: str) -> None:
    """`torch.save`, so that a file at `path` is always whole."""
    partial = f"{path}.partial"
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
