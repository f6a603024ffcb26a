"""What commands print reaches terminals of any encoding, and ends well where nobody reads it."""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from declutr.__main__ import main
from declutr.commands.errors import TRACEBACK, set_command
from declutr.commands.output import escape_other_characters, prints_unicode, reader_has_gone
from declutr.commands.search import _answer
from declutr.search import Hit


@pytest.fixture(autouse=True)
def in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRACEBACK, raising=False)


def print_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writing, "w"))


def ended(run: Callable[..., Any]) -> object:
    """Return the exit status of a command that does this."""
    parser = argparse.ArgumentParser(prog="declutr work")
    set_command(parser, run)
    args = parser.parse_args([])
    with pytest.raises(SystemExit) as caught:
        args.func(args)
    return caught.value.code


@pytest.mark.parametrize("amount", [1, 100_000])
def test_a_pipe_that_is_read_no_more_ends_a_command_quietly(
    amount: int, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in the buffer at the end, too, about which Python itself would complain."""
    print_to_nobody(monkeypatch)
    assert ended(lambda args: print("a line\n" * amount)) == 141
    print("whatever else is printed", flush=True)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "words", [[], ["--version"], ["recipes", "list"], ["recipes", "show", "scd"]]
)
def test_what_is_printed_whole_may_be_cut_off(
    words: list[str], capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_to_nobody(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["declutr", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 141
    assert capfd.readouterr().err == ""


def test_another_pipe_that_is_broken_is_told(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(args: argparse.Namespace) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    assert ended(run) == 2 and not reader_has_gone()
    with (tmp_path / "printed.txt").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert ended(run) == 2
    assert capsys.readouterr().err == "declutr work: [Errno 32] Broken pipe\n" * 2


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_terminals_of_other_encodings(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding, "strict")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert prints_unicode() == (encoding == "utf-8")
    escape_other_characters()
    print("cut …", flush=True)
    expected = "cut …" if encoding == "utf-8" else "cut \\u2026"
    assert terminal.buffer.getvalue().decode(encoding) == expected + "\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_hits_in_json_are_json_in_every_encoding(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding, "backslashreplace")
    monkeypatch.setattr(sys, "stdout", terminal)
    index: Any = SimpleNamespace(search=lambda query, k: [Hit(0, 1.0, "é 日")])
    _answer(index, "où", argparse.Namespace(k=1, json=True))
    found = json.loads(terminal.buffer.getvalue())  # type: ignore[attr-defined]
    assert found["query"] == "où" and found["hits"][0]["text"] == "é 日"


def test_a_search_whose_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    index: Any = SimpleNamespace(search=lambda query, k: [Hit(0, 1.0, "a line")])
    _answer(index, "a query", argparse.Namespace(k=1, json=False, width=80, query="a query"))
