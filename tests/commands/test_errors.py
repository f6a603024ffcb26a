"""Errors that a user can fix end with one message and status 2; all others keep their traceback."""

import argparse

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import SigTermReceived

from declutr.archives.safety import UnsafeArchive
from declutr.commands.errors import TRACEBACK, set_command
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


def test_names_that_are_no_utf8_are_told(command, monkeypatch: pytest.MonkeyPatch) -> None:
    error = UnicodeEncodeError("utf-8", "out\udcfe", 3, 4, "surrogates not allowed")
    monkeypatch.setattr("sys.argv", ["declutr", "work", "in\udce9", "out\udcfe"])
    for of_it in (error, ConfigurationError(r'The overrides {"s": "out\udcfe"} are wrong.')):
        status, told = command(of_it)
        assert status == 2 and r"('out\udcfe' is no UTF-8, which" in told
    assert "UTF-8" not in command(ConfigurationError("There is no such recipe."))[1]


def test_programs_that_call_main_can_catch_the_error_of_allennlp(capsys) -> None:
    def run(args: argparse.Namespace) -> None:
        raise ConfigurationError("no such model")

    parser = argparse.ArgumentParser(prog="inner")
    set_command(parser, run)
    outer = argparse.ArgumentParser(prog="outer")
    set_command(outer, parser.get_default("func"))  # two switches can wrap one command
    with pytest.raises(ConfigurationError, match=r"^no such model$") as caught:
        outer.get_default("func")(argparse.Namespace())
    assert isinstance(caught.value, SystemExit) and caught.value.code == 2
    assert capsys.readouterr().err == "inner: no such model\n"


def test_an_interruption_is_no_error(command) -> None:
    assert command(KeyboardInterrupt()) == (130, "")
    assert command(SigTermReceived()) == (143, "")  # what AllenNLP's handler of SIGTERM raises


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
