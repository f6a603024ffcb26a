"""The command `declutr setup`, which puts what AllenNLP needs into this environment."""

from __future__ import annotations

import argparse
import shlex
import sys

from declutr.commands.errors import set_command
from declutr.environment.installation import carry_out, plan, require_imports

_EPILOG = """\
AllenNLP 2.10.1 pins libraries of 2022. It is installed without them, and declutr makes it run on
current ones; they are requirements of declutr, of which those that are missing or too old are
installed as well. The interpreter's own pip does it, or uv where there is no pip. Both take their
settings from the environment, such as PIP_INDEX_URL, PIP_FIND_LINKS or UV_INDEX_URL."""


def main(argv: list[str]) -> None:
    """Run `declutr setup` with the arguments after its name."""
    parser = argparse.ArgumentParser(
        prog="declutr setup",
        description="Put AllenNLP into the environment of this Python. It is harmless twice.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    about = "print the commands and run none of them"
    parser.add_argument("--dry-run", action="store_true", help=about)
    set_command(parser, _run)
    args = parser.parse_args(argv)
    args.func(args)


def _run(args: argparse.Namespace) -> None:
    commands = plan()
    if not commands:
        print(f"{sys.prefix} has AllenNLP 2.10.1 and all that declutr requires: nothing to do.")
        return
    for command in commands:
        print(shlex.join(command), flush=True)
        if not args.dry_run:
            carry_out(command)
    if not args.dry_run:
        require_imports()
        print("AllenNLP 2.10.1 is installed and can be imported. `declutr doctor` tells the rest.")
