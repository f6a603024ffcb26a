"""What AllenNLP is taught about this package: plugin, blank lines, archived transformers."""

import importlib.util
import inspect
import io
import os
import pickle
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from declutr.bridge import additions
from tests.hostile_archives import changed, packed, regular, special, tar_of, with_torch_pickle


@pytest.fixture
def plugins(bare: Any, monkeypatch: Any, tmp_path: Path) -> ModuleType:
    """AllenNLP's plugins module without the switch, in a folder without plugin files."""
    module = bare("allennlp.common.plugins")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "GLOBAL_PLUGINS_FILENAME", str(tmp_path / "none"))
    return module


def test_our_plugin_is_discovered_once(plugins: ModuleType, monkeypatch: Any) -> None:
    assert list(plugins.discover_plugins()) == []
    monkeypatch.setattr(additions, "PLUGIN", "json.decoder")  # one that can be found
    assert additions.own_plugin(plugins)
    assert list(plugins.discover_plugins()) == ["json.decoder"]
    Path(".allennlp_plugins").write_text("json.decoder\njson.encoder\n")
    assert list(plugins.discover_plugins()) == ["json.decoder", "json.encoder"]
    Path(".allennlp_plugins").write_text("json.encoder\n")
    assert list(plugins.discover_plugins()) == ["json.encoder", "json.decoder"]


@pytest.mark.parametrize("name", ["declutr.no_such_module", "no_such_package.plugin"])
def test_a_plugin_that_is_not_there_is_not_listed(
    name: str, plugins: ModuleType, monkeypatch: Any
) -> None:
    monkeypatch.setattr(additions, "PLUGIN", name)
    assert additions.own_plugin(plugins) is False
    assert list(plugins.discover_plugins()) == []


@pytest.mark.skipif(
    importlib.util.find_spec("declutr.plugin") is None, reason="there is no plugin module yet"
)
def test_the_real_plugin_is_listed_here(monkeypatch: Any, tmp_path: Path) -> None:
    from allennlp.common.plugins import discover_plugins

    monkeypatch.chdir(tmp_path)
    assert list(discover_plugins()).count("declutr.plugin") == 1


def lines_of(module: Any, path: str, **attributes: Any) -> list[str]:
    predictor = SimpleNamespace(load_line=lambda line: line, **attributes)
    manager = module._PredictManager(predictor, path, None, 1, False, False)
    return list(manager._get_json_data())


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_blank_lines(source: str, bare: Any, tmp_path: Path, monkeypatch: Any) -> None:
    text = "a\n\n  \nb\rb\n"  # a carriage return ends no line
    path = tmp_path / "lines.txt"
    path.write_bytes(text.encode())

    def read(module: Any, **attributes: Any) -> list[str]:
        stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        return lines_of(module, str(path) if source == "file" else "-", **attributes)

    import allennlp.commands.predict as cured

    kept, dropped = ["a\n", "\n", "  \n", "b\rb\n"], ["a\n", "b\n", "b\n"]
    assert read(bare("allennlp.commands.predict"), keeps_blank_lines=True) == dropped
    assert read(cured, keeps_blank_lines=True) == kept
    assert read(cured, keeps_blank_lines=False) == dropped
    assert read(cured) == dropped


@pytest.fixture
def archival(bare: Any) -> ModuleType:
    """AllenNLP's archival module whose functions return what they were given."""
    module = bare("allennlp.models.archival")

    def archive_model(
        serialization_dir: Any,
        weights: str = "best.th",
        archive_path: Any = None,
        include_in_archive: Any = None,
    ) -> Any:
        return serialization_dir, weights, archive_path, include_in_archive

    module._load_dataset_readers = lambda config, serialization_dir: (config, serialization_dir)
    module._load_model = lambda *args: args
    module.archive_model = archive_model
    return module


@pytest.fixture
def ours(monkeypatch: Any) -> Any:
    """Stands for `declutr.archives.carried`."""
    module = ModuleType("fake_archives")
    module.__spec__ = importlib.util.spec_from_loader("fake_archives", loader=None)
    module.use_archived_transformer = lambda c, d: f"{c} from {d}"  # type: ignore[attr-defined]
    module.archive_transformer = lambda d: [f"{d}/ours"]  # type: ignore[attr-defined]
    module.checked = []  # type: ignore[attr-defined]
    module.require_whole_weights = module.checked.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_archives", module)
    monkeypatch.setattr(additions, "ARCHIVES", "fake_archives")
    return module


