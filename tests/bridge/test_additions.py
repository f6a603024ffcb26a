"""Tests of the additions to AllenNLP: the plugin, blank lines and trainers."""

import contextlib
import inspect
import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional, Union

import pytest

from declutr.bridge import additions


@pytest.fixture
def plugins(bare: Any, monkeypatch: Any, tmp_path: Path) -> ModuleType:
    """Return AllenNLP's plugins module without the switch, in a folder without plugin files."""
    module = bare("allennlp.common.plugins")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "GLOBAL_PLUGINS_FILENAME", str(tmp_path / "none"))
    return module


def test_names_of_this_package_are_known_with_the_plugins(
    plugins: ModuleType, monkeypatch: Any
) -> None:
    extended: list[str] = []
    monkeypatch.setattr(additions, "extend", lambda before_use: extended.append(before_use))
    Path(".allennlp_plugins").write_text("json.decoder\ndeclutr.plugin\n")
    assert list(plugins.discover_plugins()) == ["json.decoder", "declutr.plugin"]
    additions.own_plugin(plugins)
    assert not extended
    assert list(plugins.discover_plugins()) == ["json.decoder"]  # ours is imported at first use
    assert extended == ["declutr.plugin"]


def lines_of(module: Any, path: str, **attributes: Any) -> list[str]:
    predictor = SimpleNamespace(load_line=lambda line: line, **attributes)
    manager = module._PredictManager(predictor, path, None, 1, False, False)
    return list(manager._get_json_data())


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_blank_lines_are_passed_to_predictors_that_keep_them(
    source: str, bare: Any, tmp_path: Path, monkeypatch: Any
) -> None:
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


@pytest.mark.parametrize("wrapped", ["attaching", "plain", "of another package", None])
def test_models_and_wrappers_are_attached_to_their_trainer(bare: Any, wrapped: str | None) -> None:
    import torch

    module = bare("allennlp.training.gradient_descent_trainer")
    before = inspect.signature(module.GradientDescentTrainer.__init__)
    additions.attached_models(module)
    assert inspect.signature(module.GradientDescentTrainer.__init__) == before
    met: list[Any] = []
    model = {
        "attaching": SimpleNamespace(
            attach=met.append, attached_to_trainers=True, is_sharded=False
        ),
        "plain": SimpleNamespace(is_sharded=False),
        "of another package": SimpleNamespace(attach="a file", is_sharded=False),
        None: None,
    }[wrapped]
    layer = torch.nn.Linear(1, 1)

    def trainer_with(wrapper: Any, **settings: Any) -> Any:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        loader = SimpleNamespace(set_target_device=lambda device: None)
        settings |= {"cuda_device": -1, "ddp_wrapped_model": wrapper}
        return module.GradientDescentTrainer(layer, optimizer, loader, **settings)

    trainer = trainer_with(model, num_epochs=3)
    assert met == ([trainer] if wrapped == "attaching" else [])
    assert trainer._num_epochs == 3
    layer.attach = lambda: pytest.fail("of another package")
    trainer_with(None)
    layer.attach, layer.attached_to_trainers = met.append, True  # the model itself
    assert trainer_with(None) is met[-1]


def recovered(module: Any, folder: Path, before: dict, now: dict, allowed: bool) -> None:
    """Begin a run in a folder, and go on with another configuration, which stays as it is."""
    additions.moved_runs(module)
    module.create_serialization_dir(module.Params(before), folder, False, False)
    module.Params(before).to_file(str(folder / "config.json"))
    params = module.Params(now)
    expected = params.as_dict(quiet=True)
    with (
        contextlib.nullcontext()
        if allowed
        else pytest.raises(module.ConfigurationError, match="does not match")
    ):
        module.create_serialization_dir(params, folder, True, False)
    assert params.as_dict(quiet=True) == expected, "what is recorded is what runs"


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
def test_a_run_is_recovered_on_other_nodes(
    bare: Any, now: dict | None, allowed: bool, rate: float, tmp_path: Path
) -> None:
    before = {"distributed": {"cuda_devices": [0, 1], "primary_port": 1}, "lr": 0.1}
    after = {"lr": rate} if now is None else {"lr": rate, "distributed": now}
    module = bare("allennlp.training.util")
    recovered(module, tmp_path / "run", before, after, allowed and rate == 0.1)


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
    recovered(module, tmp_path / "run", {"trainer": before}, {"trainer": now}, allowed)


def test_a_wrong_key_is_named_with_the_nearest(bare: Any) -> None:
    module = bare("allennlp.common.from_params")
    params = module.Params

    class Inner(module.FromParams):  # type: ignore[name-defined,misc]
        def __init__(self, size: int = 1) -> None:
            self.size = size

    class Outer(module.FromParams):  # type: ignore[name-defined,misc]
        def __init__(self, inner: Inner, learning_rate: float = 1.0) -> None:
            self.inner = inner

    additions.nearest_keys(module)
    assert Outer.from_params(params({"inner": {"size": 3}})).inner.size == 3
    with pytest.raises(module.ConfigurationError) as raised:
        Outer.from_params(params({"inner": {"sise": 3}}))
    assert str(raised.value) == (
        "Extra parameters passed to Inner: {'sise': 3}. Did you mean 'size' for 'sise'? "
        "It takes size."
    )
    with pytest.raises(module.ConfigurationError, match=r"It takes inner, learning_rate\.$"):
        Outer.from_params(params({"inner": {}, "learning-rate": 3}))


def test_a_text_is_no_list_of_its_letters(bare: Any) -> None:
    module = bare("allennlp.common.from_params")

    class Frozen(module.FromParams):  # type: ignore[name-defined,misc]
        def __init__(
            self,
            names: Optional[list[str]] = None,
            pair: tuple[float, float] = (0.9, 0.99),
            either: Union[str, list[str]] = "one",
            sizes: tuple[int, ...] = (1,),
        ) -> None:
            self.given = names, pair, either, sizes

    def given(**settings: Any) -> Any:
        return Frozen.from_params(module.Params(settings)).given

    assert given(names="bias")[0] == ["b", "i", "a", "s"]
    additions.whole_lists(module)
    with pytest.raises(module.ConfigurationError) as raised:
        given(names="bias")
    assert str(raised.value) == 'Expected a list for names of Frozen, such as ["bias"], got "bias".'
    with pytest.raises(module.ConfigurationError, match="Expected a list for pair of Frozen"):
        given(pair=0.9)
    assert given(names=["bias"], pair=[0, 1]) == (["bias"], (0, 1), "one", (1,))
    assert given(sizes=3)[3] == 3, "AllenNLP passes it on as it is given"
    assert given(either=["bias"])[2] == ["bias"]
