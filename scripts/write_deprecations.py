"""Write the table of deprecated names into docs/MIGRATION.md, between its markers.

Its rows are those of `declutr.deprecations`, and the recipes at earlier paths, which say on their
first line where they are today.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from declutr.deprecations import Deprecated, table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "MIGRATION.md"
BEGIN, END = "<!-- deprecated: scripts/write_deprecations.py -->\n", "<!-- end of deprecated -->\n"
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


def written_table() -> str:
    """Return the Markdown table of everything that is deprecated."""
    lines = ["| earlier name | today | deprecated since | goes in |", "|---|---|---|---|"]
    for row in [*table(), *moved_recipes()]:
        code = "" if " " in row.new and "," not in row.new else "`"
        today = f"{code}{row.new}{code}".replace(", ", "`, `")
        lines.append(f"| `{row.old}` | {today} | {row.since} | {row.removed} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """Return a page with the table between its two markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{written_table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
