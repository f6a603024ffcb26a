"""Tests of the commands `declutr`, `python -m declutr` and `allennlp` from any folder."""

import importlib
import importlib.metadata
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


def test_without_the_plugin_it_says_so(monkeypatch: Any) -> None:
    monkeypatch.setenv("DECLUTR_PLUGIN", "0")
    monkeypatch.setattr(sys, "argv", ["declutr", "train", "recipe.jsonnet"])
    with pytest.raises(SystemExit, match=r"DECLUTR_PLUGIN=0 is set .*Unset DECLUTR_PLUGIN") as end:
        command.main()
    assert "\n" not in str(end.value)


def test_a_missing_library_is_one_line(monkeypatch: Any) -> None:
    def broken(name: str) -> None:
        raise ModuleNotFoundError("No module named 'spacy'")

    monkeypatch.setattr(sys, "argv", ["declutr", "train", "recipe.jsonnet"])
    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(SystemExit, match=r"No module named 'spacy'\. `declutr doctor` says more"):
        command.main()


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
@pytest.mark.long
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
    assert "\n  Sentence embeddings (declutr):\n    embed " in result.stdout


def _has_pth() -> bool:
    return any(Path(folder, "declutr_bridge.pth").exists() for folder in sys.path)


def test_commands_of_declutr_alone_run_before_allennlp(monkeypatch: Any) -> None:
    given: list[list[str]] = []
    table = {"tea": ("declutr.commands.cache:main", "make tea")}
    monkeypatch.setattr(command, "COMMANDS", table)
    monkeypatch.setattr("declutr.commands.cache.main", given.append)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["declutr", "tea", "--green"])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert not end.value.code and given == [["--green"]]


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_commands(arguments: list[str], monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["declutr", *arguments])
    command.main()
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in ("setup", "doctor", "embed", "train"))


def test_the_version_is_told_without_allennlp(monkeypatch: Any, capsys: Any) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(sys, "argv", ["declutr", "--version"])
    command.main()
    told = f"declutr {declutr.__version__} (AllenNLP is not installed: declutr setup)\n"
    assert capsys.readouterr().out == told
