"""Commands that fail end with a message for the user, status 2 and no traceback."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError

import declutr.plugin  # noqa: F401
from declutr.archives.safety import UnsafeArchive
from declutr.commands.command import TRACEBACK, set_command
from declutr.corpus.documents import SourceError
from declutr.inference.encoder import EncoderError


@pytest.fixture(autouse=True)
def in_words(monkeypatch: pytest.MonkeyPatch, traceback: None) -> None:
    monkeypatch.delenv(TRACEBACK)


@pytest.fixture
def command(capsys):
    """Return a function that runs a failing command and returns its status and message."""

    def command(error: BaseException) -> tuple[object, str]:
        def run(args: argparse.Namespace) -> None:
            raise error

        parser = argparse.ArgumentParser(prog="declutr work")
        set_command(parser, run)
        args = parser.parse_args([])
        with pytest.raises(SystemExit) as caught:
            args.func(args)
        printed = capsys.readouterr()
        assert printed.out == ""
        return caught.value.code, printed.err

    return command


@pytest.mark.parametrize(
    "error", [ConfigurationError, EncoderError, UnsafeArchive, SourceError, FileNotFoundError]
)
def test_errors_that_a_user_can_fix_end_with_a_message(command, error) -> None:
    assert command(error("No model at 'x'.")) == (2, "declutr work: No model at 'x'.\n")


def test_errors_of_the_operating_system_name_the_file(command) -> None:
    error = PermissionError(13, "Permission denied", "/root/out")
    assert command(error) == (2, "declutr work: '/root/out': Permission denied\n")
    assert command(OSError(28, "No space left")) == (2, "declutr work: [Errno 28] No space left\n")
    assert command(ConfigurationError("")) == (2, "declutr work: ConfigurationError\n")


def test_an_interruption_is_no_error(command) -> None:
    assert command(KeyboardInterrupt()) == (130, "")


@pytest.mark.parametrize("error", [ValueError("a mistake of ours"), KeyError("x"), SystemExit(1)])
def test_bugs_keep_their_traceback(error) -> None:
    parser = argparse.ArgumentParser()

    def run(args: argparse.Namespace) -> None:
        raise error

    set_command(parser, run)
    with pytest.raises(type(error)) as caught:
        parser.parse_args([]).func(argparse.Namespace())
    assert caught.value is error


@pytest.mark.parametrize("value, shown", [("1", True), ("0", False), ("", False)])
def test_tracebacks_can_be_asked_for(monkeypatch, value: str, shown: bool) -> None:
    def run(args: argparse.Namespace) -> None:
        raise ConfigurationError("No model at 'x'.")

    parser = argparse.ArgumentParser(epilog="MODEL is a folder.")
    set_command(parser, run)
    assert f"MODEL is a folder.\n\nErrors end with status 2 and a message; {TRACEBACK}=1" in (
        parser.epilog or ""
    )
    monkeypatch.setenv(TRACEBACK, value)
    with pytest.raises(ConfigurationError if shown else SystemExit):
        parser.parse_args([]).func(argparse.Namespace())


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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["declutr", *words.split()])
    with pytest.raises(SystemExit) as caught:
        main(prog="declutr")
    printed = capsys.readouterr().err
    assert caught.value.code == 2
    (line,) = [line for line in printed.splitlines() if line.startswith("declutr ")]
    assert line.startswith(f"declutr {words.split()[0]}: ") and told in line
    assert "Traceback" not in printed and "/tmp/tmp" not in printed
    assert not (tmp_path / "out").exists()


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
