"""`declutr --help` lists all commands there are, without AllenNLP to ask for them."""

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands.subcommand import Subcommand

import declutr
import declutr.plugin
from declutr.__main__ import COMMANDS, _unknown, main
from declutr.commands import overview as module
from declutr.commands.overview import OF_ALLENNLP, OF_MODELS, overview
from declutr.components import COMPONENTS


@pytest.fixture(autouse=True)
def no_other_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_PLUGIN_FILES", (".allennlp_plugins",))
    monkeypatch.setattr(module, "_KNOWN_PLUGINS", ())


def test_all_commands_are_listed_with_what_they_do() -> None:
    assert set(OF_MODELS) == set(COMPONENTS["allennlp.commands.subcommand:Subcommand"])
    of_allennlp = {
        name
        for name in Subcommand.list_available()
        if Subcommand.by_name(name).__module__.startswith("allennlp.")
    }
    assert set(OF_ALLENNLP) == of_allennlp
    lines = overview(COMMANDS).splitlines()
    for name in {*COMMANDS, *OF_MODELS, *OF_ALLENNLP}:
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 2 and len(line) <= 88


def test_names_of_this_program_are_not_those_of_others() -> None:
    assert not set(COMMANDS) & {*OF_MODELS, *OF_ALLENNLP}
    assert not set(COMMANDS) & set(Subcommand.list_available())


def test_commands_of_other_plugins_are_listed(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "declutr_test_plugin.py").write_text(
        "from allennlp.commands import Subcommand\n"
        "@Subcommand.register('brew-tea')\nclass BrewTea(Subcommand): pass\n"
    )
    (tmp_path / ".allennlp_plugins").write_text("declutr_test_plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    known = dict(Subcommand._registry[Subcommand])
    try:
        lines = overview(COMMANDS).splitlines()
    finally:
        Subcommand._registry[Subcommand].pop("brew-tea")
    assert set(Subcommand.list_available()) == set(known)
    assert lines[-2] == "Other plugins:" and lines[-1].split()[0] == "brew-tea"


def test_without_allennlp_it_says_how_to_get_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert overview(COMMANDS).endswith("AllenNLP is not installed yet; `declutr setup` does it.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", ["--version", "--help", *(f"{name} --help" for name in COMMANDS)]
)
def test_help_and_version_need_no_library(arguments: str, tmp_path: Path) -> None:
    """Not even installed ones are imported."""
    module = COMMANDS.get(arguments.split()[0], ("declutr:",))[0].partition(":")[0]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not here")
    code = (
        f"import sys, runpy; sys.argv = ['declutr', *{arguments.split()!r}]\n"
        "try:\n runpy.run_module('declutr', run_name='__main__')\n"
        "except SystemExit as end:\n assert not end.code, end.code\n"
        "heavy = {'torch', 'transformers', 'allennlp', 'numpy', 'filelock', 'huggingface_hub'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(declutr.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("declutr 2." if arguments == "--version" else "usage: declutr")
    assert done.stdout.endswith("imported: []\n")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("docter", "There is no command 'docter'. Did you mean 'doctor'? `declutr --help` lists"),
        ("serch", "There is no command 'serch'. Did you mean 'search'?"),
        ("xyz", "There is no command 'xyz'. `declutr --help` lists them."),
    ],
)
def test_a_word_that_is_no_command(
    word: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """AllenNLP would list its own commands alone, and ours with the prefix as well."""
    monkeypatch.setattr(sys, "argv", ["declutr", word])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and capsys.readouterr().err.startswith(f"declutr: {said}")


def test_commands_of_plugins_are_left_to_allennlp(tmp_path: Path) -> None:
    assert _unknown("brew-tea") and not _unknown("declutr-embed") and not _unknown("predict")
    (tmp_path / ".allennlp_plugins").write_text("declutr_test_plugin\n")
    assert _unknown("brew-tea") is None
