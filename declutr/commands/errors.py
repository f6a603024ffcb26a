"""Expected errors of commands, reported as one message instead of a traceback.

This module imports neither AllenNLP nor torch, so that commands which run without them
(`declutr.__main__.COMMANDS`) report errors as all others do.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tarfile
from collections.abc import Callable

TRACEBACK = "DECLUTR_TRACEBACK"
_HELP = f"Errors end with status 2 and a message; {TRACEBACK}=1 shows where they were raised, too."
_INTERRUPTED = 130  # the exit status that shells use for Ctrl-C


def set_command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Set the function that a parser runs, and report its expected errors as messages.

    An error in arguments, files or a model is printed to standard error after the name of the
    command, and the process ends with status 2. Any other error is a bug and keeps its traceback.
    With the environment variable `DECLUTR_TRACEBACK=1` all errors keep it.

    # Parameters

    parser : the parser of the command. Its epilog gets a line about errors.
    run : the function to run with the parsed arguments.
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

    if _HELP not in (parser.epilog or ""):
        parser.epilog = f"{parser.epilog}\n\n{_HELP}" if parser.epilog else _HELP
    parser.set_defaults(func=run_and_tell)


def is_of_user(error: Exception) -> bool:
    """Return whether the message of an error is meant for the user.

    That holds for errors of the operating system, `ConfigurationError`, errors of tar files, and
    the exceptions that this package defines (such as `EncoderError` and `UnsafeArchive`).
    """
    told: tuple[type[Exception], ...] = (OSError, tarfile.TarError)
    checks = sys.modules.get("allennlp.common.checks")  # an error of it exists only if it is here
    if checks is not None:
        told += (checks.ConfigurationError,)
    return isinstance(error, told) or type(error).__module__.partition(".")[0] == "declutr"


def in_words(error: Exception) -> str:
    """Return the message of an error; for an error of the operating system, with the file name."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"'{error.filename}': {error.strerror}"
    return str(error) or type(error).__name__
