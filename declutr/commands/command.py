"""What the subcommands of this package share: how they are declared, and how they end.

When something is wrong they end with a message for the user, not with a traceback.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

STDIN = "-"
TRACEBACK = "DECLUTR_TRACEBACK"
_HELP = f"Errors end with status 2 and a message; {TRACEBACK}=1 shows where they were raised, too."
_INTERRUPTED = 130  # as shells have it for Ctrl-C


class Command(Subcommand):
    """A subcommand with its help, arguments and what it runs; its errors are told in words.

    # Attributes

    help : what it does, in the list of commands.
    description, epilog : stand before and after its arguments; an epilog keeps its lines.
    """

    help: str
    description: str
    epilog: str | None = None

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        raw, wrapped = argparse.RawDescriptionHelpFormatter, argparse.HelpFormatter
        subparser = parser.add_parser(
            self.name,
            description=self.description,
            help=self.help,
            formatter_class=raw if self.epilog else wrapped,
            epilog=self.epilog,
        )
        self.add_arguments(subparser)
        set_command(subparser, self.run)
        return subparser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add arguments and options to the parser of this command."""
        raise NotImplementedError

    def run(self, args: argparse.Namespace) -> None:
        """Do what the arguments say."""
        raise NotImplementedError


def set_command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Let `parser` run a command whose errors are told to its user in words.

    What is wrong with arguments, files or a model is printed to standard error after the name of
    the command, which ends with status 2. Anything else is a mistake of ours and stays a traceback.
    """

    @functools.wraps(run)
    def run_and_tell(args: argparse.Namespace) -> None:
        shows_traceback = os.environ.get(TRACEBACK, "0") not in ("", "0")
        try:
            run(args)
        except KeyboardInterrupt:
            if shows_traceback:
                raise
            parser.exit(_INTERRUPTED)
        except Exception as error:
            if shows_traceback or not is_of_user(error):
                raise
            parser.exit(2, f"{parser.prog}: {in_words(error)}\n")

    parser.epilog = f"{parser.epilog}\n\n{_HELP}" if parser.epilog else _HELP
    parser.set_defaults(func=run_and_tell)


def is_of_user(error: Exception) -> bool:
    """Return whether the message of an error is for the user.

    It is if the system raised it, or this package in so many words (`EncoderError`,
    `UnsafeArchive`, `SourceError` and the like).
    """
    told = (ConfigurationError, OSError, tarfile.TarError)
    return isinstance(error, told) or type(error).__module__.partition(".")[0] == "declutr"


def in_words(error: Exception) -> str:
    """Return the message of an error; of the system's, the file and what is wrong with it."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"'{error.filename}': {error.strerror}"
    return str(error) or type(error).__name__


@contextmanager
def told_to_user(*kinds: type[Exception]) -> Iterator[None]:
    """Within this context errors of these kinds become `ConfigurationError` with their words."""
    try:
        yield
    except kinds as error:
        raise ConfigurationError(str(error)) from error


@contextmanager
def told_when_stopped(what: str) -> Iterator[None]:
    """Within this context an interruption, as by Ctrl-C, tells what is left by then."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nStopped. {what}", file=sys.stderr)
        raise


def require_at_least_1(args: argparse.Namespace, *options: str) -> None:
    """Raise a `ConfigurationError` if one of these options is given a number below 1."""
    for option in options:
        value = getattr(args, option.strip("-").replace("-", "_"))
        if value is not None and value < 1:
            raise ConfigurationError(f"Expected a {option} of at least 1, got {value}.")


def add_text_key(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the text in rows of several fields."""
    about = "of JSON lines, CSV, TSV and parquet (text)"
    parser.add_argument("--text-key", metavar="KEY", default="text", help=about)


def require_apart(inputs: Sequence[str], files: Sequence[Path | None], output: Path) -> None:
    """See that no run will take what it writes for its input.

    # Parameters

    inputs : as they were given: files, folders, globs, or `STDIN`.
    files : those behind them; `None` is standard input.

    # Raises

    `ConfigurationError` : an input lies in the output folder, or holds it.
    """
    folder = output.resolve()
    for place in (Path(name).expanduser().resolve() for name in inputs if name != STDIN):
        if place.is_dir() and folder.is_relative_to(place):
            raise ConfigurationError(
                f"The output '{output}' lies in the input folder '{place}', and would be read as "
                "input when the command goes on. Choose another --output."
            )
    for file in files:
        if file is not None and file.resolve().is_relative_to(folder):
            raise ConfigurationError(
                f"The input '{file}' lies in the output '{output}'. Choose another --output."
            )
