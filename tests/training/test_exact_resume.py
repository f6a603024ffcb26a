"""A resumed run is bit-identical to one without interruption."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.metrics import CategoricalAccuracy

import declutr.plugin  # noqa: F401 - registers what configurations name
from declutr.system.kernel_choices import CHOICES
from declutr.task_models.glue.metrics import ClassMetrics
from declutr.training.epoch_figures import EpochFigures
from declutr.training.exact_resume import ExactResume, _restore_best
from declutr.training.metric_states import differing_states, metric_states
from tests.resumed_runs import differences
from tests.training.conftest import EPOCHS

pytestmark = pytest.mark.slow


def state_of(trainer: GradientDescentTrainer) -> dict[str, Any]:
    """Return the weights and the state of the optimizer."""
    optimizer = trainer.optimizer.state_dict()
    state = {f"model {k}": v for k, v in trainer.model.state_dict().items()}
    for number, values in optimizer["state"].items():
        state |= {f"{number} {key}": value for key, value in values.items()}
    for number, group in enumerate(optimizer["param_groups"]):
        state |= {f"group {number} {key}": group[key] for key in ("lr", "params")}
    return state


def metrics_of(folder: Path, epoch: int) -> dict[str, float]:
    """Return the metrics of an epoch, without times and memory."""
    metrics = json.loads((folder / f"metrics_epoch_{epoch}.json").read_text())
    left_out = ("duration", "memory", "epoch")
    return {k: v for k, v in metrics.items() if not any(word in k for word in left_out)}


def keep_until(source: Path, target: Path, epoch: int, step: int) -> None:
    """Copy the folder of a run as it was right after the checkpoint at an epoch and step."""
    target.mkdir()
    for kind in ("model", "training"):
        shutil.copy(source / f"{kind}_state_e{epoch}_b{step}.th", target)
    if (source / "best.th").exists() and epoch:
        shutil.copy(source / "best.th", target)


@pytest.fixture(scope="module", params=["plain"])
def straight(
    request: pytest.FixtureRequest, make_trainer: Callable, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, Path, dict[str, Any]]:
    """Train without interruption, with a checkpoint after each step."""
    folder = tmp_path_factory.mktemp("straight")
    trainer = make_trainer(folder, memory=request.param == "memory")
    trainer.train()
    return request.param == "memory", folder, state_of(trainer)


PLACES = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 3), (2, 0)]
MEMORY_PLACES = [(0, 2), (1, 0), (1, 1)]  # where a memory is filled for the first time, and later


@pytest.fixture
def resume(straight: tuple, make_trainer: Callable, tmp_path: Path) -> Callable:
    """Return a function that makes a trainer which goes on from a checkpoint of `straight`."""

    def resumed(*place: int, **changes: Any) -> GradientDescentTrainer:
        if not (tmp_path / "run").exists():
            keep_until(straight[1], tmp_path / "run", *place)
        return make_trainer(tmp_path / "run", memory=straight[0], **changes)

    return resumed


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_run_equals_one_without_interruption(
    straight: tuple, resume: Callable, tmp_path: Path, place: tuple
) -> None:
    """It resumes within an epoch, after the last step of one, and after validation."""
    _, folder, expected = straight
    trainer = resume(*place)
    trainer.train()
    assert differences(state_of(trainer), expected) == []
    for epoch in range(place[0], EPOCHS):
        resumed, whole = (metrics_of(f, epoch) for f in (tmp_path / "run", folder))
        assert {"training_loss", "training_mlm_loss", "validation_mlm_loss"} <= resumed.keys()
        assert resumed == whole


@pytest.mark.parametrize("straight", ["memory"], indirect=True)
@pytest.mark.parametrize("place", MEMORY_PLACES)
def test_a_memory_is_resumed(
    straight: tuple, resume: Callable, tmp_path: Path, place: tuple
) -> None:
    test_a_resumed_run_equals_one_without_interruption(straight, resume, tmp_path, place)


def test_without_the_callback_a_resumed_run_differs(straight: tuple, resume: Callable) -> None:
    trainer = resume(0, 2, seed=None)
    trainer.train()
    assert differences(state_of(trainer), straight[2])


def test_two_runs_are_the_same_and_seeds_differ(
    straight: tuple, make_trainer: Callable, tmp_path: Path
) -> None:
    memory, _, expected = straight
    for seed in (7, 8):
        trainer = make_trainer(tmp_path / str(seed), seed=seed, memory=memory, checkpointer=None)
        trainer.train()
        assert bool(differences(state_of(trainer), expected)) is (seed == 8)


def test_another_seed_warns(resume: Callable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "declutr.training.exact_resume"):
        resume(2, 0).train()
        assert "begun with seed" not in caplog.text
        resume(2, 0, seed=8).train()
    assert "begun with seed 7 and goes on with 8" in caplog.text


def test_steps_of_another_size_warn_within_an_epoch(
    resume: Callable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With three processes in place of one, the same number of batches are other documents."""
    told = "began with steps of 10 documents, and goes on after 1 of them with steps of 30"
    caplog.set_level(logging.WARNING, "declutr.training.resumed_data")
    for processes in (1, 3):
        place = "declutr.training.resumed_data.world_size"
        monkeypatch.setattr(place, lambda processes=processes: processes)
        trainer = resume(0, 1)
        trainer._maybe_restore_checkpoint()
        callback = next(one for one in trainer._callbacks if isinstance(one, ExactResume))
        callback.on_start(trainer)
        assert (told in caplog.text) is (processes == 3)


