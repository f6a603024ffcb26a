"""Running of a command of this package without AllenNLP, whose import takes seconds."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

from declutr.bridge.component_names import SUBCOMMANDS, short
from declutr.bridge.untrusted import SAFE
from declutr.commands.command import Command
from declutr.commands.errors import tell
from declutr.system import variable_set

_FORMAT = "%(asctime)s - %(levelname)s - %(name)s - %(message)s"


class SigTermReceived(Exception):
    """Error raised by SIGTERM, as by AllenNLP's handler (`declutr.system.is_sigterm`)."""


def definition(name: str) -> type[Command]:
    """Return the class of a command, which lies in a module of the same name."""
    module = importlib.import_module(f"declutr.commands.{name.replace('-', '_')}")
    return getattr(module, SUBCOMMANDS[name].rpartition(":")[2])


def run_alone(arguments: Sequence[str]) -> bool:
    """Run a command of this package without AllenNLP, unless it needs AllenNLP.

    Help, errors, logging, SIGTERM and the rules for untrusted archives are as with AllenNLP.

    # Parameters

    arguments : the words after `declutr`, of which the first is the name of the command.

    # Returns

    Whether it was run. It is not if it needs AllenNLP (`Command.needs_allennlp`), or if
    `--include-package` names a package, which may add to AllenNLP.
    """
    name = str(short(arguments[0]))
    command = definition(name)()
    parser = argparse.ArgumentParser(prog="declutr")
    of_command = command.add_to(parser.add_subparsers(title="Commands", metavar=""))
    about = "additional packages to include"  # as AllenNLP says
    of_command.add_argument("--include-package", action="append", default=[], help=about)
    args = parser.parse_args([name, *arguments[1:]])
    try:
        if args.include_package or command.needs_allennlp(args):
            return False
    except Exception as error:  # of a model that cannot be looked at
        tell(of_command, error)
        raise
    _set_up_logging()
    signal.signal(signal.SIGTERM, _end)
    with variable_set(SAFE, os.environ.get(SAFE) or "1"):
        args.func(args)
    return True


def _set_up_logging() -> None:
    """Log as the command `allennlp` does, by the same environment variables."""
    level = logging.getLevelName(os.environ.get("ALLENNLP_LOG_LEVEL", "INFO"))
    if os.environ.get("ALLENNLP_DEBUG"):
        level = logging.DEBUG
    # Of a name that is no level, `getLevelName` returns a string.
    logging.basicConfig(format=_FORMAT, level=level if isinstance(level, int) else logging.INFO)
    logging.getLogger("filelock").setLevel(logging.WARNING)


def _end(*signalled: Any) -> NoReturn:
    raise SigTermReceived
