"""Repairs of state that AllenNLP loses when a run is resumed from a checkpoint (`--recover`).

Without them a resumed run silently takes another course than an uninterrupted one. Each function
takes a module right after its body ran. The repairs change how saved states are loaded and, but for
the scale of gradients, not what is saved. So older checkpoints are loaded correctly too.
"""

import logging
import random
from functools import partial
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge.repairs import replaces

logger = logging.getLogger(__name__)


_SCALER = "scaler"


def moving_averages(module: ModuleType) -> None:
    """Load only the averages of a `MovingAverage`, which keeps tracking the trained parameters.

    AllenNLP replaces the parameters that a `MovingAverage` tracks by the copies in the checkpoint,
    which are not trained. So validation, `best.th` and the archive of a resumed run had the raw
    weights. Can be removed when `load_state_dict` leaves `_parameters` alone.
    """
    module.MovingAverage.load_state_dict = _load_averages


def _load_averages(self: Any, state_dict: dict[str, Any]) -> None:
    followed = dict(self._parameters)

    def own_name(name: str) -> str:  # several processes had others up to 2.4.12
        return name if name in followed else name.removeprefix("module.")

    for kind in ("shadows", "backups"):
        own = getattr(self, f"_{kind}")
        saved = {own_name(name): value for name, value in state_dict[kind].items()}
        if own.keys() != saved.keys():
            raise ValueError(
                "The moving average of the checkpoint is of other parameters than the model's: "
                f"{', '.join(sorted(own.keys() ^ saved.keys()))} are in one of them only. Go on "
                "with the configuration that the run was begun with."
            )
        for name, value in own.items():
            value.copy_(saved[name])
    # The trainer has loaded the weights before, so they can be compared with the checkpoint's.
    for name, before in state_dict["parameters"]:
        now = followed[own_name(name)].detach()
        if not before.detach().to(now.device).equal(now):
            logger.warning(
                "The moving average of this checkpoint does not belong to its weights (first in "
                "%s): the run was resumed before by a release that lost the average then. It goes "
                "on from what it was at that time.",
                name,
            )
            break


