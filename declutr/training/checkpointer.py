"""The Checkpointer "atomic": a checkpoint is there whole, or not at all."""

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

logger = logging.getLogger(__name__)

Place = tuple[int, int]
"""Of a checkpoint in its run: epochs done, and steps done in the one after them."""


@Checkpointer.register("atomic")
class AtomicCheckpointer(Checkpointer):
    """AllenNLP's checkpointer, safe against being killed while it writes, and against damage.

    Each file is written beside its place, flushed to disk and renamed, and a checkpoint counts only
    when both of its files are there, on all nodes of a run. Files that are not any more what was
    written are told by the checksums in them, and never trained on. All parameters are those of
    AllenNLP's.
    """

    _writes = True  # whether this process is one that writes checkpoints
    _passed_over: frozenset[Place] = frozenset()  # by `load_checkpoint`

    def maybe_save_checkpoint(
        self, trainer: Trainer, num_epochs_completed: int, num_batches_in_epoch_completed: int
    ) -> bool:
        saved = super().maybe_save_checkpoint(
            trainer, num_epochs_completed, num_batches_in_epoch_completed
        )
        if saved:  # AllenNLP forgets in those processes that do not write
            self._be_after((num_epochs_completed, num_batches_in_epoch_completed))
        return saved

    def save_checkpoint(self, trainer: Trainer) -> None:
        # One process asks for the weights, but all must stop if a loss broke them. One process asks
        # callbacks for their states, but all are here.
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
        # Finds the files, counts and cleans up. It asks for the state too, and gathering the parts
        # of a sharded model again would take as long as before.
        super().save_checkpoint(SimpleNamespace(get_checkpoint_state=lambda: state))  # type: ignore[arg-type]

    def load_checkpoint(self) -> TrainerCheckpoint | None:
        """The last checkpoint that every process finds whole, as a run killed on several nodes may
        have written its last one on some of them only.

        Later ones stay where they are, and count for nothing until the run has come to their place
        and written them anew.

        # Raises

        `ConfigurationError` : some processes find checkpoints, but none that all of them have, or
            none that is whole.
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
                        "%s. The run goes on from the last checkpoint that is whole, %s.",
                        text,
                        self._model_state_path(*place),
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
        """A checkpoint, or what is wrong with its files."""
        paths = self._model_state_path(*place), self._training_state_path(*place)
        for path in paths:
            damage = damage_of(path)
            if damage is not None:
                return None, f"{path} is damaged: {damage}"
        return TrainerCheckpoint(*(torch.load(path, map_location="cpu") for path in paths)), None

    def _find_best(self, trainer_state: dict[str, Any]) -> None:
        """Name the best weights here, where they may not have been written, and look at them."""
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
        """Count from the checkpoint at `place` when the next one is due."""
        self._last_save_num_epochs_completed, self._last_save_num_batches_in_epoch_completed = place

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

    def _find_all_checkpoints(self) -> set[Place]:
        return {
            place
            for place in super()._find_all_checkpoints() - self._passed_over
            if os.path.isfile(self._training_state_path(*place))
        }

    def _remove_checkpoint(self, epochs_completed: int, batches_in_epoch_completed: int) -> None:
        """Remove one, and not, as AllenNLP's pattern does, 10 and 100 together with 1."""
        place = epochs_completed, batches_in_epoch_completed
        for path in (self._model_state_path(*place), self._training_state_path(*place)):
            if os.path.exists(path):
                os.remove(path)


def save_whole(state: Any, path: str) -> None:
    """`torch.save`, so that a file at `path` is always whole."""
    write_whole(path, lambda file: torch.save(state, file))


def write_best_weights(trainer: GradientDescentTrainer, path: str) -> None:
    """Make the weights of a trainer, as they are now, the best ones of its run.

    All processes take part, for the weights may be spread over them.
    """
    state = (trainer._ddp_wrapped_model or trainer.model).state_dict()
    if trainer._primary:
        save_whole(state, path)
    trainer._best_model_filename = path
