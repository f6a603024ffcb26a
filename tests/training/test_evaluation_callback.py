"""Evaluation during training does not affect it, finds the best step, and can be resumed."""

import json
import re
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models.archival import load_archive
from allennlp.training import TrainerCallback

import declutr.training.evaluation_tasks as module
from declutr.evaluation.scores import spearman
from declutr.evaluation.task import BadEmbeddings
from declutr.inference.encoder import Encoder
from declutr.models.declutr import DeCLUTR
from declutr.training.evaluation_callback import EvaluateEmbeddings
from tests import two_processes
from tests.conftest import run_config, shared_by_workers, table_config
from tests.evaluation_runs import TEXTS, Scripted, several, these_tasks, write_benchmark
from tests.training.whole_runs import STEPS, Run, same

pytestmark = pytest.mark.slow

ALL = 2 * STEPS
LEVEL = "scripted/level"
DRAWING = {"tasks": ["drawing"], "every_num_steps": 1}
SELECTING = {"tasks": ["scripted"], "every_num_steps": 1, "select_by": LEVEL}
STEPS_ALONE = {"every_num_epochs": None, "select_start": False}
AVERAGE = {"moving_average": {"type": "exponential", "decay": 0.5}}


def with_and_without_validation(cases: dict[str, tuple], both: tuple[str, ...]) -> list[Any]:
    """Return each case with validation and without; the second is long but for `both`."""
    return [
        pytest.param(*case, validate, id=f"{name}-{validate}", marks=[pytest.mark.long] * long)
        for name, case in cases.items()
        for validate in (True, False)
        for long in [not validate and name not in both]
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmark(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "all_tasks", these_tasks)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Return a function that sets the scores of the task "scripted", the first for the start."""
    return lambda *values: monkeypatch.setattr(Scripted, "script", values)


@pytest.fixture(scope="module")
def configured(checkpoint: Path, table: Path, corpus_file: Path, data: Path) -> Callable:
    """Return a function that configures a run of two epochs with a checkpoint after each step.

    It trains a table, or a transformer where its passes, its draws or its processes matter.
    """

    def make(
        settings: dict[str, Any] | None,
        trainer: dict[str, Any] | None = None,
        resume: bool = True,
        validate: bool = True,
        transformer: bool = False,
    ) -> dict[str, Any]:
        callbacks = [{"type": "exact_resume"}] if resume else []
        if settings is not None:
            callbacks.append({"type": "evaluate_embeddings", "data": str(data), **settings})
        config = table_config(table, corpus_file)
        if transformer:
            config = run_config(checkpoint, corpus_file)
        every = {"save_every_num_batches": 1, "keep_most_recent_by_count": None}
        config["trainer"] |= {"num_epochs": 2, "checkpointer": {"type": "atomic", **every}}
        config["trainer"] |= {"callbacks": callbacks, **(trainer or {})}
        return config | ({"validation_data_path": str(corpus_file)} if validate else {})

    return make


@pytest.fixture
def trained(configured: Callable, tmp_path: Path) -> Callable[..., Run]:
    """Return a function that trains with `configured`'s arguments and returns the run."""

    def train(*settings: Any, **more: Any) -> Run:
        run = Run(tmp_path / "run")
        run.train(configured(*settings, **more))
        return run

    return train


# ------------------------------------------------------------------------- nothing is disturbed


@pytest.fixture(scope="module", params=[True, False], ids=["exact_resume", "plain"])
def alone(
    request: pytest.FixtureRequest, configured: Callable, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, Run]:
    """Train without evaluation and "exact_resume", so that all random numbers are one sequence."""
    run = Run(tmp_path_factory.mktemp("alone") / "run")
    run.train(configured(None, resume=request.param, transformer=True))
    return request.param, run


def test_training_is_the_same_bit_for_bit(alone: tuple[bool, Run], trained: Callable) -> None:
    """The tasks draw random numbers too, always the same ones."""
    resume, expected = alone
    run = trained(DRAWING, resume=resume, transformer=True)
    scores = run.evaluations
    assert list(scores) == list(range(ALL + 1))
    counts = [len({s[f"drawing/{name}"] for s in scores.values()}) for name in ("drawn", "norm")]
    assert counts == [1, ALL + 1]
    for step in (*range(1, ALL + 1), None):
        assert same(run.weights(step), expected.weights(step)), step
    for epoch in range(2):
        ours, theirs = run.metrics(epoch), expected.metrics(epoch)
        kept = [k for k in theirs if "duration" not in k and "memory" not in k]
        assert {k: ours[k] for k in kept} == {k: theirs[k] for k in kept}
        added = {"validation_drawing/norm", "validation_drawing/drawn"}
        added |= {f"best_{name}" for name in added} if ours["best_epoch"] == epoch else set()
        assert set(ours) - set(theirs) >= added
        assert all("drawing" in name for name in set(ours) - set(theirs))


def test_draws_of_a_task_would_change_training_if_not_restored(
    alone: tuple[bool, Run], trained: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:

    @contextmanager
    def careless(model: torch.nn.Module, *_: Any) -> Any:
        model.eval()
        with torch.enable_grad():
            yield
        model.train()

    monkeypatch.setattr(module, "undisturbed", careless)
    resume, expected = alone
    run = trained(DRAWING, resume=resume, transformer=True)
    assert not same(run.weights(ALL), expected.weights(ALL))


WITHOUT_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=WITHOUT_A_GPU)])
def test_modes_and_numbers_come_back_even_after_an_error(device: str, training: bool) -> None:
    inner = torch.nn.Dropout()
    model = torch.nn.Sequential(inner, torch.nn.Linear(1, 1)).train(training)
    inner.training = not training  # as a transformer that is kept in evaluation mode
    torch.manual_seed(3)
    expected = [torch.rand(1, device=device) for _ in range(2)]
    torch.manual_seed(3)
    assert torch.rand(1, device=device) == expected[0]
    undisturbed = module.undisturbed(model, torch.device(device), 1)
    with pytest.raises(KeyError), torch.no_grad(), undisturbed:
        assert not model.training and not inner.training and torch.is_grad_enabled()
        torch.rand(5, device=device)
        raise KeyError
    assert (model.training, inner.training) == (training, not training)
    assert torch.rand(1, device=device) == expected[1]


