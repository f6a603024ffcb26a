"""`declutr.train` trains as the command does, to the bit, and goes on where a run was stopped."""

import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.training import TrainerCallback
from torch.multiprocessing.spawn import ProcessExitedException

import declutr
from declutr.recipes import recipe_path
from declutr.runs.run_folder import RunFolder, TrainingError
from declutr.runs.training import _running
from tests.forked_commands import ForkedCommand

pytestmark = pytest.mark.slow

# The head is drawn after the transformer is loaded, which itself draws what the checkpoint lacks.
RECIPE = "simcse"
SETTINGS: dict[str, Any] = {"batch_size": 4, "num_epochs": 2, "learning_rate": 1e-3}
CHANGES: dict[str, Any] = {"trainer.cuda_device": -1, "data_loader.num_workers": 0}


@TrainerCallback.register("stopped_by_a_test")
class StoppedByATest(TrainerCallback):
    """A callback that stops the process in the way that a test asks for, once."""

    at: tuple[int, int] | None = None  # epoch and batch
    by: Any = None

    def on_batch(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if (trainer._epochs_completed, trainer._batches_in_epoch_completed) == type(self).at:
            type(self).at = None
            type(self).by()


def train(texts: Any, checkpoint: Path, output: Path, **changes: Any) -> declutr.Encoder:
    """A training of the recipe, in small."""
    given = {"model": checkpoint, "recipe": RECIPE, "overrides": CHANGES, **SETTINGS, **changes}
    return declutr.train(texts, output=output, **given)


def kept(run: Path) -> dict[str, Any]:
    """Metrics and weights of a run, without times."""
    metrics = json.loads((run / "metrics.json").read_text())
    figures = {k: v for k, v in metrics.items() if "duration" not in k and "memory" not in k}
    weights = torch.load(run / "best.th", weights_only=True)
    return {"metrics": figures, **{name: value.tolist() for name, value in weights.items()}}


def process_state() -> list[Any]:
    """What a training must leave as it was."""
    root = logging.getLogger()
    return [
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        (list(root.handlers), root.level, [list(one.filters) for one in root.handlers]),
        list(logging.getLogger("tqdm").handlers),
        list(logging.lastResort.filters) if logging.lastResort else None,
        (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.excepthook),
        dict(os.environ),
    ]


@pytest.fixture(scope="module")
def commanded(checkpoint: Path, corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `allennlp train` makes of the recipe, in a process of its own."""
    run = tmp_path_factory.mktemp("commanded") / "run"
    changes = {**CHANGES, "train_data_path": str(corpus_file), "data_loader.batch_size": 4}
    changes |= {"validation_data_loader.batch_size": 4}
    changes |= {"trainer.num_epochs": 2, "trainer.optimizer.lr": 1e-3}
    command = ("train", str(recipe_path(RECIPE)), "-s", str(run), "-o", json.dumps(changes))
    environment = {**os.environ, "TRANSFORMER_MODEL": str(checkpoint)}
    ForkedCommand(*command, environment=environment, program="declutr").finished()
    return kept(run)


def test_equals_the_command_to_the_bit_every_time(
    commanded: Any, checkpoint: Path, corpus_file: Path, tmp_path: Path, capsys: Any
) -> None:
    random.random(), torch.rand(1)
    before = process_state()
    first = train(corpus_file, checkpoint, tmp_path / "first")
    assert process_state() == before
    assert kept(tmp_path / "first") == commanded
    with torch.no_grad():  # as some notebooks are
        train(corpus_file, checkpoint, tmp_path / "second")
    assert kept(tmp_path / "second") == commanded
    assert isinstance(first, declutr.Encoder) and first(["ka lo"]).shape == (1, 32)
    assert capsys.readouterr().out == ""
    assert "Beginning training" in (tmp_path / "first" / "out.log").read_text()


def test_texts_in_memory_equal_a_file_and_a_finished_run_is_opened(
    commanded: Any, checkpoint: Path, documents: list, tmp_path: Path, monkeypatch: Any
) -> None:
    run = tmp_path / "run"
    train(iter(documents), checkpoint, run)
    assert kept(run) == commanded
    moved = run.rename(tmp_path / "moved")
    monkeypatch.setattr("declutr.runs.run_folder.train_model", lambda *args, **kwargs: 1 / 0)
    assert train(documents, checkpoint, moved)(["ka"]).shape == (1, 32)
    with pytest.raises(TrainingError, match=r"trainer.num_epochs is 3, and was 2\. Call with"):
        train(documents, checkpoint, moved, num_epochs=3)
    with pytest.raises(TrainingError, match=r"the texts in train.jsonl differ .*first in row 2\)"):
        train([documents[0], "other", *documents[2:]], checkpoint, moved)
    with pytest.raises(TrainingError, match=r"There is a run in .* or remove it with force=True"):
        train(documents, checkpoint, moved, resume=False)
    own = [Path(moved / "texts" / "train.jsonl")]
    with pytest.raises(TrainingError, match=r"anew in .* would remove '.*train.jsonl', which this"):
        train(own, checkpoint, moved, force=True)
    with pytest.raises(ZeroDivisionError):
        train(documents[:-1], checkpoint, moved, force=True)
    assert sorted(place.name for place in moved.iterdir()) == ["config.json", "texts"]
    with pytest.raises(ZeroDivisionError):  # nothing was trained, so there is nothing to go on with
        train(documents, checkpoint, moved, num_epochs=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"resume": "yes"}, "resume is 'yes', expected 'auto', True or False"),
        ({"resume": True}, "There is no run in '.*' that could be gone on with"),
        ({"resume": True, "force": True}, "go on with a run, or remove it"),
        ({}, "'.*' is no run, but holds files: holiday.jpg. Choose another output"),
        ({"force": True}, "'.*' is no run, but holds files: holiday.jpg. Choose another output"),
    ],
)
def test_refused_folders(given: Any, message: str, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(TrainingError, match=message):
        train(["a text"], checkpoint, tmp_path, **given)
    assert [place.name for place in tmp_path.iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize("force", [False, True])
def test_a_transformer_is_no_run(force: bool, checkpoint: Path) -> None:
    names = sorted(os.listdir(checkpoint))
    with pytest.raises(TrainingError, match=r"is no run, but holds files: config\.json, "):
        train(["a text"], checkpoint, checkpoint, force=force)
    assert sorted(os.listdir(checkpoint)) == names


def test_no_data_and_data_that_are_no_texts(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"Got nothing to train on\. Expected data, a path or"):
        train(None, checkpoint, tmp_path / "run")
    with pytest.raises(TypeError, match="Expected strings, got NoneType at position 1"):
        train(["a", None], checkpoint, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_processes_of_a_training(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run the script of the caller once more, which must not train there."""

    def lost(*args: Any, **kwargs: Any) -> None:
        raise ProcessExitedException("process 0 terminated with exit code 1", 0, 1, 1)

    monkeypatch.setattr("declutr.runs.run_folder.train_model", lost)
    with pytest.raises(TrainingError, match=r"exit code 1\).*under `if __name__ == "):
        train(["a text"], checkpoint, tmp_path / "run", distributed={"cuda_devices": [-1, -1]})
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(TrainingError, match="while a process of its training starts"):
        train(["a text"], checkpoint, tmp_path / "other")


def test_one_training_at_a_time(checkpoint: Path, tmp_path: Path) -> None:
    with _running, pytest.raises(TrainingError, match="runs in this process already"):
        train(["a text"], checkpoint, tmp_path)


def hold(run: Path, cache: str, pipe: Any) -> None:
    """Keep other processes from a run until the pipe says to go on."""
    os.environ["DECLUTR_CACHE"] = cache
    with RunFolder(run).alone():
        pipe.send("holds it")
        pipe.recv()


def test_one_process_at_a_time_trains_in_a_folder(checkpoint: Path, tmp_path: Path) -> None:
    run, context = tmp_path / "run", multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    args = run, os.environ["DECLUTR_CACHE"], theirs
    other = context.Process(target=hold, args=args, daemon=True)
    other.start()
    assert ours.recv() == "holds it"
    with pytest.raises(TrainingError, match=r"Another process trains in .*Wait for it"):
        train(["a text"], checkpoint, run)
    run.mkdir()
    for name in ("finished.json", "model.tar.gz"):
        (run / name).touch()  # a finished run is opened by one after the other
    threading.Timer(0.5, ours.send, ["go on"]).start()
    with RunFolder(run).alone():
        other.join()
    assert other.exitcode == 0


def test_a_run_does_not_go_on_with_other_files(
    checkpoint: Path, documents: list, tmp_path: Path, monkeypatch: Any
) -> None:
    """What is in them decides, and not when they were written, or whether they are still there."""
    file, run = tmp_path / "docs.txt", tmp_path / "run"
    file.write_text("\n".join(documents))
    monkeypatch.setattr("declutr.runs.run_folder.train_model", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(file, checkpoint, run)
    (run / "training_state_e0_b1.th").touch()  # something to go on with
    for same in (lambda: os.utime(file, (1, 1)), lambda: file.rename(tmp_path / "moved.txt")):
        same()
        with pytest.raises(ZeroDivisionError):
            train(file, checkpoint, run)
    file.write_text("\n".join(documents[:-1]))
    with pytest.raises(TrainingError, match="the files of train_data_path are not those that it"):
        train(file, checkpoint, run)
    (run / "data.json").unlink()  # as in a run of an earlier release
    with pytest.raises(ZeroDivisionError):
        train(file, checkpoint, run)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"train_data_path": "others.txt"}, "train_data_path"),
        ({"overrides": {"train_data_path": "others.txt"}}, "train_data_path"),
        ({"overrides": '{"train_data_path": "others.txt"}'}, "train_data_path"),
        ({"validation": 0.5, "validation_data_path": "others.txt"}, "validation_data_path"),
    ],
)
def test_data_that_are_given_twice(given: Any, key: str, checkpoint: Path, tmp_path: Path) -> None:
    """One of them was trained on without a word."""
    with pytest.raises(TrainingError, match=f"Got .*, and {key}='others.txt' as well"):
        train(["a text", "another"], checkpoint, tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_trains_no_encoder(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="a model of type 'reclaim', which is no sentence"):
        declutr.train("sst.tsv", model=checkpoint, recipe="reclaim", output=tmp_path)
    assert list(tmp_path.iterdir()) == []


def crash() -> None:
    raise RuntimeError("The machine is gone.")


@pytest.fixture
def stopping() -> Iterator[type[StoppedByATest]]:
    yield StoppedByATest
    StoppedByATest.at = StoppedByATest.by = None


def test_goes_on_after_a_crash_and_after_an_interruption(
    commanded: Any, checkpoint: Path, corpus_file: Path, tmp_path: Path, stopping: Any, caplog: Any
) -> None:
    """With a callback of the caller's, which a process of its own would not know.

    In the end by its own configuration, as where a release has changed the recipe.
    """
    callbacks = [{"type": "run_record"}, {"type": "exact_resume", "seed": 13370}]
    callbacks.append({"type": "stopped_by_a_test"})
    changes = {**CHANGES, "trainer.callbacks": callbacks}
    stopping.at, stopping.by = (1, 2), crash
    before = process_state()
    with pytest.raises(RuntimeError, match="The machine is gone"):
        train(corpus_file, checkpoint, tmp_path, overrides=changes)
    assert not (tmp_path / "model.tar.gz").exists()
    stopping.at, stopping.by = (1, 3), lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), caplog.at_level(logging.WARNING, "declutr"):
        train(corpus_file, checkpoint, tmp_path, overrides=changes)
    assert "The same call goes on from the last checkpoint" in caplog.text
    assert (tmp_path / "training_state_e1_b3.th").exists()
    caplog.clear()
    assert process_state() == before
    with pytest.raises(
        TrainingError, match=rf"changed the recipe, recipe='{tmp_path}/config\.json'"
    ):
        train(corpus_file, checkpoint, tmp_path, overrides=changes, learning_rate=2e-3)
    declutr.train(recipe=tmp_path / "config.json", output=tmp_path, resume=True)
    assert kept(tmp_path) == commanded
