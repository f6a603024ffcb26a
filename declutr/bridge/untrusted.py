"""Additions to AllenNLP for untrusted archives: they are opened by rules, and `--trust` lifts them.

The rules are those of `declutr.archives.safety`. They hold where the environment variable
`DECLUTR_SAFE` is set and not 0; the program `declutr` sets it to 1 for itself and the processes
that it starts. Without it, AllenNLP opens archives as it always does.

They do not work around a change of a library, but are applied in the same way and switched off
together with the bridge; with `DECLUTR_PLUGIN=0` they hold all the same. Each function takes a
module of AllenNLP right after its body ran.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

SAFE = "DECLUTR_SAFE"
"""The environment variable under which archives are opened by the rules."""

# Modules of a package that builds on the bridge, imported only when AllenNLP needs them.
SAFETY = "declutr.archives.safety"
ERRORS = "declutr.commands.errors"
SYSTEM = "declutr.system"


def is_set(variable: str) -> bool:
    """Return whether an environment variable has a value other than 0."""
    return os.environ.get(variable, "0") not in ("", "0")


def is_safe() -> bool:
    """Return whether archives that AllenNLP opens are untrusted."""
    return is_set(SAFE)


def archives_by_rules(module: ModuleType) -> None:
    """Let `load_archive` open archives by the rules where `DECLUTR_SAFE` is set.

    Commands, `Predictor.from_path` and `Model.from_archive` all load by that function.

    Can be removed when AllenNLP itself builds registered classes only, from plain JSON.
    """

    @replaces(module)
    def load_archive(original: Any, archive_file: Any, *args: Any, **kwargs: Any) -> Any:
        for name, value in zip(("cuda_device", "overrides", "weights_file"), args, strict=False):
            kwargs[name] = value
        if not is_safe() and SAFETY not in sys.modules:  # so no archive is open by the rules
            return original(archive_file, **kwargs)
        load = importlib.import_module(SAFETY).loaded_by_rules
        return load(original, archive_file, trust=not is_safe(), **kwargs)


def trust_in_archives(module: ModuleType) -> None:
    """Give the command of a module the option `--trust`, where `DECLUTR_SAFE` is set.

    There, its errors of arguments, files and models are one line each, as those of this package's
    commands are. Can be removed together with `archives_by_rules`.
    """
    for value in vars(module).values():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if own and issubclass(value, module.Subcommand):
            _add_trust(value)


def _add_trust(command: type) -> None:
    @replaces(command)
    def add_subparser(original: Any, self: Any, parser: Any) -> Any:
        subparser = original(self, parser)
        if SAFE not in os.environ:
            return subparser
        subparser.add_argument(
            "--trust",
            action="store_true",
            help="the archive is yours: it may name code to run and files to read",
        )
        of_allennlp = subparser.get_default("func")

        def run(args: Any) -> Any:
            if not args.trust:
                return of_allennlp(args)
            with importlib.import_module(SYSTEM).variable_set(SAFE, "0"):
                return of_allennlp(args)

        importlib.import_module(ERRORS).set_command(subparser, run)
        return subparser