def test_archives_are_loaded_through_ours(archival: ModuleType, ours: Any) -> None:
    assert archival._load_dataset_readers("config", "dir") == ("config", "dir")
    assert additions.archived_transformers(archival)
    assert archival._load_dataset_readers("config", "dir") == ("config from dir", "dir")
    expected = ("config from dir", "weights", "dir", -1)
    assert archival._load_model("config", "weights", "dir", -1) == expected


def test_archives_carry_what_ours_names(archival: ModuleType, ours: Any) -> None:
    additions.archived_transformers(archival)
    assert archival.archive_model("dir") == ("dir", "best.th", None, ["dir/ours"])
    given = archival.archive_model("dir", "w.th", None, ["log"])  # by position, too
    assert given == ("dir", "w.th", None, ["log", "dir/ours"])
    assert ours.checked == [os.path.join("dir", name) for name in ("best.th", "w.th")]
    ours.archive_transformer = lambda folder: []
    assert archival.archive_model("dir", include_in_archive=None) == ("dir", "best.th", None, None)


def test_without_our_archives_nothing_changes(archival: ModuleType, monkeypatch: Any) -> None:
    monkeypatch.setattr(additions, "ARCHIVES", "declutr.no_such_module")
    additions.archived_transformers(archival)
    assert archival._load_dataset_readers("config", "dir") == ("config", "dir")
    assert archival._load_model("config", "weights", "dir", 0) == ("config", "weights", "dir", 0)
    assert archival.archive_model("dir") == ("dir", "best.th", None, None)


@pytest.mark.parametrize("wrapped", ["attaching", "plain", None])
def test_a_wrapped_model_meets_its_trainer(bare: Any, wrapped: str | None) -> None:
    import torch

    module = bare("allennlp.training.gradient_descent_trainer")
    before = inspect.signature(module.GradientDescentTrainer.__init__)
    assert additions.attached_models(module)
    assert inspect.signature(module.GradientDescentTrainer.__init__) == before
    met: list[Any] = []
    model = {
        "attaching": SimpleNamespace(attach=met.append, is_sharded=False),
        "plain": SimpleNamespace(is_sharded=False),
        None: None,
    }[wrapped]
    layer = torch.nn.Linear(1, 1)
    trainer = module.GradientDescentTrainer(
        layer,
        torch.optim.SGD(layer.parameters(), lr=0.1),
        SimpleNamespace(set_target_device=lambda device: None),
        num_epochs=3,
        cuda_device=-1,
        ddp_wrapped_model=model,
    )
    assert met == ([trainer] if wrapped == "attaching" else [])
    assert trainer._num_epochs == 3
    layer.attach = met.append  # the model itself
    again = module.GradientDescentTrainer(
        layer,
        torch.optim.SGD(layer.parameters(), lr=0.1),
        SimpleNamespace(set_target_device=lambda device: None),
        cuda_device=-1,
        ddp_wrapped_model=None,
    )
    assert met[-1] is again


@pytest.mark.parametrize(
    "now, allowed",
    [
        ({"cuda_devices": [0, 1], "primary_port": 2}, True),
        ({"cuda_devices": [2], "num_nodes": 2, "primary_address": "other"}, True),
        ({"cuda_devices": [0, 1], "ddp_accelerator": {"type": "fsdp"}}, True),
        ({"cuda_devices": [0, 1, 2]}, False),
        (None, False),
    ],
)
@pytest.mark.parametrize("rate", [0.1, 0.2])
def test_a_run_is_recovered_elsewhere(
    bare: Any, now: dict | None, allowed: bool, rate: float, tmp_path: Path
) -> None:
    module = bare("allennlp.training.util")
    assert additions.moved_runs(module)
    before = {"distributed": {"cuda_devices": [0, 1], "primary_port": 1}, "lr": 0.1}
    module.create_serialization_dir(module.Params(before), tmp_path / "run", False, False)
    module.Params(before).to_file(str(tmp_path / "run" / "config.json"))
    params = module.Params({"lr": rate} if now is None else {"lr": rate, "distributed": now})
    expected = params.as_dict(quiet=True)
    if allowed and rate == 0.1:
        module.create_serialization_dir(params, tmp_path / "run", True, False)
    else:
        with pytest.raises(module.ConfigurationError, match="does not match"):
            module.create_serialization_dir(params, tmp_path / "run", True, False)
    assert params.as_dict(quiet=True) == expected, "what is recorded is what runs"


