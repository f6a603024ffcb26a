"""The base class of this package's subcommands, and the argument checks that they share.

A command that fails because of its arguments, its files or a model ends with a message for the
user, not with a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from declutr.bridge.component_names import PREFIX
from declutr.commands.errors import CommandError, set_command
from declutr.commands.help_groups import group
from declutr.commands.overview import OF_MODELS
from declutr.system import is_sigterm, local_path, raised_as

STDIN = "-"

_PATHS = {  # metavars of paths
    *("ARCHIVE", "DATA", "FILE", "FOLDER", "INDEX", "MODEL", "OUT", "PATTERN", "SOURCE"),
}


class Command:
    """A command whose expected errors are reported as messages.

    `declutr` runs it without AllenNLP where that is not needed, and AllenNLP as a subcommand
    (`declutr.commands.registered`). Subclasses set the attributes and implement `add_arguments` and
    `run`.

    # Attributes

    name : the name to call it by.
    description, epilog : texts before and after the list of arguments in the command's own help.
        The line breaks of an epilog are kept.
    """

    name: str
    description: str
    epilog: str | None = None

    def add_to(
        self, commands: argparse._SubParsersAction, name: str | None = None
    ) -> argparse.ArgumentParser:
        """Add this command to those of a program, and return its parser."""
        raw, wrapped = argparse.RawDescriptionHelpFormatter, argparse.HelpFormatter
        subparser = commands.add_parser(
            name or self.name,
            description=self.description,
            help=OF_MODELS[self.name],
            formatter_class=raw if self.epilog else wrapped,
            epilog=self.epilog,
        )
        commands.choices.setdefault(PREFIX + self.name, subparser)  # always understood
        group(commands, name or self.name)
        self.add_arguments(subparser)
        for action in subparser._actions:
            if (action.metavar or action.dest.upper()) in _PATHS:
                # Shells leave `~` within quotes and after `=`.
                action.type = os.path.expanduser
        set_command(subparser, self.run)
        return subparser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments and options of this command to its parser."""
        raise NotImplementedError

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        """Return whether the command opens what AllenNLP trained, or anything else of AllenNLP."""
        return False

    def run(self, args: argparse.Namespace) -> None:
        """Run the command with its parsed arguments."""
        raise NotImplementedError


def told_to_user(*kinds: type[Exception]) -> AbstractContextManager[None]:
    """Convert errors of these types, raised within this context, to `CommandError`."""
    return raised_as(CommandError, *kinds)


@contextmanager
def told_when_stopped(what: str) -> Iterator[None]:
    """Print a message if the code within this context is stopped, by Ctrl-C or SIGTERM.

    # Parameters

    what : a sentence for the user on the results so far. The interruption is raised again.
    """
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, KeyboardInterrupt) or is_sigterm(error):
            print(f"\nStopped. {what}", file=sys.stderr)
        raise


def require_at_least_1(args: argparse.Namespace, *options: str) -> None:
    """Raise `CommandError` if one of these options, such as `"-k"`, has a value below 1."""
    for option in options:
        value = getattr(args, option.strip("-").replace("-", "_"))
        if value is not None and value < 1:
            raise CommandError(f"Expected a {option} of at least 1, got {value}.")


def add_text_key(parser: Any, about: str = "of JSON lines, CSV, TSV and parquet (text)") -> None:
    """Add the option `--text-key`, which names the field of the text in records and tables."""
    parser.add_argument("--text-key", metavar="KEY", help=about)


def text_key(args: argparse.Namespace, files: Sequence[Path | None]) -> str:
    """Return the key of the text that `--text-key` names, or else `"text"`.

    # Parameters

    args : the parsed arguments.
    files : the files that are read; `None` is standard input of a text a line.

    # Raises

    `CommandError` : the option is given, and all files are text, which has no keys.
    """
    from declutr.corpus.text_files import file_format

    if args.text_key is None:
        return "text"
    if all(file is None or file_format(file) == "text" for file in files):
        named = next((f"'{file}'" for file in files if file is not None), "standard input")
        raise CommandError(
            f"Got --text-key {args.text_key}, but {named} is text, each line of which is a text as "
            "it stands. Leave it out, or name records as such: a file .jsonl or .csv, standard "
            "input of `declutr embed` by --stdin-format jsonl."
        )
    return args.text_key


def require_use(args: argparse.Namespace, why: str, *options: str) -> None:
    """Raise `CommandError` if one of these options is given, which would have no effect.

    # Parameters

    why : what the options are without: it follows "Got --option", as in "without --random".
    options : such as `"--seed"`, without a default of their own.
    """
    for option in options:
        if getattr(args, option.strip("-").replace("-", "_")) is not None:
            raise CommandError(f"Got {option} {why}, where it has no effect. Leave it out.")


def require_apart(inputs: Sequence[str], files: Sequence[Path | None], output: Path) -> None:
    """Raise if a later run of the command could read its own output as input.

    # Parameters

    inputs : the inputs as the user gave them: files, folders, globs, or `STDIN`.
    files : the files that the inputs stand for; `None` is standard input.
    output : the folder that the command writes to.

    # Raises

    `CommandError` : an input is inside the output folder, or is a folder that contains it.
    """
    folder = output.resolve()
    for place in (local_path(name).resolve() for name in inputs if name != STDIN):
        if place.is_dir() and folder.is_relative_to(place):
            raise CommandError(
                f"The output '{output}' lies in the input folder '{place}', and would be read as "
                "input when the command goes on. Choose another --output."
            )
    for file in files:
        if file is not None and file.resolve().is_relative_to(folder):
            raise CommandError(
                f"The input '{file}' lies in the output '{output}'. Choose another --output."
            )
