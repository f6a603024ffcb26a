"""State that AllenNLP loses when a run is resumed is kept by the switches, and only by them.

Whole runs, with every option of the trainer, are in `tests/test_resumed_runs.py`.
"""

import copy
import logging
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common import Lazy, Params
from allennlp.data import Instance, Vocabulary
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.data.fields import TensorField
from allennlp.models import Model
from allennlp.training import Checkpointer, TrainerCallback
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

from declutr.bridge import resumption
from declutr.training.trainer import DeCLUTRTrainer


def parameters(value: float) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, torch.nn.Parameter(torch.full((2,), value))) for name in ("a", "b")]


def resumed_average(module: Any) -> tuple[Any, list[tuple[str, torch.nn.Parameter]]]:
    """Return an average with a decay of 0.5, loaded from one whose parameters went from 0 to 4."""
    before = parameters(0.0)
    average = module.ExponentialMovingAverage(before, decay=0.5)
    for _, parameter in before:
        parameter.data.fill_(4.0)
    average.apply()
    now = parameters(4.0)
    resumed = module.ExponentialMovingAverage(now, decay=0.5)
    resumed.load_state_dict(average.state_dict())
    return resumed, now


def test_a_resumed_average_follows_the_parameters_that_are_trained(bare: Any) -> None:
    module = bare("allennlp.training.moving_average")
    resumed, now = resumed_average(module)
    resumed.assign_average_value()
    assert now[0][1].tolist() == [4.0, 4.0]  # nothing happens to them
    resumption.moving_averages(module)
    resumed, now = resumed_average(module)
    for _, parameter in now:
        parameter.data.fill_(6.0)
    resumed.apply()
    resumed.assign_average_value()
    assert now[0][1].tolist() == [4.0, 4.0]  # half of 2 and of 6
    resumed.restore()
    assert now[0][1].tolist() == [6.0, 6.0]