@pytest.mark.parametrize(
    "before, now, allowed",
    [
        ({"epochs": 1}, {"epochs": 1, "type": "declutr"}, True),
        ({"epochs": 1, "type": "declutr", "read_every": 5}, {"epochs": 1}, True),
        ({"epochs": 1}, {"epochs": 2, "type": "declutr"}, False),
        ({"epochs": 1, "type": "gradient_descent"}, {"epochs": 1, "type": "no_op"}, False),
    ],
)
def test_a_run_goes_on_with_the_other_trainer(
    bare: Any, before: dict, now: dict, allowed: bool, tmp_path: Path
) -> None:
    module = bare("allennlp.training.util")
    assert additions.moved_runs(module)
    begun = module.Params({"trainer": before})
    module.create_serialization_dir(begun, tmp_path / "run", False, False)
    begun.to_file(str(tmp_path / "run" / "config.json"))
    params = module.Params({"trainer": dict(now)})
    if allowed:
        module.create_serialization_dir(params, tmp_path / "run", True, False)
    else:
        with pytest.raises(module.ConfigurationError, match="does not match"):
            module.create_serialization_dir(params, tmp_path / "run", True, False)
    assert params.as_dict(quiet=True) == {"trainer": now}


def test_archives_are_extracted_by_our_rules(bare: Any, monkeypatch: Any, tmp_path: Path) -> None:
    honest = tar_of(tmp_path / "honest.tar.gz", [regular("config.json", b"{}")])
    hostile = tar_of(tmp_path / "hostile.tar.gz", [regular("../escaped")])
    temporary = tmp_path / "a" / "temporary"
    temporary.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    module = bare("allennlp.models.archival")
    assert additions.checked_extraction(module)
    with module.extracted_archive(str(honest)) as folder:
        assert Path(folder, "config.json").read_text() == "{}"
    assert list(temporary.iterdir()) == []
    with module.extracted_archive(str(honest), cleanup=False) as folder:
        pass
    assert [str(path) for path in temporary.iterdir()] == [folder]  # AllenNLP removes it itself
    for cleanup in (True, False):
        with (
            pytest.raises(
                ValueError, match=r"hostile\.tar\.gz: .*'\.\./escaped' climbs out of its"
            ),
            module.extracted_archive(str(hostile), cleanup=cleanup),
        ):
            pytest.fail("it was extracted")
    assert [str(path) for path in temporary.iterdir()] == [folder]
    assert not list(tmp_path.rglob("escaped"))


def test_extraction_without_our_rules_is_left_alone(bare: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(additions, "SAFE_ARCHIVES", "declutr.no_such_module")
    module = bare("allennlp.models.archival")
    original = module.extracted_archive
    assert additions.checked_extraction(module) is False
    assert module.extracted_archive is original


def test_plain_allennlp_loads_no_pickles_and_escapes_nowhere(trained: Path, tmp_path: Path) -> None:
    """What `allennlp predict` and `evaluate` do, without any check of the configuration."""
    from allennlp.models.archival import load_archive

    marker = tmp_path / "marker"
    (tmp_path / "content").mkdir()
    change = with_torch_pickle("weights.th", marker)
    folder = changed(trained / "model.tar.gz", tmp_path / "content", change)
    archive = packed(folder, tmp_path / "model.tar.gz")
    with pytest.raises(pickle.UnpicklingError, match=r"(?s)Weights only load failed.*mkdir"):
        load_archive(archive)
    assert not marker.exists()
    with pytest.raises(ValueError, match="'link' is a symbolic link to '/etc'"):
        load_archive(tar_of(archive, [special("link", tarfile.SYMTYPE, "/etc")]))