# ------------------------------------------------------------------- steps and places of scores


@pytest.mark.parametrize(
    "settings, epochs, expected, validate",
    with_and_without_validation(
        {
            "each epoch": ({}, 2, [0, 3, 6]),
            "2": ({"every_num_steps": 2}, 2, [0, 2, 3, 4, 6]),
            "5": ({"every_num_steps": 5, "every_num_epochs": 2}, 2, [0, 5, 6]),
            "3 epochs of 2": ({"every_num_epochs": 3}, 2, [0, 6]),
            "2 epochs": ({"every_num_epochs": 2}, 4, [0, 6, 12]),
            "4": ({"every_num_steps": 4, "every_num_epochs": None}, 2, [0, 4]),
        },
        both=("each epoch", "4"),
    ),
)
def test_evaluations_take_place_at_the_right_steps(
    settings: dict, epochs: int, expected: list, validate: bool, trained: Callable
) -> None:
    """An epoch without an evaluation is not recorded with scores of an earlier one."""
    drawing = {"tasks": ["drawing"], **settings}
    run = trained(drawing, {"num_epochs": epochs}, validate=validate)
    done = run.evaluations
    assert list(done) == expected
    for epoch in range(epochs):
        scores = done.get(STEPS * (epoch + 1), {})
        norm = run.metrics(epoch).get("validation_drawing/norm")
        assert norm == scores.get("drawing/norm")


def test_a_run_in_a_moved_folder_keeps_its_own_best_weights(
    configured: Callable, tmp_path: Path
) -> None:
    """The best step is before the move, and another run uses the old folder."""
    config = configured({**DRAWING, "select_by": "drawing/norm"}, {"num_epochs": 1}, validate=False)
    first, moved = Run(tmp_path / "first"), Run(tmp_path / "moved")
    first.train(config)
    first.folder.rename(moved.folder)
    first.folder.mkdir()
    (first.folder / "best.th").write_bytes(b"other weights")
    (moved.folder / "model.tar.gz").unlink()
    best = moved.weights()
    assert same(best, dict(moved.train(config, recover=True).state_dict()))


