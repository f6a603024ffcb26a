"""Commands that fail end with a message for the user, status 2 and no traceback."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from allennlp.commands import main

import declutr.plugin  # noqa: F401
from declutr.commands.errors import TRACEBACK, CommandError
from declutr.commands.leaderboard import Leaderboard
from declutr.commands.report_options import wanted_of
from declutr.commands.search import Search
from declutr.commands.static_vectors import StaticVectors


@pytest.fixture(autouse=True)
def in_words(monkeypatch: pytest.MonkeyPatch, traceback: None) -> None:
    monkeypatch.delenv(TRACEBACK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("embed ./nowhere.tar.gz lines.txt -o out", "nowhere.tar.gz"),
        ("embed nowhere.tar.gz nowhere.txt -o out", "Found no documents at 'nowhere.txt'"),
        ("embed cut.tar.gz lines.txt -o out", "cut.tar.gz"),
        ("index ./nowhere.tar.gz lines.txt -o out", "nowhere.tar.gz"),
        ("index cut.tar.gz lines.txt -o out", "cut.tar.gz"),
        ("search nowhere query", "There is no index at 'nowhere'"),
        ("whiten ./nowhere.tar.gz lines.txt", "nowhere.tar.gz"),
        ("whiten cut.tar.gz lines.txt", "cut.tar.gz"),
        ("export ./nowhere.tar.gz out", "nowhere.tar.gz"),
        ("export cut.tar.gz out --no-onnx", "cut.tar.gz"),
        ("evaluate-embeddings nowhere random:8 -o out", "Found no folder 'nowhere'"),
        ("sample-spans nowhere.jsonnet", "nowhere.jsonnet"),
        ("train declutr_smal -s out", "There is no recipe 'declutr_smal'. Expected"),
        ("train undefined.jsonnet -s out", "takes the variable MY_DATA, which is not set"),
        ("train empty.jsonnet -s out -o {", "The overrides '{' cannot be evaluated"),
        ("train empty.jsonnet -s taken", "(taken) already exists and is not empty. Specify --rec"),
    ],
)
def test_every_command_ends_with_a_message(
    monkeypatch, capsys, trained: Path, tmp_path: Path, words, told
) -> None:
    whole = (trained / "model.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "lines.txt").write_text("ka lo\nmi\n")
    (tmp_path / "undefined.jsonnet").write_text("{ a: std.extVar('MY_DATA') }")
    (tmp_path / "empty.jsonnet").write_text("{}")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["declutr", *words.split()])
    with pytest.raises(SystemExit) as caught:
        main(prog="declutr")
    printed = capsys.readouterr().err
    assert caught.value.code == 2
    (line,) = [line for line in printed.splitlines() if line.startswith("declutr ")]
    assert line.startswith(f"declutr {words.split()[0]}: ") and told in line
    assert "Traceback" not in printed and "/tmp/tmp" not in printed
    assert not (tmp_path / "out").exists() and (tmp_path / "taken" / "notes.txt").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("embed m lines.txt -o out --text-key body", "Got --text-key body, but 'lines.txt' is t"),
        ("embed m - -o out --text-key body", "Got --text-key body, but standard input is text"),
        ("embed m lines.txt -o out --stdin-format jsonl", "--stdin-format without the input -"),
        ("index m lines.txt -o out --text-key body", "Got --text-key body, but 'lines.txt' is t"),
        ("split-sentences lines.txt -o out --text-key body", "Got --text-key body, but 'lines.tx"),
        ("whiten m lines.txt -o out --text-key body", "Got --text-key body, but 'lines.txt' is t"),
        ("search i query --json --width 9", "Got --width with --json, which prints whole lines"),
        ("mine-negatives p.tsv -o o.tsv --seed 0", "Got --seed without --random, where it has no"),
        ("mine-negatives p.tsv -o o.tsv --pool 9", "Got --pool without --random, --margin or --m"),
        ("mine-negatives p.tsv -o o.tsv --text-key t", "Got --text-key without --corpus (--ancho"),
        ("static-vectors lines.txt -o out --method words --seed 0", "Got --seed with --method wo"),
        ("static-vectors m -o out --method distil --text-key t", "Got --text-key with --method d"),
        ("static-vectors lines.txt -o o --tokenizer t --vocabulary 9", "Got --vocabulary with --"),
    ],
)
def test_options_without_an_effect_are_refused(
    monkeypatch, capsys, tmp_path: Path, words: str, told: str
) -> None:
    (tmp_path / "lines.txt").write_text("ka lo\nmi\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["declutr", *words.split()])
    with pytest.raises(SystemExit) as caught:
        main(prog="declutr")
    assert caught.value.code == 2 and told in capsys.readouterr().err


def test_pictures_in_a_format_are_no_report_without_pictures() -> None:
    args = argparse.Namespace(no_plots=True, formats=["csv", "svg"], quote=())
    with pytest.raises(CommandError, match="Got --format svg with --no-plots; give one"):
        wanted_of(args)


@pytest.mark.parametrize("home", ["~", "~/of"])
def test_the_home_folder_in_quotes_and_after_an_equals_sign(home: str, monkeypatch) -> None:
    """Shells leave `--output=~/out` as it is, and a folder named `~` would be made."""
    monkeypatch.setenv("HOME", "/home/me")
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    Search().add_to(commands)
    Leaderboard().add_to(commands)
    StaticVectors().add_to(commands)
    found = parser.parse_args(["leaderboard", f"{home}/a", "b~", f"--output={home}/c"])
    there = home.replace("~", "/home/me")
    assert (found.folders, found.output) == ([f"{there}/a", "b~"], f"{there}/c")
    found = parser.parse_args(["search", f"{home}/a", f"{home}/a", "--model", f"{home}/b"])
    assert (found.index, found.query, found.model) == (f"{there}/a", f"{home}/a", f"{there}/b")
    found = parser.parse_args(["static-vectors", "org/a", f"{home}/a", "-o", f"{home}/b"])
    assert (found.source, found.output) == (["org/a", f"{there}/a"], f"{there}/b")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["declutr", "allennlp"])
def test_both_programs_end_alike(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", command, "search", "nowhere", "query"],
        cwd=tmp_path,
        env={**os.environ, "ALLENNLP_LOG_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{command} search: There is no index at 'nowhere'.")
    assert done.stderr.count("\n") == 1
