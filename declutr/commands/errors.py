"""Expected errors of commands, reported as one message instead of a traceback.

This module imports neither AllenNLP nor torch, so that commands which run without them
(`declutr.__main__.COMMANDS`) report errors as all others do.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tarfile
from collections.abc import Callable

from declutr.bridge.configurations import TOLD, TRACEBACK
from declutr.bridge.untrusted import is_set
from declutr.commands.output import UNREAD, reader_has_gone
from declutr.system import is_sigterm

_INTERRUPTED = 130  # the exit status that shells use for Ctrl-C
_TERMINATED = 143  # and for SIGTERM


class CommandError(Exception):
    """Error raised if a command cannot work with its arguments, its files or a model."""


def set_command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Set the function that a parser runs, and report its expected errors as messages.

    # Parameters

    parser : the parser of the command. Its epilog gets a line about errors.
    run : the function to run with the parsed arguments.
    """

    @functools.wraps(run)
    def run_and_tell(args: argparse.Namespace) -> None:
        try:
            run(args)
            if sys.stdout is not None:
                sys.stdout.flush()  # what fails at the end of the process has no message
        except (Exception, KeyboardInterrupt) as error:
            tell(parser, error)
            raise

    if TOLD not in (parser.epilog or ""):
        parser.epilog = f"{parser.epilog}\n\n{TOLD}" if parser.epilog else TOLD
    parser.set_defaults(func=run_and_tell)


def tell(parser: argparse.ArgumentParser, error: Exception | KeyboardInterrupt) -> None:
    """End the process with a message, if an error of a command is an expected one.

    An error in arguments, files or a model is printed to standard error after the name of the
    command, and the process ends with status 2. Any other error is a bug and keeps its traceback.
    With the environment variable `DECLUTR_TRACEBACK=1` all errors keep it. Ctrl-C, SIGTERM and a
    pipe that is read no more (`| head`) end the process without a message, with the statuses 130,
    143 and 141.

    # Parameters

    parser : the parser of the command.
    error : the error, which is to be raised again if this function returns.
    """
    if is_set(TRACEBACK) or isinstance(error, SystemExit):
        return
    if isinstance(error, KeyboardInterrupt):
        parser.exit(_INTERRUPTED)
    elif is_sigterm(error):
        parser.exit(_TERMINATED)
    elif isinstance(error, BrokenPipeError) and reader_has_gone():
        parser.exit(UNREAD)
    elif is_of_user(error):
        print(f"{parser.prog}: {in_words(error)}{_no_utf8(error)}", file=sys.stderr)
        raise _exit(error) from error


def _exit(error: Exception) -> SystemExit:
    """Return the exit with status 2, which is AllenNLP's error as well if that was told.

    Programs that call `allennlp.commands.main` may expect a `ConfigurationError`.
    """
    checks = sys.modules.get("allennlp.common.checks")
    if checks is None or not isinstance(error, checks.ConfigurationError):
        return SystemExit(2)
    told = type("Told", (SystemExit, checks.ConfigurationError), {})(2)
    told.code, told.message = 2, error.message
    return told


def _no_utf8(error: Exception) -> str:
    """Return a sentence about an argument that is no UTF-8, if an error is of it; else nothing."""
    told = f"{error} {getattr(error, 'object', '')!r}"  # with escapes for lone surrogates
    for word in sys.argv:
        if any("\ud800" <= one <= "\udfff" and f"\\u{ord(one):x}" in told for one in word):
            return (
                f" ({word!r} is no UTF-8, which neither JSON nor Jsonnet, tokenizers and "
                "safetensors take: rename it.)"
            )
    return ""


def is_of_user(error: BaseException) -> bool:
    """Return whether the message of an error is meant for the user.

    That holds for errors of the operating system, `ConfigurationError`, errors of tar files, and
    the exceptions that this package defines (such as `EncoderError` and `UnsafeArchive`), and for a
    name in the arguments that libraries cannot encode.
    """
    if isinstance(error, UnicodeEncodeError) and _no_utf8(error):
        return True
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