def test_scores_at_the_end_are_those_of_the_archive(trained: Callable, data: Path) -> None:
    run = trained({"tasks": ["STS-B"], "batch_size": 4}, validate=False, transformer=True)
    file = data / "downstream" / "STS" / "STSBenchmark" / "sts-dev.csv"
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    encoder = Encoder(run.folder, cuda_device=-1)
    first, second = (encoder([row[column] for row in rows]) for column in (5, 6))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / lengths
    expected = 100 * spearman(cosines, np.array([float(row[4]) for row in rows]))
    name = "STS-B/cosine Spearman dev"
    scores = run.evaluations[ALL]
    assert scores[name] == pytest.approx(expected, abs=1e-9)
    assert not any("trained" in score for score in scores)  # the regressor takes long
    assert run.metrics()[f"validation_{name}"] == pytest.approx(expected, abs=1e-9)


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
    run = Run(tmp_path / "run")
    run.train(config)
    done = run.evaluations
    norms = [entry[1:] for entry in written if entry[0] == "validation_scores/drawing/norm"]
    # AllenNLP counts steps from 1 there.
    assert norms == [(done[step]["drawing/norm"], step + 1) for step in (0, 3, 4, 6)]
    files = list((run.folder / "log" / "validation").iterdir())
    assert any(b"validation_scores/drawing/norm" in file.read_bytes() for file in files)
    value = f"{done[4]['drawing/norm']:.2f}"
    assert re.search(rf"After 4 steps \(\d+ s\): drawing/norm {value}\n", run.log)


