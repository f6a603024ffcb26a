"""Who takes which recipe, as the recipes themselves say it in their first lines, in a table."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import NamedTuple

from declutr.recipes import SUFFIX, recipe_names, recipes_folder

_HAVE, _WANT = "// I have: ", "// I want: "
_FOLDERS = (  # in the order of tables
    *("", "static", "untrained", "sentences", "labelled", "with_evaluation", "reclaim"),
)
_README = """\
# Recipes

`declutr recipes` prints this table, `declutr recipes show NAME` a recipe, and `declutr recipes copy
NAME` copies one with all it imports. `allennlp train` takes a path (`declutr recipes path NAME`
prints it), `declutr train` a name, too. The table is made of the first lines of the recipes:

    declutr recipes list --markdown > training_config/README.md

What recipes share is in `base.libsonnet`, `sentences/sentences.libsonnet`,
`labelled/sbert.libsonnet`, `static/static.libsonnet` and `reclaim/reclaim.libsonnet`; optimizers
and schedules are in `optimizers.libsonnet`. Files that begin with `// Moved to` keep the paths of
release 1.9 until 3.0.
"""


class Purpose(NamedTuple):
    """Who takes a recipe: its name, what they have, and what they want."""

    name: str
    have: str
    want: str


def purposes() -> list[Purpose]:
    """Return the purpose of each recipe: those for everybody first, ablations last.

    # Raises

    `ValueError` : a recipe does not begin with the lines `// I have: ` and `// I want: `.
    """
    names = sorted(recipe_names(), key=_place)
    folder = recipes_folder()
    return [_purpose(name, folder / f"{name}{SUFFIX}") for name in names]


def _place(name: str) -> int:
    folder, slash, _ = name.partition("/")
    return [*_FOLDERS, folder].index(folder if slash else "")


def _purpose(name: str, file: Path) -> Purpose:
    have, want, *_ = [*file.read_text(encoding="utf-8").splitlines(), "", ""]
    if not (have.startswith(_HAVE) and want.startswith(_WANT)):
        raise ValueError(
            f"'{file}' begins with {have!r} and {want!r}. Expected the lines '{_HAVE}...' and "
            f"'{_WANT}...', which `declutr recipes` lists."
        )
    return Purpose(name, have.removeprefix(_HAVE), want.removeprefix(_WANT))


def as_json() -> str:
    """Return the purposes and paths of all recipes as a JSON array of objects."""
    folder = recipes_folder()
    rows = [{**row._asdict(), "path": str(folder / f"{row.name}{SUFFIX}")} for row in purposes()]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def as_markdown() -> str:
    """Return the page `training_config/README.md`: what recipes are, and their table."""
    rows = [f"| {have} | {want} | [{name}]({name}.jsonnet) |" for name, have, want in purposes()]
    return "\n".join([_README, "| I have ... | I want ... | take |", "|---|---|---|", *rows, ""])


def as_text(width: int) -> str:
    """Return the table for a terminal: under what people have, the names and what they want.

    # Parameters

    width : the longest line, in characters. Names are never broken.
    """
    rows = purposes()
    indent = max(len(row.name) for row in rows) + 4
    lines = []
    for have in dict.fromkeys(row.have for row in rows):
        lines += ["", f"I have {have}. I want ..."]
        for name, _, want in (row for row in rows if row.have == have):
            wrapped = textwrap.wrap(want, max(width - indent, 20))
            lines += [f"  {name:<{indent - 2}}{wrapped[0]}"]
            lines += [" " * indent + more for more in wrapped[1:]]
    return "\n".join(lines[1:])
