"""Evaluation during training does not affect it, finds the best step, and can be resumed."""

import json
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models.archival import load_archive
from allennlp.training import TrainerCallback

import declutr.training.evaluation_tasks as module
from declutr.evaluation.scores import spearman
from declutr.evaluation.task import BadEmbeddings
from declutr.inference.encoder import Encoder
from declutr.models.declutr import DeCLUTR
from declutr.training.checkpointer import AtomicCheckpointer
from declutr.training.evaluation_callback import EvaluateEmbeddings
from tests import two_processes
from tests.conftest import run_config, shared_by_workers
from tests.evaluation_runs import TEXTS, Scripted, several, these_tasks, write_benchmark

pytestmark = pytest.mark.slow

STEPS = 3  # an epoch: 24 documents in batches of 8
ALL = 2 * STEPS
LEVEL = "scripted/level"


class Killed(BaseException):
    """An exception that no code catches, like SIGKILL."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmark(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "all_tasks", these_tasks)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the scores of the task "scripted", the first for the start."""
    return lambda *values: monkeypatch.setattr(Scripted, "script", values)


@pytest.fixture(scope="module")
def configured(checkpoint: Path, corpus_file: Path, data: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that configures a run of two epochs with a checkpoint after each step."""

    def make(
        settings: dict[str, Any] | None,
        trainer: dict[str, Any] | None = None,
        resume: bool = True,
        validate: bool = True,
    ) -> dict[str, Any]:
        callbacks = [{"type": "exact_resume"}] if resume else []
        if settings is not None:
            callbacks.append({"type": "evaluate_embeddings", "data": str(data), **settings})
        config = run_config(checkpoint, corpus_file)
        config["trainer"] |= {
            "num_epochs": 2,
            "checkpointer": {
                "type": "atomic",
                "save_every_num_batches": 1,
                "keep_most_recent_by_count": None,
            },
            "callbacks": callbacks,
            **(trainer or {}),
        }
        if validate:
            config["validation_data_path"] = str(corpus_file)
        return config

    return make


def run(config: dict[str, Any], folder: Path, recover: bool = False) -> DeCLUTR:
    model = train_model(Params(json.loads(json.dumps(config))), str(folder), recover=recover)
    assert isinstance(model, DeCLUTR)
    return model


def weights(folder: Path, step: int | None = None) -> dict[str, Any]:
    """Return the best weights, or the weights after a step."""
    name = "best.th"
    if step is not None:
        name = f"model_state_e{step // STEPS}_b{step % STEPS}.th"
    return torch.load(folder / name)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def evaluations(folder: Path) -> dict[int, dict[str, float]]:
    """Return the scores of each evaluation by its step."""
    records = [json.loads(file.read_text()) for file in (folder / "evaluations").iterdir()]
    return {record["step"]: record["scores"] for record in sorted(records, key=lambda r: r["step"])}


def log(folder: Path) -> str:
    return (folder / "out.log").read_text()


def metrics(folder: Path, epoch: int | None = None) -> dict[str, Any]:
    name = "metrics.json" if epoch is None else f"metrics_epoch_{epoch}.json"
    return json.loads((folder / name).read_text())


# ------------------------------------------------------------------------- nothing is disturbed

DRAWING = {"tasks": ["drawing"], "every_num_steps": 1}


@pytest.fixture(scope="module", params=[True, False], ids=["exact_resume", "plain"])
def alone(
    request: pytest.FixtureRequest, configured: Callable, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, Path]:
    """Train without evaluation and "exact_resume", so that all random numbers are one sequence."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    run(configured(None, resume=request.param), folder)
    return request.param, folder


def test_training_is_the_same_bit_for_bit(
    alone: tuple[bool, Path], configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    resume, folder = alone
    run(configured(DRAWING, resume=resume), tmp_path / "run")
    assert list(evaluations(tmp_path / "run")) == list(range(ALL + 1))
    for step in range(1, ALL + 1):
        assert same(weights(tmp_path / "run", step), weights(folder, step)), step
    assert same(weights(tmp_path / "run"), weights(folder))
    for epoch in range(2):
        ours, theirs = metrics(tmp_path / "run", epoch), metrics(folder, epoch)
        kept = [k for k in theirs if "duration" not in k and "memory" not in k]
        assert {k: ours[k] for k in kept} == {k: theirs[k] for k in kept}
        added = {"validation_drawing/norm", "validation_drawing/drawn"}
        added |= {f"best_{name}" for name in added} if ours["best_epoch"] == epoch else set()
        assert set(ours) - set(theirs) >= added
        assert all("drawing" in name for name in set(ours) - set(theirs))


def test_draws_of_a_task_would_change_training_if_not_restored(
    alone: tuple, configured: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This shows that the test above could fail."""
    resume, folder = alone

    @contextmanager
    def careless(model: torch.nn.Module, *_: Any) -> Any:
        model.eval()
        with torch.enable_grad():
            yield
        model.train()

    monkeypatch.setattr(module, "undisturbed", careless)
    run(configured(DRAWING, resume=resume), tmp_path / "run")
    assert not same(weights(tmp_path / "run", ALL), weights(folder, ALL))


def test_a_task_draws_the_same_every_time(configured: Callable, tmp_path: Path) -> None:
    run(configured(DRAWING, resume=False), tmp_path / "run")
    drawn = {scores["drawing/drawn"] for scores in evaluations(tmp_path / "run").values()}
    norms = {scores["drawing/norm"] for scores in evaluations(tmp_path / "run").values()}
    assert len(drawn) == 1 and len(norms) == ALL + 1


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        ),
    ],
)
def test_modes_and_numbers_come_back_even_after_an_error(device: str, training: bool) -> None:
    inner = torch.nn.Dropout()
    model = torch.nn.Sequential(inner, torch.nn.Linear(1, 1)).train(training)
    inner.training = not training  # as a transformer that is kept in evaluation mode
    torch.manual_seed(3)
    expected = [torch.rand(1, device=device) for _ in range(2)]
    torch.manual_seed(3)
    assert torch.rand(1, device=device) == expected[0]
    with (
        pytest.raises(KeyError),
        torch.no_grad(),
        module.undisturbed(model, torch.device(device), 1),
    ):
        assert not model.training and not inner.training and torch.is_grad_enabled()
        torch.rand(5, device=device)
        raise KeyError
    assert (model.training, inner.training) == (training, not training)
    assert torch.rand(1, device=device) == expected[1]


# ------------------------------------------------------------------- steps and places of scores


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, [0, 3, 6]),
        ({"every_num_steps": 2}, [0, 2, 3, 4, 6]),
        ({"every_num_steps": 5, "every_num_epochs": 2}, [0, 5, 6]),
        ({"every_num_epochs": 3}, [0, 6]),
    ],
)
@pytest.mark.parametrize("validate", [True, False])
def test_evaluations_take_place_at_the_right_steps(
    settings: dict, expected: list, validate: bool, configured: Callable, tmp_path: Path
) -> None:
    run(configured({"tasks": ["drawing"], **settings}, validate=validate), tmp_path / "run")
    done = evaluations(tmp_path / "run")
    assert list(done) == expected
    for epoch, step in ((0, 3), (1, 6)):
        recorded = metrics(tmp_path / "run", epoch)
        if step in expected:
            assert recorded["validation_drawing/norm"] == done[step]["drawing/norm"]
        else:
            assert "validation_drawing/norm" not in recorded


def test_no_epoch_is_recorded_with_scores_of_an_earlier_one(
    configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    settings = {"tasks": ["drawing"], "every_num_epochs": 2}
    config = configured(settings, {"num_epochs": 4}, validate=False)
    run(config, tmp_path / "run")
    recorded = [metrics(tmp_path / "run", epoch) for epoch in range(4)]
    found = ["validation_drawing/norm" in of_epoch for of_epoch in recorded]
    assert found == [False, True, False, True]


def test_a_run_in_a_moved_folder_keeps_its_own_best_weights(
    configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """The best step is before the move, and another run uses the old folder."""
    settings = {"tasks": ["drawing"], "every_num_steps": 1, "select_by": "drawing/norm"}
    config = configured(settings, {"num_epochs": 1}, validate=False)
    run(config, tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "moved")
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "best.th").write_bytes(b"other weights")
    (tmp_path / "moved" / "model.tar.gz").unlink()
    best = weights(tmp_path / "moved")
    model = run(config, tmp_path / "moved", recover=True)
    assert same(best, dict(model.state_dict()))


def test_scores_at_the_end_are_those_of_the_archive(
    configured: Callable[..., dict[str, Any]], data: Path, tmp_path: Path
) -> None:
    """STS-B at the end of training equals STS-B computed from the trained model."""
    run(configured({"tasks": ["STS-B"], "batch_size": 4}, validate=False), tmp_path / "run")
    file = data / "downstream" / "STS" / "STSBenchmark" / "sts-dev.csv"
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    encoder = Encoder(tmp_path / "run", cuda_device=-1)
    first, second = (encoder([row[column] for row in rows]) for column in (5, 6))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    expected = 100 * spearman(
        (first * second).sum(axis=1) / lengths, np.array([float(row[4]) for row in rows])
    )
    name = "STS-B/cosine Spearman dev"
    assert evaluations(tmp_path / "run")[ALL][name] == pytest.approx(expected, abs=1e-9)
    assert metrics(tmp_path / "run")[f"validation_{name}"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("first", [True, False])
def test_scores_are_written_to_tensorboard_and_the_log(
    first: bool, configured: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The callback may come before or after the log writer in the configuration."""
    from tensorboardX import SummaryWriter

    written: list[tuple[str, float, int]] = []
    add_scalar = SummaryWriter.add_scalar

    def recorded(self: Any, tag: str, value: float, step: int) -> None:
        written.append((tag, value, step))
        add_scalar(self, tag, value, step)

    monkeypatch.setattr(SummaryWriter, "add_scalar", recorded)
    config = configured({"tasks": ["drawing"], "every_num_steps": 4}, validate=False)
    config["trainer"]["callbacks"].insert(2 if first else 0, {"type": "tensorboard"})
    run(config, tmp_path / "run")
    done = evaluations(tmp_path / "run")
    norms = [entry[1:] for entry in written if entry[0] == "validation_scores/drawing/norm"]
    # AllenNLP counts steps from 1 there.
    assert norms == [(done[step]["drawing/norm"], step + 1) for step in (0, 3, 4, 6)]
    files = list((tmp_path / "run" / "log" / "validation").iterdir())
    assert any(b"validation_scores/drawing/norm" in file.read_bytes() for file in files)
    value = f"{done[4]['drawing/norm']:.2f}"
    assert re.search(rf"After 4 steps \(\d+ s\): drawing/norm {value}\n", log(tmp_path / "run"))


def test_sentences_are_read_whole_without_changing_the_reader(
    configured: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy of the reader reads sentences whole, in the order of their lengths."""
    seen: list[Any] = []
    outcome = module.EvaluationTasks.outcome

    def spy(self: Any, trainer: Any) -> Any:
        reader = trainer.data_loader.reader
        with module.undisturbed(trainer.model, trainer.cuda_device, 0):
            embeddings = module.text_encoder(trainer, 2)(TEXTS)
            one_by_one = [module.text_encoder(trainer, 1)([text]) for text in TEXTS]
        seen.append((reader.sample_spans, embeddings, np.concatenate(one_by_one)))
        return outcome(self, trainer)

    monkeypatch.setattr(module.EvaluationTasks, "outcome", spy)
    run(configured({"tasks": ["drawing"]}), tmp_path / "run")
    assert len(seen) == 3
    for sample_spans, embeddings, expected in seen:
        assert sample_spans and embeddings.dtype == np.float32
        np.testing.assert_allclose(embeddings, expected, atol=1e-6)


# ------------------------------------------------------------------------------------ selection


@pytest.mark.parametrize(
    "select_by, values, best",
    [
        (LEVEL, (0, 1, 5, 2, 5, 4, 3), 2),  # an equal one does not count
        (f"+{LEVEL}", (0, 1, 2, 3, 4, 5, 6), 6),
        (f"-{LEVEL}", (9, 4, 5, 3, 1, 1, 2), 4),
        (LEVEL, (0, float("nan"), 1, float("nan"), 0, 0, 0), 2),
        (LEVEL, (0, 1, BadEmbeddings("no numbers"), 2, 0, 0, 0), 3),
    ],
)
@pytest.mark.parametrize("validate", [True, False])
def test_best_weights_are_those_of_the_best_step(
    select_by: str,
    values: tuple[float, ...],
    best: int,
    validate: bool,
    script: Callable[..., None],
    configured: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    script(*values)
    settings = {"tasks": ["scripted"], "every_num_steps": 1, "select_by": select_by}
    model = run(configured(settings, validate=validate), tmp_path / "run")
    chosen = weights(tmp_path / "run", best)
    assert same(weights(tmp_path / "run"), chosen)
    assert same(model.state_dict(), chosen)
    assert same(load_archive(tmp_path / "run").model.state_dict(), chosen)
    recorded = metrics(tmp_path / "run")
    assert (recorded["best_step"], recorded["best_epoch"]) == (best, (best - 1) // STEPS)
    assert recorded[f"best_validation_{LEVEL}"] == values[best]
    if any(isinstance(value, Exception) for value in values):
        assert "a task could not be scored: scripted: no numbers." in log(tmp_path / "run")
        assert f"{LEVEL} is nan: these weights cannot be chosen" in log(tmp_path / "run")
    assert log(tmp_path / "run").count("(the best so far)\n") >= 1


@pytest.mark.parametrize(
    "select_by, values", [(LEVEL, (5, 1, 5, 2, 4, 4, 3)), (f"-{LEVEL}", (1, 2, 3, 4, 5, 6, 7))]
)
def test_a_run_that_only_gets_worse_keeps_its_initial_weights(
    select_by: str,
    values: tuple[float, ...],
    script: Callable[..., None],
    configured: Callable[..., dict[str, Any]],
    interrupted: Callable[..., None],
    tmp_path: Path,
) -> None:
    """It may be killed before its first checkpoint, at the end of an epoch, or at its end."""
    told = f"{LEVEL} was {values[0]:.2f} at the start and never better afterwards"
    average = {"moving_average": {"type": "exponential", "decay": 0.5}}
    config = configured(
        {"tasks": ["scripted"], "every_num_steps": 1, "select_by": select_by},
        average if select_by == LEVEL else None,
    )
    script(*values)
    kept = run(config, tmp_path / "run")
    still = configured(None, {"num_epochs": 1})
    still["trainer"]["optimizer"]["lr"] = 0.0
    assert same(kept.state_dict(), dict(run(still, tmp_path / "still").state_dict()))
    assert same(weights(tmp_path / "run"), kept.state_dict())
    recorded = metrics(tmp_path / "run")
    assert (recorded["best_step"], recorded[f"best_validation_{LEVEL}"]) == (0, values[0])
    assert log(tmp_path / "run").count(told) == 1
    for step in (1, STEPS, ALL) if select_by == LEVEL else ():
        folder = tmp_path / str(step)
        script(*values)
        interrupted(config, folder, step)
        assert told not in log(folder)
        script(*(values if step == 1 else values[step:]))
        run(config, folder, recover=True)
        assert same(weights(folder), kept.state_dict())
        assert metrics(folder)["best_step"] == 0 and log(folder).count(told) == 1


def test_select_start_false_excludes_the_initial_weights(
    script: Callable[..., None], configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """The choice is then as before release 1.6."""
    script(9, 1, 5, 2, 5, 4, 3)
    settings = {"tasks": ["scripted"], "every_num_steps": 1, "select_by": LEVEL}
    run(configured({**settings, "select_start": False}), tmp_path / "run")
    assert metrics(tmp_path / "run")["best_step"] == 2
    assert "at the start" not in log(tmp_path / "run")


def test_with_a_moving_average_its_weights_are_scored_and_kept(
    configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    settings = {"tasks": ["drawing"], "every_num_steps": 2, "select_by": "drawing/norm"}
    average = {"moving_average": {"type": "exponential", "decay": 0.5}}
    run(configured(settings, average), tmp_path / "run")
    done = evaluations(tmp_path / "run")
    step = metrics(tmp_path / "run")["best_step"]
    assert done[step] == max((done[s] for s in (2, 3, 4, 6)), key=lambda s: s["drawing/norm"])
    assert not same(weights(tmp_path / "run"), weights(tmp_path / "run", step))
    embeddings = Encoder(tmp_path / "run", cuda_device=-1, dtype="float32")(TEXTS)
    norm = np.linalg.norm(embeddings, axis=1).mean()
    assert norm == pytest.approx(done[step]["drawing/norm"], rel=1e-6)

    run(configured(None, average), tmp_path / "alone")
    for step in range(1, ALL + 1):
        assert same(weights(tmp_path / "run", step), weights(tmp_path / "alone", step))


def test_the_trainer_may_choose_the_epoch_by_a_score(
    script: Callable[..., None], configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    script(9, 2, 1)
    config = configured({"tasks": ["scripted"]}, {"validation_metric": f"+{LEVEL}"})
    run(config, tmp_path / "run")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "run", STEPS))
    recorded = metrics(tmp_path / "run")
    assert (recorded["best_epoch"], recorded[f"best_validation_{LEVEL}"]) == (0, 2)
    assert recorded[f"validation_{LEVEL}"] == 1


def test_patience_with_the_best_step(
    script: Callable[..., None], configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Epochs without an improvement end training; the best step may be within an epoch."""
    script(0, 3, 2, 7, 1, 1)  # the start; steps 2 and 3; 4, 6 and then no more
    config = configured(
        {"tasks": ["scripted"], "every_num_steps": 2, "select_by": LEVEL},
        {"validation_metric": f"+{LEVEL}", "patience": 1, "num_epochs": 9},
    )
    run(config, tmp_path / "run")
    assert list(evaluations(tmp_path / "run")) == [0, 2, 3, 4, 6]
    assert same(weights(tmp_path / "run"), weights(tmp_path / "run", 4))
    assert metrics(tmp_path / "run")["best_step"] == 4


def test_an_epoch_that_ends_early_is_evaluated(
    script: Callable[..., None], configured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """There are best weights whenever training ends."""
    script(0, 5)
    config = configured(
        {"tasks": ["scripted"], "every_num_epochs": 8, "select_by": LEVEL},
        {"validation_metric": "+mlm_accuracy", "patience": 1, "num_epochs": 9},
    )
    config["trainer"]["optimizer"]["lr"] = 0.0  # never better than in the first epoch
    config["validation_data_loader"] = {**config["data_loader"], "resample": False}
    run(config, tmp_path / "run")
    assert list(evaluations(tmp_path / "run")) == [0, ALL]
    assert (tmp_path / "run" / "model.tar.gz").exists()


# --------------------------------------------------------------------------------------- resume


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any], Path, int], None]:
    """Return a function that trains until a step is evaluated but not yet in a checkpoint."""
    save = AtomicCheckpointer.maybe_save_checkpoint

    def train(config: dict[str, Any], folder: Path, step: int) -> None:
        def killed(self: Any, trainer: Any, *done: int) -> bool:
            if trainer._total_batches_completed == step:
                raise Killed
            return save(self, trainer, *done)

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(AtomicCheckpointer, "maybe_save_checkpoint", killed)
            run(config, folder)

    return train


NORM = {"tasks": ["drawing"], "every_num_steps": 1, "select_by": "-drawing/norm"}


@pytest.mark.parametrize("validate", [True, False])
def test_a_resumed_run_chooses_what_it_would_have_chosen(
    validate: bool, configured: Callable, interrupted: Callable, tmp_path: Path
) -> None:
    """It may be killed right after writing the best weights, or at any other step."""
    config = configured(NORM, validate=validate)
    run(config, tmp_path / "straight")
    expected = evaluations(tmp_path / "straight")
    for step in range(2, ALL + 1):
        folder = tmp_path / str(step)
        interrupted(config, folder, step)
        assert not (folder / "model.tar.gz").exists()
        run(config, folder, recover=True)
        assert evaluations(folder) == expected
        assert same(weights(folder), weights(tmp_path / "straight"))
        ours, theirs = metrics(folder), metrics(tmp_path / "straight")
        best = [name for name in theirs if "drawing" in name or name.startswith("best_step")]
        assert {k: ours[k] for k in best} == {k: theirs[k] for k in best}


def test_a_resumed_run_keeps_the_best_weights_so_far(
    configured: Callable, interrupted: Callable, script: Callable, tmp_path: Path
) -> None:
    config = configured({"tasks": ["scripted"], "every_num_steps": 1, "select_by": LEVEL})
    script(0, 1, 8, 2, 3)
    interrupted(config, tmp_path / "run", 4)
    script(5, 6, 7)  # from step 4 on
    run(config, tmp_path / "run", recover=True)
    assert metrics(tmp_path / "run")["best_step"] == 2
    assert same(weights(tmp_path / "run"), weights(tmp_path / "run", 2))
    assert [s[LEVEL] for s in evaluations(tmp_path / "run").values()] == [0, 1, 8, 2, 5, 6, 7]


def test_missing_best_weights_are_warned_of_and_selected_anew(
    configured: Callable, interrupted: Callable, script: Callable, tmp_path: Path
) -> None:
    config = configured({"tasks": ["scripted"], "every_num_steps": 1, "select_by": LEVEL})
    script(0, 1, 8, 2, 3)
    interrupted(config, tmp_path / "run", 4)
    (tmp_path / "run" / "best.th").unlink()
    script(6, 5, 4, 3)  # after step 3 once more, then from step 4 on
    run(config, tmp_path / "run", recover=True)
    assert "The choice begins anew, with the weights of the checkpoint" in log(tmp_path / "run")
    assert metrics(tmp_path / "run")["best_step"] == 3
    assert same(weights(tmp_path / "run"), weights(tmp_path / "run", 3))


def test_a_resumed_run_with_another_select_by_begins_the_choice_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback = EvaluateEmbeddings("", "data", ["drawing"], select_by="drawing/drawn")
    best = {"value": 1.0, "step": 2, "epoch": 0, "scores": {}}
    state = {"done": 3, "step": 3, "scores": {"a/b": 1.0}, "select_by": "a/b", "best": best}
    callback.load_state_dict(state)
    assert "chosen by a/b; from here on by drawing/drawn" in caplog.text
    assert callback.state_dict()["best"] is None
    callback = EvaluateEmbeddings("", "data", ["drawing"], select_by="a/b")
    callback.load_state_dict(state)  # of release 1.5, without the scores of the start
    assert callback.state_dict() == {**state, "done": 0, "start": {}}
    callback.load_state_dict({})  # of a run that was begun without evaluation
    assert callback.state_dict()["scores"] == {}


# --------------------------------------------------------------------------- mistakes, right away


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"tasks": ["nothing*"]}, r"'nothing\*'.*Tasks: .*STS-B, .*drawing"),
        ({"tasks": ["MR", "drawing"]}, r"1 of 2 tasks.*MR: .*downstream.* is not there\. Complete"),
        ({"tasks": ["drawing"], "data": "/nowhere"}, r"no folder '/nowhere'.*laid out as SentEval"),
        ({"tasks": ["scripted"]}, r"cannot be scored: scripted: no numbers\. Repair"),
        (
            {"tasks": ["drawing"], "select_by": "drawing/nrom"},
            r"no score 'drawing/nrom' to choose by.*drawing/drawn, drawing/norm",
        ),
    ],
)
def test_a_mistake_shows_before_the_first_step(
    settings: dict, message: str, script: Callable, configured: Callable, tmp_path: Path
) -> None:
    script(BadEmbeddings("no numbers"))
    with pytest.raises(ConfigurationError, match=message):
        run(configured(settings), tmp_path / "run")
    assert not list((tmp_path / "run").glob("*_state_*.th"))


