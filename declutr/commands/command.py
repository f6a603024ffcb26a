"""How the commands of this package end when something is wrong: with a message, not a traceback."""

from __future__ import annotations

import argparse
import functools
import os
import tarfile
from collections.abc import Callable

from allennlp.common.checks import ConfigurationError

TRACEBACK = "DECLUTR_TRACEBACK"
_HELP = f"Errors end with status 2 and a message; {TRACEBACK}=1 shows where they were raised, too."
_INTERRUPTED = 130  # as shells have it for Ctrl-C

Run = Callable[[argparse.Namespace], None]


def set_command(parser: argparse.ArgumentParser, run: Run) -> None:
    """Let `parser` run a command whose errors are told to its user in words.

    What is wrong with arguments, files or a model is printed to standard error after the name of
    the command, which ends with status 2. Anything else is a mistake of ours and stays a traceback.
    """

    @functools.wraps(run)
    def run_and_tell(args: argparse.Namespace) -> None:
        try:
            run(args)
        except KeyboardInterrupt:
            if shows_traceback():
                raise
            parser.exit(_INTERRUPTED)
        except Exception as error:
            if shows_traceback() or not is_of_user(error):
                raise
            parser.exit(2, f"{parser.prog}: {in_words(error)}\n")

    parser.epilog = f"{parser.epilog}\n\n{_HELP}" if parser.epilog else _HELP
    parser.set_defaults(func=run_and_tell)


def shows_traceback() -> bool:
    """Whether the user asked for tracebacks, by the environment."""
    return os.environ.get(TRACEBACK, "0") not in ("", "0")


def is_of_user(error: Exception) -> bool:
    """Whether its message is for the user: of the system, or raised by this package in so many
    words (`EncoderError`, `UnsafeArchive`, `SourceError` and the like)."""
    told = (ConfigurationError, OSError, tarfile.TarError)
    return isinstance(error, told) or type(error).__module__.partition(".")[0] == "declutr"


def in_words(error: Exception) -> str:
    """The message of an error; of the system's, the file and what is wrong with it."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"'{error.filename}': {error.strerror}"
    return str(error) or type(error).__name__