def test_other_training_data_warn(
    straight: tuple, resume: Callable, corpus_file: Path, tmp_path: Path, caplog: Any
) -> None:
    """As many documents in another order: no figure of the run would tell."""
    with caplog.at_level(logging.WARNING, "declutr.training.resumed_data"):
        resume(2, 0).train()
        assert "training data" not in caplog.text
        trainer = resume(2, 0)
        others = tmp_path / "others.txt"
        others.write_text("\n".join(reversed(corpus_file.read_text().splitlines())) + "\n")
        trainer.data_loader.data_path = str(others)  # type: ignore[attr-defined]
        trainer.train()
    assert caplog.text.count("has changed since the last checkpoint: the run goes on with") == 1
    assert str(others) in caplog.text


def test_a_resumed_run_uses_the_same_kernels_or_warns(
    straight: tuple, make_trainer: Callable, tmp_path: Path, caplog: Any, monkeypatch: Any
) -> None:
    memory = straight[0]
    monkeypatch.setattr(CHOICES, "_taken", {"a product, 1 threads": "onednn"})
    run = tmp_path / "run"
    make_trainer(run, memory=memory, num_epochs=1).train()
    CHOICES.forget()
    with caplog.at_level(logging.WARNING, "declutr.training.exact_resume"):
        make_trainer(run, memory=memory).train()
        assert "not to the bit" not in caplog.text
        assert CHOICES.taken() == {"a product, 1 threads": "onednn"}
        monkeypatch.setattr("declutr.system.kernel_choices.processor", lambda: "another processor")
        make_trainer(run, memory=memory).train()
    assert "not to the bit: its processor was" in caplog.text
    assert "is another processor now" in caplog.text


def test_skipped_batches_are_not_read(resume: Callable) -> None:
    trainer: Any = resume(1, 2, num_epochs=2)
    read: list[tuple[int, int]] = []
    reader = trainer.data_loader.reader
    packed = reader.packed

    def spy(path: Any, rows: Any, epoch: int = 0) -> Any:
        read.extend((epoch, int(row)) for row in rows)
        return packed(path, rows, epoch)

    reader.packed = spy
    trainer.train()
    order = trainer.data_loader.order(1)
    trained = [(1, int(row)) for row in order[2 * 2 * 5 :]]
    assert read[: len(trained)] == trained
    assert len(read) == len(trained) + 24  # and the validation of that epoch


def test_steps_and_processes_draw_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(epoch: int, step: int, rank: int = 0, seed: int = 7) -> float:
        monkeypatch.setattr("declutr.training.exact_resume.process_rank", lambda: rank)
        ExactResume("", seed)._reseed(epoch, step)
        return torch.rand(()).item()

    places = [(0, 0), (0, 1), (1, 0), (0, 0, 1), (0, 1, 1), (0, 0, 0, 8)]
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(3, 5, 1) == drawn(3, 5, 1)


def test_other_models_and_loaders_can_be_resumed(tmp_path: Path) -> None:
    callback = TrainerCallback.from_params(
        Params({"type": "exact_resume", "seed": 3}), serialization_dir=str(tmp_path)
    )
    trainer: Any = SimpleNamespace(
        model=torch.nn.Linear(1, 1),
        data_loader=SimpleDataLoader([], batch_size=1),
        _validation_data_loader=None,
        _start_after_epochs_completed=0,
        _start_after_batches_in_epoch_completed=0,
        _num_gradient_accumulation_steps=1,
        _train_epoch=lambda epoch: {"loss": 1.0},
        get_checkpoint_state=lambda: None,
        _callbacks=[],
        cuda_device=torch.device("cpu"),
    )
    assert callback.state_dict() == {"seed": 3, "kernels": CHOICES.record()}
    callback.load_state_dict({"seed": 3, "means": None})
    callback.on_start(trainer)
    assert trainer._train_epoch(0) == {"loss": 1.0}
    callback.on_epoch(trainer, {}, 0)
    assert callback.state_dict()["means"] is None
    trainer._num_gradient_accumulation_steps = None
    with pytest.raises(ConfigurationError, match=r"_steps is null, .* needs the number of batches"):
        callback.on_start(trainer)


