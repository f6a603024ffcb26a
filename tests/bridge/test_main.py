"""Tests of the commands `declutr`, `python -m declutr` and `allennlp` from any folder."""

import importlib
import importlib.util
import logging
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import allennlp.commands
import pytest

import declutr
from declutr import __main__ as command


def test_without_allennlp_it_says_how_to_install_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["declutr", "train", "recipe.jsonnet"])
    with pytest.raises(SystemExit, match=r"`declutr setup` .*no-deps allennlp==2\.10\.1") as end:
        command.main()
    assert "\n" not in str(end.value)


def test_version_is_printed(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["declutr", "--version"])
    command.main()
    assert capsys.readouterr().out == f"declutr {declutr.__version__} (allennlp 2.10.1)\n"


def test_help_names_the_command(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["anything", "train", "--help"])
    monkeypatch.delitem(sys.modules, "declutr.__main__")
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module("declutr", run_name="__main__")
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("usage: declutr train")


def test_the_plugin_is_loaded_before_the_command(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["declutr", "train"])
    loaded: list[str] = []
    monkeypatch.setattr(allennlp.commands, "main", lambda prog: loaded.append(prog))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(importlib, "import_module", loaded.append)
    command.main()
    assert loaded == ["declutr.plugin", "declutr"]


def test_logging_is_set_up_by_allennlp() -> None:
    import allennlp.__main__

    assert allennlp.__main__.LEVEL in (logging.DEBUG, logging.INFO, logging.WARNING)
    assert logging.getLogger("filelock").level == logging.WARNING


@pytest.mark.slow
def test_plain_allennlp_from_another_folder(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("allennlp")
    if not script.exists() or not _has_pth():
        pytest.skip("declutr is not installed beside the `allennlp` command here")
    env = {**os.environ, "ALLENNLP_LOG_LEVEL": "INFO"}
    result = subprocess.run(
        [str(script), "--help"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "usage: allennlp" in result.stdout and "find-lr" in result.stdout
    if importlib.util.find_spec("declutr.plugin"):
        assert "Plugin declutr.plugin available" in result.stderr


def _has_pth() -> bool:
    return any(Path(folder, "declutr_bridge.pth").exists() for folder in sys.path)