def test_a_folder_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data/downstream/MR").mkdir(parents=True)
    callback = EvaluateEmbeddings(str(tmp_path), str(tmp_path / "data/downstream"), ["MR"])
    with pytest.raises(ConfigurationError, match=rf"is downstream/ itself, .*'{tmp_path}/data'"):
        callback._tasks.read()


@pytest.mark.parametrize(
    "settings, validate, metric, message",
    [
        ({}, False, "+drawing/norm", "without validation_data_path.*Use select_by"),
        ({"every_num_epochs": 2}, True, "+drawing/norm", "set every_num_epochs to 1, not 2"),
        ({}, True, "+drawing/form", "no score 'drawing/form'"),
    ],
)
def test_a_validation_metric_that_will_be_missing_is_refused(
    settings: dict, validate: bool, metric: str, message: str, configured: Callable, tmp_path: Path
) -> None:
    config = configured(
        {"tasks": ["drawing"], **settings}, {"validation_metric": metric}, validate=validate
    )
    with pytest.raises(ConfigurationError, match=message):
        run(config, tmp_path / "run")


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"every_num_steps": 0}, "every_num_steps must be at least 1, got 0"),
        ({"every_num_epochs": 0}, "every_num_epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"protocol": "quick"}, "Unknown protocol 'quick': expected one of published, prototyping"),
        ({"tasks": []}, "There are no tasks"),
    ],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    params = {"type": "evaluate_embeddings", "data": "data", "tasks": ["STS*"], **settings}
    with pytest.raises(ConfigurationError, match=message):
        TrainerCallback.from_params(Params(params), serialization_dir="")