def test_losses_of_two_processes_go_on_in_one() -> None:
    """Each of them took two steps; the mean is over all four and the one step since."""
    model: Any = torch.nn.Linear(1, 1)
    model.get_regularization_penalty = lambda: None
    trainer: Any = SimpleNamespace(
        model=model,
        _start_after_epochs_completed=0,
        _start_after_batches_in_epoch_completed=2,
        _batches_in_epoch_completed=2,
        _num_gradient_accumulation_steps=1,
        cuda_device=torch.device("cpu"),
    )
    trainer._train_epoch = lambda epoch: figures.add([1], [1], {"batch_loss": 3.0}) or {"loss": 3.0}
    figures = EpochFigures(trainer, {"sums": [[4.0, 0.0], [6.0, 0.0]], "left_out": []})
    assert trainer._train_epoch(0) == {"loss": (4.0 + 6.0 + 3.0) / 5}


def test_losses_of_all_processes_are_known_after_a_step_with_fewer_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All have as many batches in a step, so that all of them take part in its checkpoint."""
    monkeypatch.setattr("declutr.training.epoch_figures.world_size", lambda: 2)
    monkeypatch.setattr("declutr.training.epoch_figures.of_all_processes", lambda own: [own, own])
    trainer: Any = SimpleNamespace(
        model=torch.nn.Linear(1, 1),
        _start_after_epochs_completed=0,
        _total_batches_completed=1,
        _num_gradient_accumulation_steps=2,
        _train_epoch=None,
    )
    figures = EpochFigures(trainer, None)
    figures.add([1], [1], {"batch_loss": 3.0})
    figures.gather()
    assert figures.state_dict()["sums"] == [[3.0, 0.0], [3.0, 0.0]]


@pytest.mark.parametrize(
    ("before", "known", "now", "counted", "lacks"),
    [
        (1, True, 1, 1, False),
        (2, True, 2, 1 + 2, False),
        (1, True, 2, 1, False),
        (2, True, 1, 1, True),
        (2, True, 3, 1, True),
        (2, False, 2, 1, True),  # checkpoints up to 2.4.8
    ],
)
def test_a_part_of_a_metric_counts_once(
    before: int, known: bool, now: int, counted: int, lacks: bool, monkeypatch: Any, caplog: Any
) -> None:
    """A process r had counted r + 1 texts in its own metric; that of AllenNLP has all of them."""

    def counting(texts: int) -> Any:
        model: Any = torch.nn.Linear(1, 1)
        model.own, model.shared = ClassMetrics(2), CategoricalAccuracy()
        model.own(torch.zeros(texts, dtype=torch.long), torch.zeros(texts, dtype=torch.long))
        model.shared(torch.eye(2), torch.tensor([0, 1]))
        return model

    states = [metric_states(counting(rank + 1))[0] for rank in range(before)]
    saved: dict[str, Any] = {"metrics": states[0], "left_out": []}
    saved["sums"] = [[0.0, 0.0]] * before if known else None
    if known:
        saved["metrics_of_others"] = [differing_states(one, states[0]) for one in states[1:]]
    total = 0
    monkeypatch.setattr("declutr.training.epoch_figures.world_size", lambda: now)
    for rank in range(now):
        monkeypatch.setattr("declutr.training.epoch_figures.process_rank", lambda rank=rank: rank)
        trainer: Any = SimpleNamespace(
            model=counting(0),
            _start_after_epochs_completed=0,
            _start_after_batches_in_epoch_completed=1,
            cuda_device=torch.device("cpu"),
            _train_epoch=None,
        )
        trainer.model.shared.reset()
        EpochFigures(trainer, saved)
        own = trainer.model.own._counts
        total += 0 if own is None else int(own.sum())
        assert trainer.model.shared.get_metric() == 1.0
    assert total == counted
    assert ("what these were at: own" in caplog.text) is lacks


@pytest.mark.parametrize("is_primary", [True, False])
def test_all_processes_restore_best_weights_and_the_first_writes_them(
    is_primary: bool, tmp_path: Path
) -> None:
    """The run was killed after a checkpoint and before its best weights, which are sharded."""
    asked = []
    wrapped = SimpleNamespace(state_dict=lambda: asked.append(1) or {"w": torch.ones(1)})
    trainer: Any = SimpleNamespace(
        _serialization_dir=str(tmp_path),
        _metric_tracker=SimpleNamespace(is_best_so_far=lambda: True),
        _moving_average=None,
        _ddp_wrapped_model=wrapped,
        _primary=is_primary,
    )
    _restore_best(trainer)
    assert asked == [1] and (tmp_path / "best.th").exists() is is_primary
    assert trainer._best_model_filename == str(tmp_path / "best.th")
    trainer._metric_tracker.is_best_so_far = lambda: False
    _restore_best(trainer)
    assert asked == [1]