def test_an_average_lost_by_an_earlier_release_is_reported(
    bare: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = bare("allennlp.training.moving_average")
    resumption.moving_averages(module)
    average = module.ExponentialMovingAverage(parameters(1.0))
    with caplog.at_level(logging.WARNING):
        module.ExponentialMovingAverage(parameters(1.0)).load_state_dict(average.state_dict())
        assert not caplog.records
        module.ExponentialMovingAverage(parameters(2.0)).load_state_dict(average.state_dict())
    assert "does not belong to its weights (first in a)" in caplog.text


def test_an_average_of_other_parameters_is_refused(bare: Any) -> None:
    module = bare("allennlp.training.moving_average")
    resumption.moving_averages(module)
    state = module.ExponentialMovingAverage(parameters(1.0)).state_dict()
    with pytest.raises(ValueError, match=r"of other parameters than the model's: b are in one"):
        module.ExponentialMovingAverage(parameters(1.0)[:1]).load_state_dict(state)


def test_an_average_of_several_processes_of_an_earlier_release_is_loaded(bare: Any) -> None:
    """It was saved by the names that DistributedDataParallel gives."""
    module = bare("allennlp.training.moving_average")
    resumption.moving_averages(module)
    wrapped = [(f"module.{name}", parameter) for name, parameter in parameters(1.0)]
    state = module.ExponentialMovingAverage(wrapped).state_dict()
    for value in state["shadows"].values():
        value.fill_(3.0)
    now = parameters(1.0)
    resumed = module.ExponentialMovingAverage(now)
    resumed.load_state_dict(state)
    resumed.assign_average_value()
    assert [parameter.tolist() for _, parameter in now] == [[3.0, 3.0]] * 2


def sgd(layers: int = 1) -> torch.optim.Optimizer:
    groups: list[Any] = [{"params": [torch.nn.Parameter(torch.ones(1))]} for _ in range(layers)]
    return torch.optim.SGD(groups + ([{"params": []}] if layers > 1 else []), lr=1.0)


def test_combined_schedules_keep_the_learning_rate(bare: Any) -> None:
    module = bare("allennlp.training.learning_rate_schedulers.combined")

    def schedules(optimizer: torch.optim.Optimizer) -> Any:
        constant = LearningRateScheduler.by_name("constant")
        warming = LearningRateScheduler.by_name("constant_with_warmup")
        later = Lazy(warming, constructor_extras={"num_warmup_steps": 4})
        return module.CombinedLearningRateScheduler(optimizer, [(1, Lazy(constant)), (4, later)])

    def learning_rate() -> float:
        whole, resumed = sgd(), sgd()
        before, after = schedules(whole), schedules(resumed)
        for step in (1, 2, 3):  # each is an epoch
            before.step_batch(step)
            whole.step()
            before.step()
        assert whole.param_groups[0]["lr"] > 0
        resumed.load_state_dict(whole.state_dict())
        after.load_state_dict(before.state_dict())
        return resumed.param_groups[0]["lr"] - whole.param_groups[0]["lr"]

    assert learning_rate() != 0
    resumption.combined_schedules(module)
    assert learning_rate() == 0


def test_a_resumed_run_freezes_the_same_layers(bare: Any) -> None:
    module = bare("allennlp.training.learning_rate_schedulers.slanted_triangular")

    def trained(epochs: int, resumed: bool) -> list[bool]:
        optimizer = sgd(layers=3)
        schedule = module.SlantedTriangular(optimizer, 5, 4, 0.5, gradual_unfreezing=True)
        for _ in range(epochs):
            schedule.step_batch()
            schedule.step()
        if resumed:
            state, optimizer = schedule.state_dict(), sgd(layers=3)
            schedule = module.SlantedTriangular(optimizer, 5, 4, 0.5, gradual_unfreezing=True)
            schedule.load_state_dict(state)
        groups = optimizer.param_groups
        return [parameter.requires_grad for group in groups for parameter in group["params"]]

    assert trained(1, resumed=True) != trained(1, resumed=False)
    resumption.frozen_layers(module)
    for epochs in range(4):
        assert trained(epochs, resumed=True) == trained(epochs, resumed=False)
    assert [sum(trained(epochs, resumed=True)) for epochs in range(4)] == [1, 2, 3, 3]


def test_a_resumed_run_validates_the_same_epochs(bare: Any) -> None:
    module = bare("allennlp.training.callbacks.should_validate")

    def begin() -> tuple[Any, Any]:
        callback = module.ShouldValidateCallback("", validation_interval=2)
        trainer = SimpleNamespace(_start_after_epochs_completed=1, _epochs_completed=1)
        callback.on_start(trainer)
        return callback, trainer

    assert begin()[1]._should_validate_this_epoch  # as in epoch 0
    resumption.validated_epochs(module)
    callback, trainer = begin()
    assert not trainer._should_validate_this_epoch
    callback.on_epoch(trainer, {}, 1)  # after which the trainer may write the best weights
    assert not trainer._should_validate_this_epoch
    trainer._epochs_completed = 2
    callback.on_batch(trainer, [], [], {}, 2, 1, True)
    assert trainer._should_validate_this_epoch


def test_tracked_epochs_start_at_the_resumed_epoch(bare: Any) -> None:
    module = bare("allennlp.training.callbacks.track_epoch")
    trainer = SimpleNamespace(model=SimpleNamespace(), _start_after_epochs_completed=3)
    module.TrackEpochCallback("").on_start(trainer)
    assert trainer.model.epoch == 0
    resumption.tracked_epochs(module)
    module.TrackEpochCallback("").on_start(trainer)
    assert trainer.model.epoch == 3


class ConstantLoss(Model):
    """A model whose loss is 1, whatever the batch is."""

    def __init__(self) -> None:
        super().__init__(Vocabulary())
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.weight.sum() * 0 + 1}


