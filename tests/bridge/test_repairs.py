"""Repairs of training, and of batches on their way to a GPU: each is needed, and works."""

import contextlib
import importlib
import inspect
import sys
import warnings
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.bridge import repairs
from declutr.system import host_memory


def numbers_mean_cuda() -> bool:
    """Return whether `torch.device(0)` is CUDA in this build of torch, as AllenNLP expects."""
    try:
        return torch.device(0).type == "cuda"
    except RuntimeError:
        return False


def test_a_gpu_that_is_not_there_is_still_called_cuda(bare: Any) -> None:
    module = bare("allennlp.common.util")
    changed = repairs.cuda_device_numbers(module)
    assert module.int_to_device(3) == torch.device("cuda", 3)
    assert module.int_to_device(-1) == torch.device("cpu")
    assert module.int_to_device(torch.device("meta")) == torch.device("meta")
    assert changed is not numbers_mean_cuda()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the error is about a GPU that is missing")
def test_asking_for_a_missing_gpu_gives_allennlps_own_error(bare: Any) -> None:
    from allennlp.common.checks import ConfigurationError, check_for_gpu

    if not numbers_mean_cuda():
        with contextlib.suppress(RuntimeError):  # no accelerator, or another one
            assert bare("allennlp.common.util").int_to_device(0).type != "cuda"
    with pytest.raises(ConfigurationError, match="GPU"):
        check_for_gpu(0)


def test_only_modules_of_the_package_itself_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: Any
) -> None:
    """A folder `models` beside the command is no part of a package with a subpackage `models`."""
    for part in ("plugged/models/inner", "here/models/foreign"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "__init__.py").touch()
    (tmp_path / "here/models/foreign/__init__.py").write_text("raise SystemExit('run')")
    for part in ("plugged", "plugged/models"):
        (tmp_path / part / "__init__.py").touch()
    (tmp_path / "plugged/models/inner/deep.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path / "here")
    names = ["plugged", "plugged.models", "plugged.models.inner", "plugged.models.inner.deep"]
    for name in [*names, "models", "models.foreign"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    name = "allennlp.common.util"
    with pytest.raises(SystemExit, match="run"):
        bare(name).import_module_and_submodules("plugged")
    for name_ in [*names, "models", "models.foreign"]:
        sys.modules.pop(name_, None)
    importlib.import_module(name).import_module_and_submodules("plugged")
    assert set(names) <= set(sys.modules) and "models" not in sys.modules
    for name_ in names:
        del sys.modules[name_]


class _Counted:
    """A finder that counts how often `checklist` is looked for, and says that there is none."""

    def __init__(self) -> None:
        self.times = 0

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "checklist":
            self.times += 1
            raise ModuleNotFoundError(name)


def test_the_same_modules_are_imported_and_searched_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: Any
) -> None:
    for part in ("plugged", "plugged/models", "plugged/left", "elsewhere/plugged"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "__init__.py").touch()
    for file in ("plugged/models/deep", "plugged/left/out", "plugged/_own", "plugged/test_it"):
        (tmp_path / f"{file}.py").touch()
    (tmp_path / "elsewhere/plugged/further.py").touch()
    further = f"__path__.append({str(tmp_path / 'elsewhere/plugged')!r})"
    (tmp_path / "plugged/__init__.py").write_text(further)
    monkeypatch.syspath_prepend(tmp_path)
    anew, looked = [], _Counted()
    clear = importlib.invalidate_caches
    monkeypatch.setattr(importlib, "invalidate_caches", lambda: anew.append(clear()))
    monkeypatch.setattr(sys, "meta_path", [looked, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "checklist", raising=False)

    def imported(module: Any) -> tuple[list[str], int, int]:
        anew.clear()
        looked.times = 0
        module.import_module_and_submodules("plugged", exclude={"plugged.left"})
        names = [name for name in sys.modules if name.split(".")[0] == "plugged"]
        for name in names:
            del sys.modules[name]
        return names, len(anew), looked.times

    name = "allennlp.common.util"
    names = ["plugged", "plugged.models", "plugged.models.deep"]
    assert imported(bare(name)) == (names, 3, 4)  # once for what is left out, too
    repaired = importlib.import_module(name)
    assert imported(repaired) == (names, 1, 1)
    needs_it = "allennlp.confidence_checks.task_checklists"
    monkeypatch.delitem(sys.modules, needs_it, raising=False)
    repaired.import_module_and_submodules(needs_it)
    assert needs_it not in sys.modules


def test_modules_of_a_zip_file_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "plugged.zip", "w") as file:
        file.writestr("zipped/__init__.py", "")
        file.writestr("zipped/part/__init__.py", "")
        file.writestr("zipped/part/deep.py", "")
    monkeypatch.syspath_prepend(tmp_path / "plugged.zip")
    importlib.import_module("allennlp.common.util").import_module_and_submodules("zipped")
    names = ("zipped", "zipped.part", "zipped.part.deep")
    assert all(sys.modules.pop(name, None) for name in names)


@pytest.mark.parametrize("offered", [False, True])
def test_runs_of_wandb_have_an_id(
    offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: Any
) -> None:
    began: list[str] = []
    fake: Any = ModuleType("wandb")
    fake.util = SimpleNamespace(**({"generate_id": lambda: "theirs"} if offered else {}))
    fake.init = lambda id, **options: began.append(id)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_API_KEY", "0")
    (tmp_path / "config.json").write_text("{}")

    def started(module: Any, primary: bool = True) -> Any:
        callback = module.WandBCallback(
            str(tmp_path),
            files_to_save=(),
            watch_model=False,
            should_log_parameter_statistics=False,
        )
        monkeypatch.setattr(callback, "_enable_activation_logging", lambda: None)
        callback.on_start(SimpleNamespace(), is_primary=primary)
        return callback

    name = "allennlp.training.callbacks.wandb"
    if not offered:
        with pytest.raises(AttributeError, match="generate_id"):
            started(bare(name))
    callback = started(importlib.import_module(name))
    assert began == [callback.state_dict()["run_id"]] and began[0]
    assert (began == ["theirs"]) is offered
    assert started(importlib.import_module(name), primary=False).state_dict() == {"run_id": None}


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)


