"""Write what docs/API.md and docs/MIGRATION.md list of the package, between their markers.

Run it after a change of registered names, of losses or of deprecated names.
Recipes at earlier paths are deprecated, too; they say on their first line where they are today.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill

import declutr.objectives
from declutr.components import COMPONENTS
from declutr.deprecations import Deprecated, table

ROOT = Path(__file__).parent.parent
MOVED = re.compile(r"// Moved to (\S+?)[,;:]? ")


def moved_recipes() -> Iterator[Deprecated]:
    """Yield the recipes at earlier paths, each with its path of today."""
    folder = ROOT / "training_config"
    for file in sorted(folder.rglob("*.*sonnet")):
        with file.open(encoding="utf-8") as lines:
            moved = MOVED.match(next(lines, ""))
        if moved:
            paths = (file, folder / moved[1])
            yield Deprecated(*(path.relative_to(ROOT).as_posix() for path in paths))


def deprecated_names() -> str:
    """Return the table of everything that is deprecated."""
    lines = ["| earlier name | today | deprecated since | goes in |", "|---|---|---|---|"]
    for row in [*table(), *moved_recipes()]:
        today = row.new if row.old.startswith("Objective.") else f"`{row.new}`"
        today = today.replace(", ", "`, `")
        lines.append(f"| `{row.old}` | {today} | {row.since} | {row.removed} |")
    return "\n".join(lines)


def losses() -> str:
    """Return the functions that `declutr.objectives` exports."""
    names = [f"`{name}`" for name in declutr.objectives.__all__ if name[0].islower()]
    return fill(", ".join(names) + ".", 118, break_long_words=False, break_on_hyphens=False)


def registered_names() -> str:
    """Return the table of registered names by base class."""
    lines = ["| base class | names |", "|---|---|"]
    for place, names in COMPONENTS.items():
        listed = ", ".join(f"`{name}`" for name in sorted(names))
        lines.append(f"| `{place.rpartition(':')[2]}` | {listed} |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {
    "docs/API.md losses": losses,
    "docs/API.md registered names": registered_names,
    "docs/MIGRATION.md deprecated names": deprecated_names,
}
"""What is written, by the page and the name of its place there."""


def pages() -> dict[Path, str]:
    """Return each page as it should be."""
    written: dict[Path, str] = {}
    for place, part in PARTS.items():
        name, what = place.split(" ", 1)
        file = ROOT / name
        page = written.get(file) or file.read_text(encoding="utf-8")
        before, rest = page.split(f"<!-- {what}: scripts/write_pages.py -->\n")
        after = rest.split(f"<!-- end of {what} -->")[1]
        written[file] = (
            f"{before}<!-- {what}: scripts/write_pages.py -->\n\n{part()}\n\n"
            f"<!-- end of {what} -->{after}"
        )
    return written


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
