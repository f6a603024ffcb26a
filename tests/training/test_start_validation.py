"""A run that makes its model worse warns; validating the start does not affect training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from allennlp.training.metric_tracker import MetricTracker

import declutr.training.evaluation_tasks as evaluation
from declutr.training.run_record import no_better_than
from tests.conftest import run_config, table_config
from tests.evaluation_runs import Scripted, these_tasks, write_benchmark
from tests.training.whole_runs import STEPS, Run, same

pytestmark = pytest.mark.slow

TOLD = "this run did not improve the model"


def made(
    place: Path, corpus: Path, lr: float = 1e-2, of: Callable = table_config, **trainer: Any
) -> dict[str, Any]:
    """Return a configuration of two epochs with validation and a checkpoint after each step."""
    config = of(place, corpus, validation_data_path=str(corpus))
    config["validation_data_loader"] = {**config["data_loader"], "resample": False}
    config["trainer"]["optimizer"]["lr"] = lr
    config["trainer"] |= {
        "num_epochs": 2,
        "checkpointer": {"type": "atomic", "save_every_num_batches": 1},
        "callbacks": [{"type": "run_record"}, {"type": "exact_resume"}],
        **trainer,
    }
    return config


@pytest.fixture
def configured(table: Path, corpus_file: Path) -> Callable[..., dict[str, Any]]:
    return lambda **changes: made(table, corpus_file, **changes)


def metrics(run: Run) -> dict[str, Any]:
    """Return the metrics of a run without times and memory."""
    found = run.metrics().items()
    return {name: value for name, value in found if not name.endswith(("duration", "MB"))}


def trained(config: dict[str, Any], folder: Path) -> Run:
    run = Run(folder)
    run.train(config)
    return run


def test_a_run_that_makes_its_model_worse_warns(configured: Callable, tmp_path: Path) -> None:
    run = trained(configured(lr=2.0), tmp_path / "run")
    start, best = (metrics(run)[f"{which}_validation_loss"] for which in ("start", "best"))
    assert start < best
    told = f"loss was {start:.6g} at the start and {best:.6g} after the best epoch"
    assert told in run.log and TOLD in run.log
    record = json.loads((run.folder / "run.json").read_text())
    assert record["start"]["validation_loss"] == start
    # The validation loss of weights that do not change.
    still = trained(configured(lr=0.0, num_epochs=1), tmp_path / "still")
    assert metrics(still)["validation_loss"] == metrics(still)["start_validation_loss"] == start
    assert TOLD in still.log


AVERAGE = {"moving_average": {"type": "exponential", "decay": 0.5}}
THEIRS = {"type": "multiprocess", "batch_size": 8, "max_instances_in_memory": 8}


@pytest.mark.parametrize(
    "resume, trainer, loaders",
    [
        (True, AVERAGE, {}),
        (False, {}, {}),
        (False, {}, {"data_loader": THEIRS, "validation_data_loader": THEIRS}),
    ],
    ids=["exact_resume", "plain", "one_reader"],
)
def test_validating_the_start_does_not_change_the_run(
    checkpoint: Path, corpus_file: Path, tmp_path: Path, resume: bool, trainer: dict, loaders: dict
) -> None:
    """The masks of validation are drawn, too."""
    runs = []
    for looks in (True, False):
        config = made(checkpoint, corpus_file, of=run_config, num_epochs=1, **trainer) | loaders
        config["trainer"]["callbacks"][0]["validate_start"] = looks
        del config["trainer"]["callbacks"][1 + resume :]
        runs.append(trained(config, tmp_path / str(looks)))
    looked, not_looked = map(metrics, runs)
    expected = {f"start_{name}" for name in not_looked if name.startswith("validation_")}
    assert looked.keys() - not_looked.keys() == expected
    assert {name: looked[name] for name in not_looked} == not_looked
    # A shared reader draws other spans to validate with each time: which are harder is chance.
    assert loaders or TOLD not in runs[0].log
    for step in (None, STEPS):
        assert same(runs[0].weights(step), runs[1].weights(step))


@pytest.fixture(scope="module")
def straight(table: Path, corpus_file: Path, tmp_path_factory: Any) -> dict[str, Any]:
    """Return the metrics of a run that is not interrupted."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    return metrics(trained(made(table, corpus_file, lr=2.0), folder))


@pytest.mark.parametrize("step", [1, STEPS, 2 * STEPS])
def test_a_resumed_run_compares_with_its_start(
    configured: Callable, straight: dict, tmp_path: Path, step: int
) -> None:
    """It is killed before any checkpoint, at the end of an epoch, or at its end."""
    run = Run(tmp_path / "run")
    run.train_until(configured(lr=2.0), step)
    assert TOLD not in run.log
    run.train(configured(lr=2.0), recover=True)
    found = metrics(run)
    names = [name for name in straight if "validation" in name or name == "best_epoch"]
    assert {n: found[n] for n in names} == {n: straight[n] for n in names}
    assert run.log.count(TOLD) == 1


def test_the_start_is_not_validated_if_scores_select_the_weights(
    configured: Callable[..., dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evaluate_embeddings` scores the start itself, but only if it selects the weights."""
    monkeypatch.setattr(evaluation, "all_tasks", these_tasks)
    data = write_benchmark(tmp_path / "data")
    config = configured()
    evaluate = {"type": "evaluate_embeddings", "data": str(data), "tasks": ["scripted"]}
    monkeypatch.setattr(Scripted, "script", (5, 4, 3))
    config["trainer"]["callbacks"].append({**evaluate, "select_by": "scripted/level"})
    selected = trained(config, tmp_path / "selected").metrics()
    assert not any(name.startswith("start_") for name in selected)
    monkeypatch.setattr(Scripted, "script", (5, 4, 3))
    config["trainer"]["callbacks"][-1] = evaluate
    config["trainer"]["validation_metric"] = "+scripted/level"
    run = trained(config, tmp_path / "tracked")
    assert "start_validation_loss" in run.metrics()
    assert "scripted/level was 5 at the start and 4 after the best epoch (0)" in run.log


def test_the_warning_names_the_tracked_metrics() -> None:
    tracker = MetricTracker(["-loss", "+accuracy"])
    start = {"loss": 3.0, "accuracy": 0.5}
    assert no_better_than(tracker, start) is None  # no epoch
    tracker.add_metrics({"loss": 3.25, "accuracy": 0.5})
    tracker.best_epoch_metrics = {"loss": 3.25, "accuracy": 0.5}
    told = no_better_than(tracker, start)
    assert told is not None and "loss was 3 at the start and 3.25 after the best epoch and" in told
    assert "accuracy was 0.5 at the start and 0.5 after the best epoch (0)" in told
    assert no_better_than(tracker, {"loss": 3.5, "accuracy": 0.5}) is None
    assert no_better_than(tracker, {"loss": float("nan"), "accuracy": 0.5}) is None
    assert no_better_than(tracker, {"loss": 3.0}) is None