def test_other_models_and_readers_are_refused() -> None:
    callback = EvaluateEmbeddings("", "data", ["STS*"], select_by=LEVEL)
    trainer: Any = SimpleNamespace(model=torch.nn.Linear(1, 1), data_loader=SimpleNamespace())
    with pytest.raises(ConfigurationError, match="got Linear in place of DeCLUTR"):
        callback.on_start(trainer)
    trainer.model = DeCLUTR.__new__(DeCLUTR)
    with pytest.raises(ConfigurationError, match="NoneType in place of RowReader"):
        callback.on_start(trainer)


# -------------------------------------------------------------------------------- two processes

DDP, FSDP = {"type": "torch"}, {"type": "fsdp"}
SCRIPTED = {"tasks": ["scripted", "drawing"], "every_num_steps": 1, "select_by": LEVEL}
VALUES = [0.0, 1.0, 5.0, 2.0, 3.0, 4.0, 1.0]


def halved(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that gives two processes as many steps as one has."""
    config["data_loader"]["batch_size"] //= 2
    return config


@pytest.fixture(scope="module")
def together(
    configured: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[list[dict]]]:
    """Train in two processes, in one pytest worker only, and return what each process did."""
    with shared_by_workers(tmp_path_factory, "evaluated_by_two") as folder:
        if not folder.exists():
            folder.mkdir()
            cases = [
                (halved(configured(settings)), str(folder / name), options, VALUES)
                for name, settings, options in (
                    ("ddp alone", None, DDP),
                    ("ddp", SCRIPTED, DDP),
                    ("fsdp alone", None, FSDP),
                    ("fsdp", SCRIPTED, FSDP),
                )
            ]
            for config, name, _, _ in cases:
                if name.endswith("alone"):
                    config["trainer"]["callbacks"].insert(0, {"type": "run_record"})
            torch.save(two_processes.run(several, cases), folder / "done.pt")
    return folder, torch.load(folder / "done.pt", weights_only=False)


@pytest.mark.parametrize("kind, evaluated", [("ddp", [ALL + 1, 0]), ("fsdp", [ALL + 1, ALL + 1])])
def test_two_processes_agree_on_scores_and_best_weights(
    kind: str, evaluated: list[int], together: tuple[Path, list[list[dict]]]
) -> None:
    """One process evaluates, or both if the model is sharded; training is not affected."""
    folder, done = together
    case = ["ddp alone", "ddp", "fsdp alone", "fsdp"].index(kind)
    assert [process[case]["evaluations"] for process in done] == evaluated
    for step in range(1, ALL + 1):
        assert same(weights(folder / kind, step), weights(folder / f"{kind} alone", step))
    assert same(weights(folder / kind), weights(folder / kind, 2))
    assert [s[LEVEL] for s in evaluations(folder / kind).values()] == VALUES
    assert metrics(folder / kind, 1)["best_step"] == 2


def test_processes_validate_the_start_together(
    together: tuple, configured: Callable, tmp_path: Path
) -> None:
    """Two processes get the metrics of one."""
    config = configured(None, {"num_epochs": 1})
    config["trainer"]["callbacks"].insert(0, {"type": "run_record"})
    run(config, tmp_path / "one")
    done = [tmp_path / "one", together[0] / "ddp alone", together[0] / "fsdp alone"]
    starts = [json.loads((folder / "run.json").read_text())["start"] for folder in done]
    name = "validation_contrastive_loss"  # masks differ by process
    assert [start[name] for start in starts] == pytest.approx([starts[0][name]] * 3, rel=1e-4)


def test_a_sharded_model_has_the_same_scores(together: tuple[Path, list[list[dict]]]) -> None:
    folder, _ = together
    spread, whole = (evaluations(folder / kind) for kind in ("fsdp", "ddp"))
    for step, scores in whole.items():
        assert spread[step] == pytest.approx(scores, rel=1e-4)