def test_reduce_on_plateau_works_without_verbose(bare: Any) -> None:
    name = "allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers"
    module = bare(name)
    plain = module.ReduceOnPlateauLearningRateScheduler
    if "verbose" not in inspect.signature(torch.optim.lr_scheduler.ReduceLROnPlateau).parameters:
        with pytest.raises(TypeError, match="verbose"):
            plain(optimizer())
    cured = importlib.import_module(name).ReduceOnPlateauLearningRateScheduler
    assert inspect.signature(cured) == inspect.signature(plain)
    adjusted = optimizer()
    scheduler = cured(adjusted, "max", 0.5, patience=0, verbose=True)
    for metric in (1.0, 0.5, 0.4):
        scheduler.step(metric)
    assert adjusted.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize(
    "name", ["allennlp.training.gradient_descent_trainer", "allennlp.nn.parallel.ddp_accelerator"]
)
def test_amp_does_not_warn(name: str, bare: Any) -> None:
    module = bare(name)
    with pytest.warns(FutureWarning, match="deprecated"), module.amp.autocast(False):
        pass
    assert repairs.amp_names(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        with module.amp.autocast(False):
            product = torch.ones(2, 2) @ torch.ones(2, 2)
        assert product.dtype == torch.float32
        assert isinstance(module.amp.GradScaler(enabled=False), torch.amp.GradScaler)


def test_amp_passes_enabled_by_name(monkeypatch: Any) -> None:
    # torch.amp.autocast takes the dtype where torch.cuda.amp.autocast took `enabled`.
    from allennlp.training import gradient_descent_trainer as module

    seen: list[Any] = []
    monkeypatch.setattr(torch.amp, "autocast", lambda *args, **kwargs: seen.append((args, kwargs)))
    module.amp.autocast(True)
    assert seen == [(("cuda",), {"enabled": True})]


def test_the_deprecated_names_stay_importable() -> None:
    # `gradient_descent_trainer` imports OptState from torch.cuda.amp.grad_scaler.
    from allennlp.training import gradient_descent_trainer as module

    assert module.OptState.READY.value == 0


def collected(module: Any, rows: str) -> int:
    """Return the instances that a spawned worker of the module's loader reads."""
    from allennlp.common import Params
    from allennlp.data import DatasetReader

    params = {"type": "text_classification_json", "tokenizer": "just_spaces"}
    reader = DatasetReader.from_params(Params(params))
    loader = module.MultiProcessDataLoader(
        reader, rows, batch_size=4, num_workers=1, start_method="spawn", max_instances_in_memory=4
    )
    return len(list(loader.iter_instances()))


@pytest.mark.slow
def test_data_workers_take_their_lock_from_the_right_context(
    bare: Any, rows: str, monkeypatch: Any
) -> None:
    name = "allennlp.data.data_loaders.multiprocess_data_loader"
    module, plain = importlib.import_module(name), bare(name)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, name, plain)  # where pickle looks for its classes
        with pytest.raises(RuntimeError, match="SemLock created in a fork context"):
            collected(plain, rows)
    assert collected(module, rows) == 12
    assert module.mp is torch.multiprocessing  # put back after every start


def test_tensors_go_to_a_gpu_from_pinned_memory(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = bare("allennlp.nn.util")
    repairs.sent_from_pinned_memory(module)
    sent = []

    def to_device(tensor: torch.Tensor, device: torch.device) -> Any:
        sent.append(device)
        return SimpleNamespace(of=tensor)

    monkeypatch.setattr(host_memory, "to_device", to_device)
    one, other = torch.arange(3), torch.ones(2)
    batch = {"ids": one, "texts": {"tokens": [other]}, "rows": (1, "a")}
    moved = module.move_to_device(batch, 1)
    assert moved["ids"].of is one and moved["texts"]["tokens"][0].of is other
    assert moved["rows"] == (1, "a") and sent == [torch.device("cuda", 1)] * 2


def test_other_objects_are_moved_as_before(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = bare("allennlp.nn.util")
    repairs.sent_from_pinned_memory(module)
    monkeypatch.setattr(host_memory, "to_device", None)
    row = torch.arange(3)
    assert module.move_to_device({"ids": row}, -1)["ids"] is row
    assert module.move_to_device(row, torch.device("meta")).device.type == "meta"


@pytest.mark.parametrize("device", ["cpu", "cuda:0", [0, 1]])
def test_a_device_of_a_trainer_is_a_number(device: Any, bare: Any) -> None:
    module = bare("allennlp.training.gradient_descent_trainer")
    repairs.device_numbers(module)
    with pytest.raises(ConfigurationError, match="expected a number: that of a GPU"):
        module.GradientDescentTrainer.from_partial_objects(None, "", None, cuda_device=device)