def combined_schedules(module: ModuleType) -> None:
    """Keep the learning rates of a checkpoint while the scheduler "combined" is loaded.

    Loading builds the schedule of the current epoch again, which sets the learning rates to those
    of its first step; most schedules set them again only at the end of the epoch. Can be removed
    when `load_state_dict` leaves the optimizer alone.
    """

    @replaces(module.CombinedLearningRateScheduler)
    def load_state_dict(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
        groups = self.optimizer.param_groups
        loaded = [{k: v for k, v in group.items() if k != "params"} for group in groups]
        original(self, state_dict)
        for group, values in zip(groups, loaded, strict=True):
            group.update(values)


def frozen_layers(module: ModuleType) -> None:
    """Let "slanted_triangular" with `gradual_unfreezing` freeze the layers of the resumed epoch.

    AllenNLP freezes the layers of the first epoch until the next epoch begins. Can be removed when
    `load_state_dict` sets `requires_grad`.
    """

    @replaces(module.SlantedTriangular)
    def load_state_dict(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
        original(self, state_dict)
        if self.gradual_unfreezing:
            # The method `step` freezes in the same way; `last_epoch` counts the epoch already.
            for depth, group in enumerate(reversed(self.optimizer.param_groups)):
                for parameter in group["params"]:
                    parameter.requires_grad = depth <= self.last_epoch + 1


def validated_epochs(module: ModuleType) -> None:
    """Let "should_validate_callback" decide for the epoch in training, also after resuming.

    AllenNLP starts with the decision for epoch 0 even if it resumes a later one, and it decides for
    the next epoch before the best weights of the current one are written. So `best.th` held weights
    of an epoch that was not validated. Can be removed when `on_start` asks the trainer for the
    epoch and `on_epoch` leaves the decision alone.
    """
    cls = module.ShouldValidateCallback

    def on_start(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        epoch = trainer._start_after_epochs_completed
        trainer._should_validate_this_epoch = self._should_validate(epoch)

    def on_batch(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        trainer._should_validate_this_epoch = self._should_validate(trainer._epochs_completed)

    def on_epoch(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        pass

    cls.on_start, cls.on_batch, cls.on_epoch = on_start, on_batch, on_epoch


def tracked_epochs(module: ModuleType) -> None:
    """Let "track_epoch_callback" start with the epoch in which a run is resumed, not with 0.

    Can be removed when `on_start` asks the trainer for the epoch.
    """

    @replaces(module.TrackEpochCallback)
    def on_start(original: Any, self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        original(self, trainer, *args, **kwargs)
        trainer.model.epoch = trainer._start_after_epochs_completed


def has_resumed(trainer: Any) -> bool:
    """Return whether a trainer of AllenNLP goes on from a checkpoint."""
    completed = (
        trainer._start_after_epochs_completed,
        trainer._start_after_batches_in_epoch_completed,
    )
    return any(completed)


def was_taken(trainer: Any, before: int = 0) -> bool:
    """Return whether the next step of a trainer precedes the checkpoint that it resumes from.

    # Parameters

    before : of so many steps before the next one, the first is asked about instead.
    """
    next_step = trainer._epochs_completed, trainer._batches_in_epoch_completed - before
    return next_step < (
        trainer._start_after_epochs_completed,
        trainer._start_after_batches_in_epoch_completed,
    )


def checks_at_the_start(module: ModuleType) -> None:
    """Let "confidence_checks" watch the first step of a run only, and nothing of a resumed one.

    It is on unless `run_confidence_checks` is false. It notes every module that is called, until
    the first step of epoch 0 is done, which a resumed run does not take: it noted them to its end,
    in memory that grew with every step. Can be removed when `on_start` asks whether the run begins.
    """

    @replaces(module.ConfidenceChecksCallback)
    def on_start(original: Any, self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        original(self, trainer, *args, **kwargs)
        if has_resumed(trainer) and hasattr(self, "_verification"):
            self._verification.destroy_hooks()


def logged_distributions(module: ModuleType) -> None:
    """Let log writers with `distribution_interval` pass over a step whose change is not known.

    They compare the weights with those of the step before, which the first step of a process does
    not have. A run that was resumed right before the step of an interval ended with a bare
    `AssertionError`, each time anew. Can be removed when `on_batch` asks for these weights.
    """

    @replaces(module.LogWriterCallback)
    def on_batch(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if self._param_updates is None:
            self._should_log_distributions_this_batch = lambda: False
        try:
            original(self, *args, **kwargs)
        finally:
            vars(self).pop("_should_log_distributions_this_batch", None)


def logged_batch_sizes(module: ModuleType) -> None:
    """Let log writers with `batch_size_interval` log a right mean in an epoch that is resumed.

    They sum the sizes of the batches since the run was resumed, and divide by the steps of the
    whole epoch. Those before are taken to be as large as the first one since, which they mostly
    are. Can be removed when `log_batch` counts the steps that it sums.
    """

    @replaces(module.LogWriterCallback)
    def log_batch(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature(original).bind(self, *args, **kwargs).arguments
        before, batches = given["batch_number"] - 1, given["batch_group"]
        if self._batch_size_interval and before > 0 and not self._cumulative_batch_group_size:
            size = sum(module.get_batch_size(batch) for batch in batches)
            self._cumulative_batch_group_size = before * size
        original(self, *args, **kwargs)


def mean_losses(module: ModuleType) -> None:
    """Let the first epoch of a resumed run report the mean loss of the steps since it was resumed.

    AllenNLP sums the losses of these steps and divides by all steps of the epoch, so that
    `training_loss` seemed to fall: of a run resumed in the middle, it was half. (`exact_resume`
    reports the mean of all steps.) Can be removed when `_train_epoch` counts the steps it takes.
    """

    @replaces(module.GradientDescentTrainer)
    def _train_epoch(original: Any, self: Any, epoch: int) -> Any:
        skipped = self._start_after_batches_in_epoch_completed
        if not skipped or self._epochs_completed != self._start_after_epochs_completed:
            return original(self, epoch)
        util = module.training_util
        plain = util.get_metrics
        parameters = signature(plain)

        def get_metrics(*args: Any, **kwargs: Any) -> Any:
            given = parameters.bind(*args, **kwargs)
            # At the end of the epoch, losses and steps are those of all processes.
            processes = self._world_size if given.arguments.get("reset") else 1
            given.arguments["num_batches"] -= skipped * processes
            return plain(*given.args, **given.kwargs)

        util.get_metrics = get_metrics
        try:
            return original(self, epoch)
        finally:
            util.get_metrics = plain


def steps_of_processes(module: ModuleType) -> None:
    """Let all processes of a resumed run count the steps that they have done together.

    Where one has fewer batches than the others, it ends each epoch for all of them. In the epochs
    before a checkpoint, which a resumed run passes over, AllenNLP counts the batches of each
    process instead, so that schedules by step gave processes different rates, and their weights
    drifted apart. Can be removed when checkpoints hold the number of all steps.
    """

    @replaces(module.GradientDescentTrainer)
    def _train_epoch(original: Any, self: Any, epoch: int) -> Any:
        before = self._total_batches_completed
        passed_over = self._epochs_completed < self._start_after_epochs_completed
        metrics = original(self, epoch)
        if passed_over and self._distributed:
            steps = module.torch.tensor(self._batches_in_epoch_completed, device=self.cuda_device)
            module.dist.all_reduce(steps, module.dist.ReduceOp.MIN)
            self._total_batches_completed = before + int(steps)
        return metrics


def validation_draws(module: ModuleType) -> None:
    """Let validation leave the random numbers of Python and numpy as they were before it.

    A loader of training that validates too draws an order for it, which nobody needs. A resumed run
    passes over its earlier epochs by their training data alone, so that it drew another order for
    the epoch that it went on in: some rows were read twice there, and others never. Can be removed
    when AllenNLP keeps the state of `random` in checkpoints, or does not shuffle validation data.
    """

    @replaces(module.GradientDescentTrainer)
    def _validation_loss(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        import numpy as np

        states = random.getstate(), np.random.get_state()
        try:
            return original(self, *args, **kwargs)
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def special_tokens(module: ModuleType) -> None:
    """Let several processes go on with a vocabulary whose special tokens are not AllenNLP's.

    AllenNLP reads the vocabulary of the run by its own `@@UNKNOWN@@` and `@@PADDING@@`, and ended
    with a bare `AssertionError` where `vocabulary` has an `oov_token`, as recipes of text VAEs.
    Can be removed when `train_model` passes these settings on.
    """

    @replaces(module)
    def train_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        given, vocabularies = params.params.get("vocabulary") or {}, module.Vocabulary
        tokens = {name: given[name] for name in ("padding_token", "oov_token") if name in given}
        recovers = signature(original).bind(params, *args, **kwargs).arguments.get("recover")
        if not (tokens and recovers and params.params.get("distributed")):
            return original(params, *args, **kwargs)
        module.Vocabulary = SimpleNamespace(  # type: ignore[attr-defined]
            from_files=partial(vocabularies.from_files, **tokens)
        )
        try:
            return original(params, *args, **kwargs)
        finally:
            module.Vocabulary = vocabularies  # type: ignore[attr-defined]


def stopped_runs(module: ModuleType) -> None:
    """Let AllenNLP's trainer train no further epoch if the resumed run had run out of `patience`.

    Such a run was killed after its last checkpoint, before its archive was complete. Can be removed
    when `GradientDescentTrainer` calls `should_stop_early` before its first epoch too.
    """

    @replaces(module.GradientDescentTrainer)
    def _try_train(original: Any, self: Any) -> Any:
        epochs = self._num_epochs
        between = not self._start_after_batches_in_epoch_completed
        if between and self._metric_tracker.should_stop_early():
            self._num_epochs = min(epochs, self._start_after_epochs_completed)
        try:
            return original(self)
        finally:
            self._num_epochs = epochs


def kept_scales(module: ModuleType) -> None:
    """Keep the scale of gradients with `use_amp` in checkpoints; `parameter_orders` loads it.

    A resumed run began with the first scale, and skipped updates until that had come down.
    Can be removed when AllenNLP's checkpoints hold the state of the scaler.
    """

    @replaces(module.GradientDescentTrainer)
    def get_checkpoint_state(original: Any, self: Any) -> Any:
        state = original(self)
        if state is not None and self._scaler is not None:
            state.trainer_state[_SCALER] = self._scaler.state_dict()
        return state


def best_weights(module: ModuleType) -> None:
    """Let a run end with its best weights, also if its last epoch was not validated.

    AllenNLP takes the last weights for the best ones then, as with "should_validate_callback", and
    scores them on the test data; the archive has the best ones. Can be removed when `_try_train`
    asks whether the last epoch was validated.
    """

    @replaces(module.GradientDescentTrainer)
    def _try_train(original: Any, self: Any) -> Any:
        result = original(self)
        best = self._best_model_filename
        if best is not None and not self._should_validate_this_epoch:
            self._load_model_state(best)
        return result


def parameter_orders(module: ModuleType) -> None:
    """Assign the moments in a checkpoint's optimizer state to the parameters they belong to.

    torch stores them by the number of the parameter. transformers 5 numbers the parameters of BERT
    and related models differently from 4, because it creates their embeddings in another order. So
    a run resumed with the other release updated parameters by the moments of others, or wrote
    beyond their memory. Can be removed when torch stores moments by name.
    """

    @replaces(module.GradientDescentTrainer)
    def _maybe_restore_checkpoint(original: Any, self: Any) -> None:
        checkpointer = self._checkpointer
        if checkpointer is None:
            return original(self)
        load = checkpointer.load_checkpoint

        def load_checkpoint() -> Any:
            state = load()
            if state is not None:
                model_state, trainer_state = state
                _put_in_order(self, list(model_state), trainer_state.get("optimizer"))
                if self._scaler is not None and _SCALER in trainer_state:
                    self._scaler.load_state_dict(trainer_state[_SCALER])
            return state

        checkpointer.load_checkpoint = load_checkpoint
        try:
            original(self)
        finally:
            checkpointer.load_checkpoint = load


def _put_in_order(trainer: Any, saved: list[str], optimizer: Any) -> None:
    """Renumber an optimizer's state in place if its parameters were saved in another order.

    # Parameters

    saved : the names in the saved state of the model, in their order.
    optimizer : the saved state of the optimizer.

    # Raises

    `ValueError` : the groups of the saved optimizer do not match those of the trainer's.
    """
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    now = [name for name in names.values() if name in set(saved)]
    then = [name for name in saved if name in set(now)]
    if now == then:
        return
    groups = optimizer.get("param_groups") if isinstance(optimizer, dict) else None
    own = getattr(trainer.optimizer, "param_groups", [])
    if groups is None or [len(g["params"]) for g in groups] != [len(g["params"]) for g in own]:
        raise ValueError(
            "The parameters of the checkpoint have another order than the model's, and its "
            "optimizer cannot be put into that. Go on with the release of transformers that the "
            "run was begun with: versions in run.json tells."
        )
    state, number = {}, 0
    for group, ours in zip(groups, own, strict=True):
        members = [names[id(parameter)] for parameter in ours["params"]]
        numbers = dict(zip(sorted(members, key=then.index), group["params"], strict=True))
        for name in members:
            if numbers[name] in optimizer["state"]:
                state[number] = optimizer["state"][numbers[name]]
            number += 1
    first = 0
    for group in groups:
        group["params"] = list(range(first, first := first + len(group["params"])))
    optimizer["state"] = state
    logger.warning(
        "The checkpoint has the model's parameters in another order (another release of "
        "transformers?). The optimizer's state was put in order; the run goes on, but not to the "
        "bit as it would have."
    )


def removed_checkpoints(module: ModuleType) -> None:
    """Let the checkpointer remove the checkpoint of a step, and not those of 10 and 100 with 1.

    Can be removed when `_remove_checkpoint` has a pattern that ends with the step.
    """

    def _remove_checkpoint(
        self: Any, epochs_completed: int, batches_in_epoch_completed: int
    ) -> None:
        place = f"_e{epochs_completed}_b{batches_in_epoch_completed}"
        folder = Path(self._serialization_dir)
        for state in ("model_state", "training_state"):
            for file in (folder / f"{state}{place}.th", *folder.glob(f"{state}{place}_w*.th")):
                file.unlink(missing_ok=True)

    module.Checkpointer._remove_checkpoint = _remove_checkpoint


def found_checkpoints(module: ModuleType) -> None:
    """Let the checkpointer find its checkpoints in a folder of any name.

    AllenNLP took brackets and stars in it for a pattern, as in `runs/[lr=1e-5]`, and could not
    tell the step where it has a line feed: the run broke off, or did not go on when it was resumed.
    Can be removed when `_find_all_checkpoints` escapes the folder, and reads the names of files.
    """

    def _find_all_checkpoints(self: Any) -> set[tuple[int, int]]:
        shard = f"_w{self._rank}" if self.state_is_sharded else ""
        files = Path(self._serialization_dir).glob(f"model_state_e*_b*{shard}.th")
        places = {self._parse_model_state_path(file.name) for file in files}
        return places - {None}

    module.Checkpointer._find_all_checkpoints = _find_all_checkpoints
