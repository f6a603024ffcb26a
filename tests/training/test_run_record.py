"""A run is recorded in `run.json`."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import declutr
import declutr.plugin  # registers what configurations name
from declutr.data.random_subset import RandomSubset
from declutr.system.kernel_choices import CHOICES
from declutr.training.run_record import RunRecord
from tests.training.conftest import EPOCHS


@pytest.mark.slow
def test_the_record_describes_the_run(make_trainer: Callable, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, callbacks=[{"type": "run_record"}], checkpointer=None)
    trainer.train()
    record = json.loads((tmp_path / "run.json").read_text())
    versions = record.pop("versions")
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    libraries = {"allennlp", "torch", "transformers", "pytorch-metric-learning"}
    assert set(versions) == {"declutr", *libraries}
    assert versions["declutr"] == declutr.__version__
    start = record.pop("start")  # tests/training/test_start_validation.py
    assert start["validation_loss"] > 0 and "validation_mlm_accuracy" in start
    assert record.pop("cpu") == CHOICES.record()
    assert record == {
        "python": platform.python_version(),
        "processes": 1,
        "device": "cpu",
        "epochs": EPOCHS,
        "gradient_accumulation_steps": 2,
        "documents": 24,
        "validation_documents": 24,
        "global_batch_size": 5,
        "batches_per_epoch": 5,
        "loss": {
            "objective": "NTXent",
            "views": "SpanViews",
            "two_encoders": False,
            "head": None,
            "momentum": None,
            "reduction": "mean",
            "temperature": 0.05,
            "contrastive_weight": 1.0,
            "mlm_weight": 1.0,
            "mlm_head_reads": "last layer",
            "mask_contrastive_anchor": True,
            "scale_fix": True,
            "precision": "auto",
        },
    }


def test_the_record_says_which_subset_it_is_of(make_trainer: Callable, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, callbacks=[{"type": "run_record"}], checkpointer=None)
    trainer.data_loader.subset = RandomSubset(10, seed=7)
    for callback in trainer._callbacks:
        callback.on_start(trainer, is_primary=True)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["documents"], record["validation_documents"]) == (10, 24)
    assert record["subset"] == {"size": 10, "fraction": None, "seed": 7, "of": 24}


def test_a_resumed_run_with_other_documents_warns(
    make_trainer: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run.json").write_text('{"documents": 25, "validation_documents": 24}')
    trainer = make_trainer(tmp_path, callbacks=[{"type": "run_record"}], checkpointer=None)
    for count in (1, 1):  # the second time nothing has changed
        for callback in trainer._callbacks:
            callback.on_start(trainer, is_primary=True)
        assert caplog.text.count("has 24 documents now and had 25 when it began") == count
    assert "validation documents now" not in caplog.text


@pytest.mark.parametrize("is_primary, folder", [(False, "here"), (True, "")])
def test_only_the_first_process_writes_a_record(
    is_primary: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    callback = RunRecord(str(tmp_path / folder) if folder else "")
    trainer = SimpleNamespace(_validation_data_loader=None, cuda_device=torch.device("cuda"))
    callback.on_start(trainer, is_primary=is_primary)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
