"""Tests of the switches for untrusted archives; `tests/commands` has the attacks."""

import argparse
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from declutr.bridge import untrusted
from tests.foreign_archives import text_classifier

COMMANDS = {
    "predict": ["archive", "texts"],
    "evaluate": ["archive", "texts"],
    "train": ["recipe", "-s", "folder"],
    "find_learning_rate": ["recipe", "-s", "folder"],
}


@pytest.mark.parametrize(
    ("value", "safe"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)]
)
def test_the_rules_hold_where_the_variable_is_set(
    value: str | None, safe: bool, monkeypatch: Any
) -> None:
    monkeypatch.delenv(untrusted.SAFE, raising=False)
    if value is not None:
        monkeypatch.setenv(untrusted.SAFE, value)
    assert untrusted.is_safe() == safe


def test_archives_are_opened_by_rules(bare: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """AllenNLP itself evaluates Jsonnet in an archive."""
    text_classifier(tmp_path)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(f"// evaluated\n{config}")
    module = bare("allennlp.models.archival")
    monkeypatch.setenv(untrusted.SAFE, "1")
    assert module.load_archive(tmp_path).config["model"]["type"] == "basic_classifier"
    untrusted.archives_by_rules(module)
    with pytest.raises(ValueError, match=r"config\.json is not plain JSON: line 1 has the comment"):
        module.load_archive(tmp_path)
    monkeypatch.delenv(untrusted.SAFE)
    assert module.load_archive(tmp_path, -1, "", str(tmp_path / "best.th")).dataset_reader


def parsed(module: ModuleType, name: str, *options: str) -> argparse.Namespace:
    (command,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
        if issubclass(value, module.Subcommand)
    )
    parser = argparse.ArgumentParser(prog="declutr")
    subparser = command().add_subparser(parser.add_subparsers())
    subparser.set_defaults(func=subparser.get_default("func"))
    return subparser.parse_args([*COMMANDS[name], *options])


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_take_trust_where_the_variable_is_set(
    name: str, bare: Any, monkeypatch: Any
) -> None:
    module = bare(f"allennlp.commands.{name}")
    untrusted.trust_in_archives(module)
    monkeypatch.setenv(untrusted.SAFE, "0")  # an option must not become an error by it
    assert parsed(module, name, "--trust").trust
    monkeypatch.setenv(untrusted.SAFE, "1")
    assert not parsed(module, name).trust
    monkeypatch.delenv(untrusted.SAFE)
    with pytest.raises(SystemExit):
        parsed(module, name, "--trust")


def test_checklist_takes_trust(monkeypatch: Any) -> None:
    """The command needs a library that is not installed here; any module of a command will do."""
    from allennlp.commands.subcommand import Subcommand

    from declutr.bridge.switches import REPAIRS

    seen: list[tuple[str, bool]] = []

    class CheckList(Subcommand):
        def add_subparser(self, parser: Any) -> argparse.ArgumentParser:
            subparser = parser.add_parser("checklist")
            subparser.set_defaults(func=lambda args: seen.append((args.what, untrusted.is_safe())))
            subparser.add_argument("what")
            return subparser

    module = ModuleType(CheckList.__module__)
    module.CheckList, module.Subcommand = CheckList, Subcommand  # type: ignore[attr-defined]
    assert untrusted.trust_in_archives in REPAIRS["allennlp.commands._checklist_internal"]
    monkeypatch.setenv(untrusted.SAFE, "1")
    untrusted.trust_in_archives(module)
    parser = argparse.ArgumentParser(prog="declutr")
    subparser = CheckList().add_subparser(parser.add_subparsers())
    for options in ([], ["--trust"]):
        args = subparser.parse_args(["suite", *options])
        args.func(args)
    assert seen == [("suite", True), ("suite", False)] and os.environ[untrusted.SAFE] == "1"


def test_the_program_declutr_sets_the_variable(monkeypatch: Any) -> None:
    import allennlp.commands

    from declutr import __main__ as command

    monkeypatch.setattr(sys, "argv", ["declutr", "predict"])
    seen: list[str] = []
    monkeypatch.setattr(
        allennlp.commands, "main", lambda prog: seen.append(os.environ[untrusted.SAFE])
    )
    for before, inside in (("", "1"), ("0", "0"), ("1", "1")):
        monkeypatch.setenv(untrusted.SAFE, before)
        command.main()
        assert seen.pop() == inside and os.environ[untrusted.SAFE] == before
    monkeypatch.delenv(untrusted.SAFE)
    command.main()
    assert seen == ["1"] and untrusted.SAFE not in os.environ
