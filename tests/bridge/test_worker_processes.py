"""Spawned processes import the bridge even if they start without site-packages and the .pth."""

import io
import os
import pickle
import pickletools
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import allennlp.commands.train as train_command
import pytest
import torch

from declutr.bridge import repairs
from tests.sleeping_processes import sleeping

ROOT = str(Path(repairs.__file__).parents[2])


def test_the_training_function_of_the_bridge_calls_allennlps(monkeypatch: Any) -> None:
    assert train_command._train_worker is repairs.train_worker
    assert repairs.train_worker.__wrapped__.__module__ == "allennlp.commands.train"
    monkeypatch.setattr(repairs.train_worker, "__wrapped__", lambda *a, **k: (a, k))
    assert repairs.train_worker(1, b=2) == ((1,), {"b": 2})


def first_module(pickled: bytes) -> str:
    """Return the module that unpickling an object imports first."""
    strings = [
        arg for op, arg, _ in pickletools.genops(io.BytesIO(pickled)) if "UNICODE" in op.name
    ]
    return next(text for text in strings if text.startswith(("allennlp", "declutr")))


def test_unpickling_the_training_function_imports_the_bridge_first(bare: Any) -> None:
    assert first_module(pickle.dumps(train_command._train_worker, 4)) == "declutr.bridge.repairs"
    assert bare("allennlp.commands.train")._train_worker.__module__ == "allennlp.commands.train"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_workers_are_started_through_the_bridge(method: str) -> None:
    context = repairs._WorkerContext(torch.multiprocessing.get_context(method))
    process = context.Process(target=print, args=(1, 2), daemon=True)
    assert (
        process._target is repairs.run_worker and process._args == (print, 1, 2) and process.daemon
    )
    assert context.get_start_method() == method


def bare_python(script: str, tmp_path: Path) -> subprocess.CompletedProcess:
    """Return a function that runs a script without `site`, so that no .pth file is read."""
    path = tmp_path / "script.py"
    path.write_text(script)
    paths = [ROOT, *(p for p in sys.path if p.endswith("site-packages"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    env.pop("DECLUTR_BRIDGE", None)
    return subprocess.run(
        [sys.executable, "-S", str(path)], env=env, capture_output=True, text=True, cwd=tmp_path
    )


SCRIPT = """
import sys
import declutr

def main():
    assert not any(getattr(f, "__name__", "") == "DeclutrBridge" for f in sys.meta_path)
    from allennlp.commands.train import train_model
    from allennlp.common import Params

    train_model(Params({config!r}), {folder!r})

if __name__ == "__main__":
    main()
"""


def spawned_workers(experiment: Any, rows: Path) -> dict[str, Any]:
    """Return a configuration whose data come from a spawned worker."""
    rows.write_text('{"text": "a b", "label": 0}\n{"text": "b a", "label": 1}\n' * 4)
    loader = {"num_workers": 1, "start_method": "spawn", "max_instances_in_memory": 8}
    config = experiment(data_loader=loader, train_data_path=str(rows), model={"num_labels": 2})
    del config["validation_data_path"]
    # The vocabulary is given, because making one would start the workers again.
    config["vocabulary"] = {"type": "empty"}
    config["dataset_reader"]["skip_label_indexing"] = True
    return config


@pytest.mark.slow
def test_a_spawned_child_without_site_packages(tmp_path: Path, experiment: Any) -> None:
    """A process of a distributed training begins in the same way, as tests above show."""
    config, run = spawned_workers(experiment, tmp_path / "rows.jsonl"), tmp_path / "run"
    result = bare_python(SCRIPT.format(config=config, folder=str(run)), tmp_path)
    assert result.returncode == 0, result.stderr
    assert (run / "model.tar.gz").exists()


@pytest.mark.slow
def test_processes_end_with_a_training_that_is_stopped(bare: Any, monkeypatch: Any) -> None:
    module = bare("allennlp.commands.train")
    others, begun = sleeping(60), []

    def stopped(*args: Any, **kwargs: Any) -> None:
        begun.append(sleeping(60))
        raise RuntimeError("stopped")

    monkeypatch.setattr(module, "train_model", stopped)
    repairs.ended_training(module)
    try:
        with pytest.raises(RuntimeError, match="stopped"):
            module.train_model({})
        assert begun[0].exitcode == -signal.SIGTERM and others.is_alive()
    finally:
        others.kill()
