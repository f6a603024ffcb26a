"""`declutr recipes`: list, show and copy the recipes of this package.

It runs before AllenNLP and torch are imported, and where they are not installed.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from declutr.commands.errors import set_command
from declutr.commands.output import print_whole
from declutr.recipes import recipe_path
from declutr.recipes.copies import copy_recipe
from declutr.recipes.purposes import as_json, as_markdown, as_text
from declutr.system import local_path

_EPILOG = """examples:
  declutr recipes                                who takes which recipe
  declutr recipes show simcse                    the recipe itself
  declutr recipes copy simcse -o recipes         a copy to change, with all that it imports
  allennlp train "$(declutr recipes path simcse)" -s output -o '{"train_data_path": "lines.txt"}'

A NAME is one of the list, with or without its folder, or the path of a file."""


def main(argv: list[str] | None = None) -> int:
    """Run `declutr recipes` with these arguments and return its exit status."""
    args = _parser().parse_args(argv)
    args.func(args)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="declutr recipes",
        description="List, show and copy the recipes that come with this package.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    set_command(parser, _list)
    parser.set_defaults(form="text")
    commands = parser.add_subparsers(metavar="COMMAND")
    listing = commands.add_parser("list", help="say who takes which recipe (the default)")
    forms = listing.add_mutually_exclusive_group()
    forms.add_argument("--json", dest="form", action="store_const", const="json")
    forms.add_argument("--markdown", dest="form", action="store_const", const="markdown")
    listing.set_defaults(form="text")
    set_command(listing, _list)
    showing = commands.add_parser("show", help="print a recipe")
    set_command(showing, _show)
    path = commands.add_parser("path", help="print the path of a recipe")
    set_command(path, _path)
    copying = commands.add_parser("copy", help="copy a recipe with all files that it imports")
    copying.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path())
    copying.add_argument("--force", action="store_true", help="replace files that are there")
    set_command(copying, _copy)
    for command in (showing, path, copying):
        command.add_argument("name", metavar="NAME")
    return parser


def _list(args: argparse.Namespace) -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    forms = {"text": lambda: as_text(width), "json": as_json, "markdown": as_markdown}
    print_whole(forms[args.form]().rstrip("\n") + "\n")


def _show(args: argparse.Namespace) -> None:
    print_whole(recipe_path(args.name).read_text(encoding="utf-8"))


def _path(args: argparse.Namespace) -> None:
    print(recipe_path(args.name))


def _copy(args: argparse.Namespace) -> None:
    recipe, *imported = copy_recipe(args.name, local_path(args.output), args.force)
    print(f"Copied {recipe}" + (", which imports " if imported else ""), end="")
    print(*imported, sep=", ")
