"""The Checkpointer "atomic": a checkpoint is there whole, or not at all."""

import os
from types import SimpleNamespace
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.trainer import Trainer, TrainerCheckpoint

from declutr.distributed import of_all_processes


@Checkpointer.register("atomic")
class AtomicCheckpointer(Checkpointer):
    """AllenNLP's checkpointer, safe against being killed while it writes.

    Each file is written beside its place, flushed to disk and renamed, and a checkpoint counts only
    when both of its files are there, on all nodes of a run. All parameters are those of AllenNLP's.
    """

    _writes = True  # whether this process is one that writes checkpoints

    def save_checkpoint(self, trainer: Trainer) -> None:
        state = trainer.get_checkpoint_state()
        self._writes = state is not None
        if state is not None:
            self._refuse_broken(state.model_state)
            done = state.trainer_state
            place = (done["epochs_completed"], done["batches_in_epoch_completed"])
            save_atomically(state.model_state, self._model_state_path(*place))
            save_atomically(state.trainer_state, self._training_state_path(*place))
        # Finds the files, counts and cleans up. It asks for the state too, and gathering the parts
        # of a sharded model again would take as long as before.
        super().save_checkpoint(SimpleNamespace(get_checkpoint_state=lambda: state))  # type: ignore[arg-type]

    def load_checkpoint(self) -> TrainerCheckpoint | None:
        """The last checkpoint that every process finds, as a run killed on several nodes may have
        written its last one on some of them only.

        # Raises

        `ConfigurationError` : some processes find checkpoints, but none that all of them have.
        """
        own = self._find_all_checkpoints()
        found = of_all_processes(own)
        common = set.intersection(*found)
        if not common:
            if any(found):
                raise ConfigurationError(
                    f"There is no checkpoint that all {len(found)} processes can read; "
                    f"{self._serialization_dir} holds {sorted(own) or 'none'} (epochs and batches "
                    "done). Copy the folder of one node to the others, or begin anew with --force."
                )
            return None
        place = max(common)
        paths = self._model_state_path(*place), self._training_state_path(*place)
        state = TrainerCheckpoint(*(torch.load(path, map_location="cpu") for path in paths))
        best = state.trainer_state.get("best_model_filename")
        if best is not None:  # it may have been written in another folder, or on another node
            here = os.path.join(self._serialization_dir, os.path.basename(best))
            state.trainer_state["best_model_filename"] = here
        return state

    @property
    def _is_primary(self) -> bool:
        """Whether to clean up: on every node, for each has a folder of its own."""
        return self._writes

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