def test_sentences_are_read_whole_without_changing_the_reader(
    trained: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the reader reads sentences whole, in the order of their lengths."""
    seen: list[Any] = []
    outcome = module.EvaluationTasks.outcome

    def spy(self: Any, trainer: Any) -> Any:
        with module.undisturbed(trainer.model, trainer.cuda_device, 0):
            embeddings = module.text_encoder(trainer, 2)(TEXTS)
            one_by_one = [module.text_encoder(trainer, 1)([text]) for text in TEXTS]
        seen.append((trainer.data_loader.reader.sample_spans, embeddings, one_by_one))
        return outcome(self, trainer)

    monkeypatch.setattr(module.EvaluationTasks, "outcome", spy)
    trained({"tasks": ["drawing"]}, transformer=True)
    assert len(seen) == 3
    for sample_spans, embeddings, expected in seen:
        assert sample_spans and embeddings.dtype == np.float32
        np.testing.assert_allclose(embeddings, np.concatenate(expected), atol=1e-6)


# ------------------------------------------------------------------------------------ selection


@pytest.mark.parametrize(
    "settings, values, best, validate",
    with_and_without_validation(
        {
            "highest": ({}, (0, 1, 5, 2, 5, 4, 3), 2),  # an equal one does not count
            "last": ({"select_by": f"+{LEVEL}"}, (0, 1, 2, 3, 4, 5, 6), 6),
            "lowest": ({"select_by": f"-{LEVEL}"}, (9, 4, 5, 3, 1, 1, 2), 4),
            "nan": ({}, (0, float("nan"), 1, float("nan"), 0, 0, 0), 2),
            "unscored": ({}, (0, 1, BadEmbeddings("no numbers"), 2, 0, 0, 0), 3),
            "not the start": ({"select_start": False}, (9, 1, 5, 2, 5, 4, 3), 2),  # as before 1.6
            "2": ({**STEPS_ALONE, "every_num_steps": 2}, (9, 1, 5, 4), 4),
            "4": ({**STEPS_ALONE, "every_num_steps": 4}, (9, 1), 4),  # not the steps after it
            # Or else there would be none.
            "50": ({**STEPS_ALONE, "every_num_steps": 50}, (9, 1), ALL),
        },
        both=("highest", "50"),
    ),
)
def test_best_weights_are_those_of_the_best_step(
    settings: dict,
    values: tuple,
    best: int,
    validate: bool,
    script: Callable,
    configured: Callable,
    tmp_path: Path,
) -> None:
    script(*values)
    run = Run(tmp_path / "run")
    model = run.train(configured({**SELECTING, **settings}, validate=validate))
    chosen = run.weights(best)
    assert same(run.weights(), chosen) and same(model.state_dict(), chosen)
    assert same(load_archive(run.folder).model.state_dict(), chosen)
    recorded = run.metrics()
    assert (recorded["best_step"], recorded["best_epoch"]) == (best, (best - 1) // STEPS)
    by_step = dict(zip(run.evaluations, values, strict=False))
    assert recorded[f"best_validation_{LEVEL}"] == by_step[best]
    if any(isinstance(value, Exception) for value in values):
        assert "a task could not be scored: scripted: no numbers." in run.log
        assert f"{LEVEL} is nan: these weights cannot be chosen" in run.log
    assert run.log.count("(the best so far)\n") >= 1 and "at the start" not in run.log


@pytest.mark.parametrize(
    "select_by, values", [(LEVEL, (5, 1, 5, 2, 4, 4, 3)), (f"-{LEVEL}", (1, 2, 3, 4, 5, 6, 7))]
)
def test_a_run_that_only_gets_worse_keeps_its_initial_weights(
    select_by: str, values: tuple, script: Callable, configured: Callable, tmp_path: Path
) -> None:
    """It may be killed before its first checkpoint, at the end of an epoch, or at its end."""
    told = f"{LEVEL} was {values[0]:.2f} at the start and never better afterwards"
    averaging = AVERAGE if select_by == LEVEL else None
    config = configured({**SELECTING, "select_by": select_by}, averaging)
    script(*values)
    run = Run(tmp_path / "run")
    kept = run.train(config).state_dict()
    still = configured(None, {"num_epochs": 1})
    still["trainer"]["optimizer"]["lr"] = 0.0
    assert same(kept, dict(Run(tmp_path / "still").train(still).state_dict()))
    assert same(run.weights(), kept)
    recorded = run.metrics()
    assert (recorded["best_step"], recorded[f"best_validation_{LEVEL}"]) == (0, values[0])
    assert run.log.count(told) == 1
    for step in (1, STEPS, ALL) if averaging else ():
        cut = Run(tmp_path / str(step))
        script(*values)
        cut.train_until(config, step)
        assert told not in cut.log
        script(*(values if step == 1 else values[step:]))
        cut.train(config, recover=True)
        assert same(cut.weights(), kept)
        assert cut.metrics()["best_step"] == 0 and cut.log.count(told) == 1


def test_with_a_moving_average_its_weights_are_scored_and_kept(
    trained: Callable, configured: Callable, tmp_path: Path
) -> None:
    settings = {"tasks": ["drawing"], "every_num_steps": 2, "select_by": "drawing/norm"}
    run = trained(settings, AVERAGE)
    norms = {step: scores["drawing/norm"] for step, scores in run.evaluations.items()}
    step = run.metrics()["best_step"]
    assert norms[step] == max(norms[s] for s in (2, 3, 4, 6))
    assert not same(run.weights(), run.weights(step))
    embeddings = Encoder(run.folder, cuda_device=-1, dtype="float32")(TEXTS)
    assert np.linalg.norm(embeddings, axis=1).mean() == pytest.approx(norms[step], rel=1e-6)

    alone = Run(tmp_path / "alone")
    alone.train(configured(None, AVERAGE))
    for step in range(1, ALL + 1):
        assert same(run.weights(step), alone.weights(step))


def test_the_trainer_may_choose_the_epoch_by_a_score(script: Callable, trained: Callable) -> None:
    script(9, 2, 1)
    run = trained({"tasks": ["scripted"]}, {"validation_metric": f"+{LEVEL}"})
    assert same(run.weights(), run.weights(STEPS))
    recorded = run.metrics()
    assert (recorded["best_epoch"], recorded[f"best_validation_{LEVEL}"]) == (0, 2)
    assert recorded[f"validation_{LEVEL}"] == 1


def test_patience_with_the_best_step(script: Callable, trained: Callable) -> None:
    """Epochs without an improvement end training; the best step may be within an epoch."""
    script(0, 3, 2, 7, 1, 1)  # the start; steps 2 and 3; 4, 6 and then no more
    patient = {"validation_metric": f"+{LEVEL}", "patience": 1, "num_epochs": 9}
    run = trained({**SELECTING, "every_num_steps": 2}, patient)
    assert list(run.evaluations) == [0, 2, 3, 4, 6]
    assert same(run.weights(), run.weights(4)) and run.metrics()["best_step"] == 4


def test_an_epoch_that_ends_early_is_evaluated(
    script: Callable, configured: Callable, tmp_path: Path
) -> None:
    """There are best weights whenever training ends."""
    script(0, 5)
    config = configured(
        {"tasks": ["scripted"], "every_num_epochs": 8, "select_by": LEVEL},
        {"validation_metric": "+mlm_accuracy", "patience": 1, "num_epochs": 9},
        transformer=True,
    )
    config["trainer"]["optimizer"]["lr"] = 0.0  # never better than in the first epoch
    config["validation_data_loader"] = {**config["data_loader"], "resample": False}
    run = Run(tmp_path / "run")
    run.train(config)
    assert list(run.evaluations) == [0, ALL] and (run.folder / "model.tar.gz").exists()


# --------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("validate, steps", [(True, range(2, ALL + 1)), (False, (STEPS, ALL - 1))])
def test_a_resumed_run_chooses_what_it_would_have_chosen(
    validate: bool, steps: Iterable[int], configured: Callable, tmp_path: Path
) -> None:
    """It may be killed right after writing the best weights, or at any other step."""
    config = configured({**DRAWING, "select_by": "-drawing/norm"}, validate=validate)
    straight = Run(tmp_path / "straight")
    straight.train(config)
    expected, theirs = straight.evaluations, straight.metrics()
    best = [name for name in theirs if "drawing" in name or name.startswith("best_step")]
    for step in steps:
        run = Run(tmp_path / str(step))
        run.train_until(config, step)
        assert not (run.folder / "model.tar.gz").exists()
        run.train(config, recover=True)
        assert run.evaluations == expected and same(run.weights(), straight.weights())
        assert {k: run.metrics()[k] for k in best} == {k: theirs[k] for k in best}


@pytest.mark.parametrize(
    "lost, then, best",
    [(False, (2, 5, 6, 7), 2), (True, (6, 5, 4, 3), 3)],
    ids=["best weights so far", "best weights are missing"],
)
def test_a_resumed_run_keeps_its_best_weights_or_warns_and_selects_anew(
    lost: bool, then: tuple, best: int, configured: Callable, script: Callable, tmp_path: Path
) -> None:
    config, run = configured(SELECTING), Run(tmp_path / "run")
    script(0, 1, 8, 2, 3)
    run.train_until(config, 4)
    if lost:
        (run.folder / "best.th").unlink()
    script(*then[not lost :])  # from step 4 on, or after step 3 once more
    run.train(config, recover=True)
    assert ("The choice begins anew, with the weights of the checkpoint" in run.log) is lost
    assert run.metrics()["best_step"] == best and same(run.weights(), run.weights(best))
    assert [s[LEVEL] for s in run.evaluations.values()] == [0, 1, 8, *then]


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
        ({"data": "/nowhere"}, r"no folder '/nowhere'.*laid out as SentEval"),
        ({"tasks": ["scripted"]}, r"cannot be scored: scripted: no numbers\. Repair"),
        (
            {"select_by": "drawing/nrom"},
            r"no score 'drawing/nrom' to choose by.*drawing/drawn, drawing/norm",
        ),
        ({"metric": "+drawing/form"}, "no score 'drawing/form'"),
        (
            {"metric": "+drawing/norm", "validate": False},
            "without validation_data_path.*Use select_by",
        ),
        (
            {"metric": "+drawing/norm", "every_num_epochs": 2},
            "set every_num_epochs to 1, not 2",
        ),
    ],
)
def test_a_mistake_shows_before_the_first_step(
    settings: dict, message: str, script: Callable, trained: Callable, tmp_path: Path
) -> None:
    script(BadEmbeddings("no numbers"))
    settings = {"tasks": ["drawing"], **settings}
    trainer, validate = {}, settings.pop("validate", True)
    if "metric" in settings:
        trainer["validation_metric"] = settings.pop("metric")
    with pytest.raises(ConfigurationError, match=message):
        trained(settings, trainer, validate=validate)
    assert not list((tmp_path / "run").glob("*_state_*.th"))


def test_a_folder_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data/downstream/MR").mkdir(parents=True)
    callback = EvaluateEmbeddings(str(tmp_path), str(tmp_path / "data/downstream"), ["MR"])
    with pytest.raises(ConfigurationError, match=rf"is downstream/ itself, .*'{tmp_path}/data'"):
        callback._tasks.read()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"every_num_steps": 0}, "every_num_steps must be at least 1, got 0"),
        ({"every_num_epochs": 0}, "every_num_epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"every_num_epochs": None}, "Set every_num_steps or every_num_epochs: both are null"),
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
SCRIPTED = {**SELECTING, "tasks": ["scripted", "drawing"]}
VALUES = [0.0, 1.0, 5.0, 2.0, 3.0, 4.0, 1.0]


@pytest.fixture(scope="module")
def together(
    configured: Callable, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Run], list[list[dict]]]:
    """Train in two processes, in one pytest worker only, and return what each process did."""
    kinds = {"ddp alone": DDP, "ddp": DDP, "fsdp alone": FSDP, "fsdp": FSDP}
    with shared_by_workers(tmp_path_factory, "evaluated_by_two") as folder:
        if not folder.exists():
            folder.mkdir()
            cases = []
            for name, options in kinds.items():
                settings = None if name.endswith("alone") else SCRIPTED
                config = configured(settings, transformer=True)
                config["data_loader"]["batch_size"] //= 2  # as many steps as one process has
                if name.endswith("alone"):
                    config["trainer"]["callbacks"].insert(0, {"type": "run_record"})
                cases.append((config, str(folder / name), options, VALUES))
            torch.save(two_processes.run(several, cases), folder / "done.pt")
    runs = {name: Run(folder / name) for name in kinds}
    return runs, torch.load(folder / "done.pt", weights_only=False)


@pytest.mark.parametrize("kind, evaluated", [("ddp", [ALL + 1, 0]), ("fsdp", [ALL + 1, ALL + 1])])
def test_two_processes_agree_on_scores_and_best_weights(
    kind: str, evaluated: list, together: tuple
) -> None:
    """One process evaluates, or both if the model is sharded; training is not affected."""
    runs, done = together
    assert [process[list(runs).index(kind)]["evaluations"] for process in done] == evaluated
    run, alone = runs[kind], runs[f"{kind} alone"]
    for step in range(1, ALL + 1):
        assert same(run.weights(step), alone.weights(step))
    assert same(run.weights(), run.weights(2)) and run.metrics(1)["best_step"] == 2
    assert [s[LEVEL] for s in run.evaluations.values()] == VALUES


def test_processes_validate_the_start_together(together: tuple, trained: Callable) -> None:
    runs = together[0]
    callbacks = [{"type": "run_record"}, {"type": "exact_resume"}]
    one = trained(None, {"num_epochs": 1, "callbacks": callbacks}, transformer=True)
    done = [run.folder for run in (one, runs["ddp alone"], runs["fsdp alone"])]
    starts = [json.loads((folder / "run.json").read_text())["start"] for folder in done]
    name = "validation_contrastive_loss"  # masks differ by process
    assert [start[name] for start in starts] == pytest.approx([starts[0][name]] * 3, rel=1e-4)


def test_a_sharded_model_has_the_same_scores(together: tuple) -> None:
    spread, whole = (together[0][kind].evaluations for kind in ("fsdp", "ddp"))
    for step, scores in whole.items():
        assert spread[step] == pytest.approx(scores, rel=1e-4)