def test_the_loss_of_a_resumed_epoch_is_the_mean_of_the_steps_since(
    bare: Any, tmp_path: Path
) -> None:
    module = bare("allennlp.training.gradient_descent_trainer")
    told: list[float] = []

    class Listener(TrainerCallback):
        def on_batch(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            told.append(args[2]["loss"])

    def losses(trainer_class: Any) -> list[float]:
        model, data = ConstantLoss(), [Instance({"x": TensorField(torch.zeros(1))})] * 4
        trainer = trainer_class(
            model,
            torch.optim.SGD(model.parameters(), lr=0.0),
            SimpleDataLoader(data, batch_size=1, vocab=model.vocab),
            cuda_device=-1,
            num_epochs=2,
            callbacks=[Listener(str(tmp_path))],
            run_confidence_checks=False,
        )
        trainer._start_after_batches_in_epoch_completed = 3
        told.clear()
        found = [trainer._train_epoch(0)["loss"]]
        trainer._epochs_completed, trainer._batches_in_epoch_completed = 1, 0
        return [*told, *found, trainer._train_epoch(1)["loss"]]

    assert losses(module.GradientDescentTrainer) == [0.25, 0.25, 1.0]
    resumption.mean_losses(module)
    assert losses(module.GradientDescentTrainer) == [1.0, 1.0, 1.0]
    assert losses(DeCLUTRTrainer) == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_a_resumed_epoch_reads_each_row_once_where_validation_shuffles(
    bare: Any, tmp_path: Path
) -> None:
    """A loader of training that also validates shuffles; skipped epochs are not validated."""
    module = bare("allennlp.training.gradient_descent_trainer")
    seen: list[float] = []  # in the second epoch

    class Stopped(Exception):
        pass

    class Listener(TrainerCallback):
        stops_at = -1

        def on_batch(
            self, trainer: Any, inputs: Any, outputs: Any, metrics: Any, epoch: int,
            batch_number: int, is_training: bool, *args: Any, **kwargs: Any,
        ) -> None:  # fmt: skip
            if is_training and epoch == 1:
                if batch_number == self.stops_at:
                    raise Stopped
                seen.extend(inputs[0]["x"].flatten().tolist())

    def train(trainer_class: Any, folder: Path, stops_at: int = -1) -> None:
        model = ConstantLoss()
        data = [Instance({"x": TensorField(torch.full((1,), float(n)))}) for n in range(12)]
        loader = SimpleDataLoader(data, batch_size=1, shuffle=True, vocab=model.vocab)
        tests = SimpleDataLoader(data[:5], batch_size=1, shuffle=True, vocab=model.vocab)
        listener = Listener(str(folder))
        listener.stops_at = stops_at
        trainer = trainer_class(
            model,
            torch.optim.SGD(model.parameters(), lr=0.0),
            loader,
            validation_data_loader=tests,
            cuda_device=-1,
            num_epochs=2,
            callbacks=[listener],
            run_confidence_checks=False,
            serialization_dir=str(folder),
            checkpointer=Checkpointer(str(folder), save_every_num_batches=1),
        )
        random.seed(5)
        trainer.train()

    def rows(trainer_class: Any, name: str) -> list[float]:
        (folder := tmp_path / name).mkdir()
        seen.clear()
        with pytest.raises(Stopped):
            train(trainer_class, folder, stops_at=6)
        train(trainer_class, folder)
        return sorted(seen)

    assert rows(module.GradientDescentTrainer, "plain") != list(range(12))
    resumption.validation_draws(module)
    assert rows(module.GradientDescentTrainer, "cured") == list(range(12))
    assert rows(DeCLUTRTrainer, "own") == list(range(12))


@pytest.mark.parametrize("done", [0, 1])
def test_a_run_resumed_before_an_interval_logs_distributions_from_the_next_on(
    done: int, bare: Any
) -> None:
    """Of its first step, a process does not know by how much the weights have changed."""
    module, model = bare("allennlp.training.callbacks.log_writer"), ConstantLoss()
    logged: list[int] = []

    class Writer(module.LogWriterCallback):  # type: ignore[misc, name-defined]
        def log_scalars(self, *args: Any, **kwargs: Any) -> None:
            pass

        def log_tensors(self, *args: Any, **kwargs: Any) -> None:
            logged.append(self.trainer._total_batches_completed)

    def run() -> list[int]:
        logged.clear()
        writer, trainer = Writer("", distribution_interval=2), SimpleNamespace(model=model)
        writer.trainer = trainer
        for step in range(done + 1, 7):
            trainer._total_batches_completed = step
            writer.on_batch(trainer, [], [], {}, 0, step, is_training=True)
        return logged

    if done:
        with pytest.raises(AssertionError):
            run()
    else:
        assert run() == [2, 4, 6]
    resumption.logged_distributions(module)
    assert run() == ([4, 6] if done else [2, 4, 6])


def test_the_mean_batch_size_of_a_resumed_epoch_is_that_of_the_whole_epoch(bare: Any) -> None:
    module = bare("allennlp.training.callbacks.log_writer")
    logged: dict[int, float] = {}

    class Writer(module.LogWriterCallback):  # type: ignore[misc, name-defined]
        def log_scalars(self, scalars: dict[str, float], *args: Any, **kwargs: Any) -> None:
            if "mean_batch_size" in scalars:
                logged[self.trainer._total_batches_completed] = scalars["mean_batch_size"]

    def run(done: int) -> dict[int, float]:
        logged.clear()
        writer, trainer = Writer("", batch_size_interval=2), SimpleNamespace()
        writer.trainer = trainer
        for step in range(done + 1, 9):
            trainer._total_batches_completed = step
            batch = {"x": torch.zeros(4 if step == 4 else 8)}  # epochs of four steps
            writer.on_batch(trainer, [batch], [], {}, 0, (step - 1) % 4 + 1, is_training=True)
        return dict(logged)

    whole = {2: 8, 4: 7, 6: 8, 8: 8}
    assert run(0) == whole
    assert run(1) == {2: 4, 4: 5, 6: 8, 8: 8}
    resumption.logged_batch_sizes(module)
    assert run(0) == run(1) == whole
    assert run(2) == {step: whole[step] for step in (4, 6, 8)}


@pytest.mark.parametrize("epoch, step", [(0, 0), (0, 3), (2, 0)])
def test_a_resumed_run_notes_no_modules(epoch: int, step: int, bare: Any) -> None:
    """The check is over after the first step of a run, which a resumed one does not take."""
    module, model = bare("allennlp.training.callbacks.confidence_checks"), torch.nn.Linear(2, 2)
    trainer = SimpleNamespace(_pytorch_model=model)
    trainer._start_after_epochs_completed = epoch
    trainer._start_after_batches_in_epoch_completed = step

    def noted() -> list[int]:
        callback = module.ConfidenceChecksCallback("")
        callback.on_start(trainer)
        calls = []
        for number in range(step, step + 3):
            model(torch.ones(2))
            callback.on_batch(trainer, [], [], {}, epoch, number + 1, is_training=True)
            calls.append(len(callback._verification._module_sequence))
        callback._verification.destroy_hooks()
        return calls

    begins = not epoch and not step
    assert noted() == ([1, 1, 1] if begins else [1, 2, 3])
    resumption.checks_at_the_start(module)
    assert noted() == ([1, 1, 1] if begins else [0, 0, 0])


@pytest.mark.parametrize("step, stops", [(0, True), (1, False)])
def test_a_run_that_had_stopped_early_trains_no_more(step: int, stops: bool) -> None:
    def trainer_class() -> Any:
        return type("Trainer", (), {"_try_train": lambda self: self._num_epochs})

    trainer = trainer_class()()
    module: Any = SimpleNamespace(GradientDescentTrainer=type(trainer))
    trainer._num_epochs, trainer._start_after_epochs_completed = 9, 4
    trainer._start_after_batches_in_epoch_completed = step
    trainer._metric_tracker = SimpleNamespace(should_stop_early=lambda: True)
    assert trainer._try_train() == 9
    resumption.stopped_runs(module)
    assert trainer._try_train() == (4 if stops else 9)
    assert trainer._num_epochs == 9


class TestOrderOfParameters:
    """Tests with modules in another order, like the embeddings of BERT in transformers 5."""

    @staticmethod
    def trainer(order: str) -> Any:
        torch.manual_seed(0)
        layers = {"a": torch.nn.Linear(3, 2), "b": torch.nn.Linear(2, 3)}
        model = torch.nn.ModuleDict({name: layers[name] for name in order})
        named = list(model.named_parameters())
        groups = [[p for n, p in named if "bias" in n], [p for n, p in named if "bias" not in n]]
        optimizer = torch.optim.Adam([{"params": group} for group in groups], lr=0.1)
        return SimpleNamespace(model=model, optimizer=optimizer)

    @staticmethod
    def step(trainer: Any, scale: float) -> None:
        for name, parameter in trainer.model.named_parameters():
            parameter.grad = torch.full_like(parameter, scale * len(name))
        trainer.optimizer.step()

    @pytest.mark.parametrize("order", ["ab", "ba"])
    def test_moments_go_to_their_parameters(self, order: str) -> None:
        begun, resumed = self.trainer("ab"), self.trainer(order)
        self.step(begun, 1.0)
        weights, state = begun.model.state_dict(), copy.deepcopy(begun.optimizer.state_dict())
        resumed.model.load_state_dict(weights)
        resumption._put_in_order(resumed, list(weights), state)
        resumed.optimizer.load_state_dict(state)
        for trainer in (begun, resumed):
            self.step(trainer, -3.0)
        for name, value in begun.model.state_dict().items():
            assert torch.equal(resumed.model.state_dict()[name], value)

    def test_a_state_that_cannot_be_reordered_is_refused(self) -> None:
        begun, resumed = self.trainer("ab"), self.trainer("ba")
        with pytest.raises(ValueError, match=r"another order .* release of transformers"):
            resumption._put_in_order(resumed, list(begun.model.state_dict()), {"multi": {}})


def test_the_checkpoint_of_a_step_is_removed_alone(bare: Any, tmp_path: Path) -> None:
    module = bare("allennlp.training.checkpointer")
    places = ("e0_b1", "e0_b1_w0", "e0_b10", "e0_b10_w0", "e0_b100", "e10_b1")

    def left() -> list[str]:
        for place in places:
            for state in ("model_state", "training_state"):
                (tmp_path / f"{state}_{place}.th").touch()
        module.Checkpointer(tmp_path)._remove_checkpoint(0, 1)
        return sorted(path.stem for path in tmp_path.iterdir())

    assert left() == ["model_state_e10_b1", "training_state_e10_b1"]
    resumption.removed_checkpoints(module)
    kept = ("e0_b10", "e0_b100", "e0_b10_w0", "e10_b1")
    assert left() == [f"{s}_{place}" for s in ("model_state", "training_state") for place in kept]


@pytest.mark.parametrize("name", ["[lr=1e-5]", "new\nline"])
def test_checkpoints_are_found_in_a_folder_of_any_name(
    bare: Any, tmp_path: Path, name: str
) -> None:
    module = bare("allennlp.training.checkpointer")
    folder = tmp_path / name
    folder.mkdir()
    for file in ("model_state_e0_b10.th", "model_state_e2_b0_w1.th", "model_state_ex_by.th"):
        (folder / file).touch()
    found = module.Checkpointer(str(folder))
    assert found._find_all_checkpoints() == set()
    resumption.found_checkpoints(module)
    assert found._find_all_checkpoints() == {(0, 10), (2, 0)}
    assert found.find_latest_checkpoint()[0] == str(folder / "model_state_e2_b0.th")
    found.state_is_sharded, found._rank = True, 1
    assert found._find_all_checkpoints() == {(2, 0)}
    assert module.Checkpointer(str(tmp_path / "none"))._find_all_checkpoints() == set()


def test_special_tokens_of_a_vocabulary_are_those_that_the_run_was_begun_with(
    bare: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several processes are given the vocabulary that lies in the folder of the run."""
    module, given = bare("allennlp.commands.train"), []
    spawned = SimpleNamespace(spawn=lambda _, args, **__: given.append(args))
    monkeypatch.setattr(module, "mp", spawned)
    tokens = {"padding_token": "<pad>", "oov_token": "<unk>"}
    Vocabulary({"tokens": {"word": 1}}, **tokens).save_to_files(str(tmp_path / "vocabulary"))
    params = Params({"vocabulary": tokens, "distributed": {"cuda_devices": [-1, -1]}})
    params.to_file(str(tmp_path / "config.json"))

    def resumed() -> None:
        module.train_model(params.duplicate(), str(tmp_path), recover=True, dry_run=True)

    with pytest.raises(AssertionError, match="OOV token not found!"):
        resumed()
    resumption.special_tokens(module)
    resumed()
    assert {name: given[0][0]["vocabulary"][name] for name in tokens} == tokens
    assert module.Vocabulary is Vocabulary
