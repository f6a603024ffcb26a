"""The finder changes the named modules only, and names a switch that fails."""

import importlib
import importlib.util
import inspect
import logging
import subprocess
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from declutr import bridge
from declutr.bridge import finder, switches
from declutr.bridge.finder import BridgeError, BridgeFinder, BridgeLoader

TABLES = (switches.LENT, switches.REPAIRS, switches.ADDITIONS)
NAMED = sorted({name for table in TABLES for name in table})
OF_OPTIONAL_PACKAGES = {
    "allennlp.commands._checklist_internal",
    *(name for name in NAMED if name.partition(".")[0] != "allennlp"),
}


@pytest.fixture(scope="module", autouse=True)
def _allennlp() -> None:
    importlib.import_module("allennlp.commands")


@pytest.mark.parametrize("name", NAMED)
def test_every_named_module_imports_and_keeps_its_own_loader(name: str) -> None:
    if name in OF_OPTIONAL_PACKAGES:
        pytest.importorskip(name, reason="allennlp-models, py-rouge or checklist is not installed")
    module = importlib.import_module(name)
    assert type(module.__loader__) is SourceFileLoader
    assert module.__spec__ is not None and module.__spec__.loader is module.__loader__
    assert inspect.getsource(module).strip()


# A dictionary instead of a set, because parallel test processes must agree on the order.
SWITCHES = dict.fromkeys(switch for table in TABLES for entry in table.values() for switch in entry)


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_says_when_it_can_be_removed(switch: Any) -> None:
    assert "Can be removed" in inspect.getdoc(switch)


def test_wraps_the_loader_of_a_named_module() -> None:
    spec = importlib.util.find_spec("allennlp.common.util")
    assert spec is not None and type(spec.loader) is SourceFileLoader  # from sys.modules
    import allennlp.common

    spec = BridgeFinder().find_spec("allennlp.common.util", allennlp.common.__path__)
    assert spec is not None and isinstance(spec.loader, BridgeLoader)
    assert spec.loader.get_filename("allennlp.common.util") == spec.origin  # type: ignore


@pytest.mark.parametrize(
    "name", ["json", "torch", "allennlp", "allennlp.data.batch", "allennlpx.a"]
)
def test_leaves_other_imports_alone(name: str) -> None:
    assert BridgeFinder().find_spec(name) is None


def test_allennlp_itself_is_left_alone_unless_spacy_is_absent(monkeypatch: Any) -> None:
    assert BridgeFinder().find_spec("allennlp") is None
    monkeypatch.setitem(sys.modules, "spacy", None)
    spec = BridgeFinder().find_spec("allennlp")
    assert spec is not None and isinstance(spec.loader, BridgeLoader)


@pytest.mark.slow
def test_looking_for_allennlp_imports_nothing() -> None:
    code = (
        "import sys, importlib.util as u; sys.modules['spacy'] = None\n"
        "import declutr; u.find_spec('allennlp')\n"
        "print([n for n in sys.modules if n == 'filelock' or n.startswith('declutr.bridge.s')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_named_module_that_does_not_exist_is_not_found() -> None:
    assert BridgeFinder().find_spec("allennlp.common.util", ["/nowhere"]) is None


@pytest.mark.parametrize("version", ["1.12.1", "unknown"])
def test_does_nothing_with_a_torch_that_allennlp_supports(monkeypatch: Any, version: str) -> None:
    import allennlp.common

    monkeypatch.setattr(torch, "__version__", version)
    assert BridgeFinder().find_spec("allennlp.common.util", allennlp.common.__path__) is None


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_does_nothing_without_the_libraries(monkeypatch: Any, library: str) -> None:
    import allennlp.common

    monkeypatch.delitem(sys.modules, library)
    assert BridgeFinder().find_spec("allennlp.common.util", allennlp.common.__path__) is None


def test_two_finders_that_ask_the_others_do_not_loop(monkeypatch: Any) -> None:
    class Asking:
        asked = 0

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            self.asked += 1
            for other in sys.meta_path:
                if other is not self and (spec := other.find_spec(name, path, target)):
                    return spec
            return None

    import allennlp.common

    asking, ours = Asking(), BridgeFinder()
    rest = [f for f in sys.meta_path if not isinstance(f, BridgeFinder)]
    monkeypatch.setattr(sys, "meta_path", [ours, asking, *rest])
    spec = ours.find_spec("allennlp.common.util", allennlp.common.__path__)
    assert asking.asked == 1
    assert spec is not None and isinstance(spec.loader, BridgeLoader)
    assert type(spec.loader._loader) is SourceFileLoader


def run_named(tmp_path: Path, source: str, monkeypatch: Any, **tables: Any) -> ModuleType:
    path = tmp_path / "named.py"
    path.write_text(source)
    for table, entries in tables.items():
        monkeypatch.setitem(getattr(switches, table), "named", entries)
    spec = importlib.util.spec_from_file_location("named", path)
    assert spec is not None and spec.loader is not None
    spec.loader = BridgeLoader(spec.loader)  # type: ignore[assignment]
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failing(*_: Any) -> bool:
    """Return a switch that fails as with an unknown future release."""
    raise AttributeError("no such name")


@pytest.mark.parametrize("table", ["LENT", "REPAIRS"])
def test_an_error_names_the_failing_switch_and_how_to_disable_the_bridge(
    table: str, tmp_path: Path, monkeypatch: Any
) -> None:
    expected = r"'failing' could not be applied to named: AttributeError: no such name.*DECLUTR_BR"
    with pytest.raises(BridgeError, match=expected):
        run_named(tmp_path, "", monkeypatch, **{table: (failing,)})


def test_an_error_of_the_module_itself_is_not_blamed_on_a_switch(
    tmp_path: Path, monkeypatch: Any
) -> None:
    lent = (switches.publishing.hub_names,)
    with pytest.raises(ZeroDivisionError):
        run_named(tmp_path, "1 / 0", monkeypatch, LENT=lent)


def test_applied_switches_are_logged(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    def changes(module: ModuleType) -> bool:
        module.value = 2  # type: ignore[attr-defined]
        return True

    def idle(module: ModuleType) -> bool:
        return False

    with caplog.at_level(logging.DEBUG, logger="declutr.bridge"):
        module = run_named(tmp_path, "value = 1", monkeypatch, REPAIRS=(changes, idle))
    assert module.value == 2
    assert caplog.messages == ["named: changes applied", "named: idle not needed"]


def test_install_is_done_once_and_can_be_switched_off(monkeypatch: Any) -> None:
    rest = [f for f in sys.meta_path if not isinstance(f, BridgeFinder)]
    monkeypatch.setattr(sys, "meta_path", list(rest))
    assert not bridge.is_active()
    monkeypatch.setenv(finder.SWITCH, "0")
    bridge.install()
    assert sys.meta_path == rest and not bridge.is_active()
    monkeypatch.delenv(finder.SWITCH)
    bridge.install()
    bridge.install()
    assert bridge.is_active() and sys.meta_path[1:] == rest
