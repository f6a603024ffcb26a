"""The Checkpointer "atomic", which writes a checkpoint completely or not at all."""

import logging
import os
from types import SimpleNamespace
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.trainer import Trainer, TrainerCheckpoint

from declutr.system.distributed import of_all_processes
from declutr.system.files import damage_of, write_whole
from declutr.training.stopping import stop_asked

logger = logging.getLogger(__name__)

Place = tuple[int, int]
"""The place of a checkpoint in a run: epochs completed, and steps completed in the next epoch."""


@Checkpointer.register("atomic")
class AtomicCheckpointer(Checkpointer):
    """A checkpointer like AllenNLP's that survives being killed while writing, and damaged files.

    Each file is written under a temporary name, flushed to disk and renamed. A checkpoint counts
    only if both of its files exist on all nodes of a run. Files that have changed since they were
    written are detected by the checksums in them and never loaded. The parameters are those of
    AllenNLP's `Checkpointer`. Where `save_completed_epochs` is false, `save_every_num_batches`
    counts over the ends of epochs; AllenNLP's would begin again with each epoch, and never save a
    run of short ones.

    # Raises

    `ConfigurationError` : no checkpoint would be kept, by `keep_most_recent_by_count` below 1.
    """

    _steps = 0  # since the last checkpoint
    _writes = True  # whether this process writes checkpoints
    _passed_over: frozenset[Place] = frozenset()  # the checkpoints later than the one loaded

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kept, age = self._keep_most_recent_by_count, self._keep_most_recent_by_age
        if kept is not None and kept < (1 if age is None else 0):
            raise ConfigurationError(
                f"keep_most_recent_by_count is {kept}, so that no checkpoint would be kept, and "
                "the first epoch would end in an error. Expected 1 or more, or null for all."
            )

    def maybe_save_checkpoint(
        self, trainer: Trainer, num_epochs_completed: int, num_batches_in_epoch_completed: int
    ) -> bool:
        saved = super().maybe_save_checkpoint(
            trainer, num_epochs_completed, num_batches_in_epoch_completed
        )
        self._steps += num_batches_in_epoch_completed > 0  # 0: an epoch has ended
        every = self._save_every_num_batches
        if not saved and every is not None and self._steps >= every:
            self.save_checkpoint(trainer)
            saved = True
        if saved:  # AllenNLP notes it in the process that writes only
            self._be_after((num_epochs_completed, num_batches_in_epoch_completed))
        if stop_asked():
            if not saved:
                self.save_checkpoint(trainer)
            raise KeyboardInterrupt
        return saved

    def save_checkpoint(self, trainer: Trainer) -> None:
        # Only one process saves the weights and the states of callbacks. All processes call this
        # method, so all can stop if a loss was not finite, and take part in gathering states.
        model, callbacks = getattr(trainer, "model", None), getattr(trainer, "_callbacks", ())
        prepare = [getattr(part, "require_finite", None) for part in (trainer, model)]
        prepare += [getattr(callback, "gather_state", None) for callback in callbacks]
        for call in prepare:
            if call is not None:
                call()
        state = trainer.get_checkpoint_state()
        self._writes = state is not None
        if state is not None:
            self._refuse_broken(state.model_state)
            done = state.trainer_state
            place = (done["epochs_completed"], done["batches_in_epoch_completed"])
            save_whole(state.model_state, self._model_state_path(*place))
            save_whole(state.trainer_state, self._training_state_path(*place))
            self._passed_over -= {place}
        # AllenNLP's method finds these files, and removes old checkpoints. It asks the trainer for
        # the state again, which would gather the parts of a sharded model a second time, so it is
        # given the state.
        super().save_checkpoint(SimpleNamespace(get_checkpoint_state=lambda: state))  # type: ignore[arg-type]

    def load_checkpoint(self) -> TrainerCheckpoint | None:
        """Return the last checkpoint that is undamaged in every process, or `None`.

        A run that was killed on several nodes may have written its last checkpoint on some nodes
        only. Later checkpoints are not removed, but they are ignored until the run reaches their
        place and writes them again.

        # Raises

        `ConfigurationError` : there are checkpoints, but none that all processes have, or only
            damaged ones.
        """
        own = self._find_all_checkpoints()
        found = of_all_processes(own)
        common = set.intersection(*found)
        if not common and any(found):
            raise ConfigurationError(
                f"There is no checkpoint that all {len(found)} processes can read; "
                f"{self._serialization_dir} holds {sorted(own) or 'none'} (epochs and batches "
                "done). Copy the folder of one node to the others, or begin anew with --force."
            )
        damages: list[str] = []
        for place in sorted(common, reverse=True):
            state, damage = self._load(place)
            elsewhere = {text for text in of_all_processes(damage) if text is not None}
            if state is not None and not elsewhere:
                self._passed_over = frozenset(one for one in own if one > place)
                self._be_after(place)
                for text in damages:
                    logger.warning(
                        f"{text}. The run goes on from the last checkpoint that is whole, "
                        f"{self._model_state_path(*place)}."
                    )
                self._find_best(state.trainer_state)
                return state
            damages += sorted(elsewhere)
        if damages:
            raise ConfigurationError(
                f"No checkpoint in {self._serialization_dir} is whole, so there is nothing to go "
                f"on from: {'; '.join(damages)}. Put a copy of one in its place, or begin anew "
                "with --force."
            )
        return None

    def _load(self, place: Place) -> tuple[TrainerCheckpoint | None, str | None]:
        """Load a checkpoint, or describe the damage of its files."""
        paths = self._model_state_path(*place), self._training_state_path(*place)
        for path in paths:
            damage = damage_of(path)
            if damage is not None:
                return None, f"{path} is damaged: {damage}"
        return TrainerCheckpoint(*(torch.load(path, map_location="cpu") for path in paths)), None

    def _find_best(self, trainer_state: dict[str, Any]) -> None:
        """Point the trainer to the best weights in this folder, and warn if they are not usable."""
        best = trainer_state.get("best_model_filename")
        if best is None:
            return
        here = os.path.join(self._serialization_dir, os.path.basename(best))
        trainer_state["best_model_filename"] = here
        damage = damage_of(here)
        if damage is not None:
            logger.warning(
                "%s, the best weights so far, is %s. Put a copy in its place while the "
                "run goes on: unless it finds better ones, there is nothing to archive.",
                here,
                f"damaged: {damage}" if os.path.exists(here) else "not there",
            )

    def _be_after(self, place: Place) -> None:
        """Count the time to the next checkpoint from the one at `place`."""
        self._last_save_num_epochs_completed, self._last_save_num_batches_in_epoch_completed = place
        self._steps = 0

    @property
    def _is_primary(self) -> bool:
        """Whether this process removes old checkpoints; one on every node does, for its folder."""
        return self._writes

    def _refuse_broken(self, weights: dict[str, Any]) -> None:
        """Raise if weights are not finite, before they replace the last good checkpoint."""
        for name, value in weights.items():
            if torch.is_tensor(value) and value.is_floating_point() and not value.isfinite().all():
                last = self.find_latest_checkpoint()
                raise ValueError(
                    f"The weights are not finite any more (first in {name}), so no checkpoint is "
                    f"written. The last good one is {last[0] if last else 'none'}; lower the "
                    "learning rate and continue from it with --recover."
                )

    def _find_all_checkpoints(self) -> set[Place]:
        return {
            place
            for place in super()._find_all_checkpoints() - self._passed_over
            if os.path.isfile(self._training_state_path(*place))
        }

    def _remove_checkpoint(self, epochs_completed: int, batches_in_epoch_completed: int) -> None:
        """Remove one checkpoint; AllenNLP's pattern would remove steps 10 and 100 with step 1."""
        place = epochs_completed, batches_in_epoch_completed
        for path in (self._model_state_path(*place), self._training_state_path(*place)):
            if os.path.exists(path):
                os.remove(path)


def save_whole(state: Any, path: str) -> None:
    """Save with `torch.save` so that a file at `path` is always complete."""
    write_whole(path, lambda file: torch.save(state, file))


def write_best_weights(trainer: GradientDescentTrainer, path: str) -> None:
    """Save the current weights of a trainer as the best weights of its run.

    All processes must call this, because the weights may be sharded over them.

    # Parameters

    trainer : the trainer, whose best weights are afterwards those at `path`.
    path : the file to write.
    """
    state = (trainer._ddp_wrapped_model or trainer.model).state_dict()
    if trainer._primary:
        save_whole(state, path)
    trainer._best_model_filename = path
