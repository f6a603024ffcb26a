"""The commands of this package as subcommands of AllenNLP, which `allennlp` lists and runs.

Importing this module registers them. Each is defined in a module of its own, which knows no
AllenNLP, so that the program `declutr` can run it alone (`declutr.commands.alone`).
"""

import argparse

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from declutr.bridge.component_names import SUBCOMMANDS
from declutr.bridge.names import Names
from declutr.commands.alone import definition
from declutr.commands.command import Command
from declutr.commands.errors import CommandError


class _Registered(Subcommand):
    """A base class of the subcommands, with what they do otherwise than a command alone.

    AllenNLP lists it with the prefix of this package where another package took its name, and
    programs that call AllenNLP get AllenNLP's error of arguments.
    """

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        own, names = self.name, Subcommand._registry[Subcommand]
        listed = names.listed(own) if isinstance(names, Names) else own
        if listed in parser.choices:  # by another name that a plugin then took
            return parser.choices[listed]
        assert isinstance(self, Command)
        # AllenNLP's class of parsers adds defaults to help texts, which name them already.
        parser._parser_class, theirs = argparse.ArgumentParser, parser._parser_class
        try:
            return self.add_to(parser, listed)
        finally:
            parser._parser_class = theirs

    def run(self, args: argparse.Namespace) -> None:
        try:
            super().run(args)  # type: ignore[misc]
        except CommandError as error:
            raise ConfigurationError(str(error)) from error


for _name, _place in SUBCOMMANDS.items():
    _bases = (_Registered, definition(_name))
    _class = type(_place.rpartition(":")[2], _bases, {"__module__": __name__})
    Subcommand.register(_name)(_class)
