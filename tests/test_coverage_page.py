"""docs/COVERAGE.md: what it names is there, and every recipe is named."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import declutr.__main__
from declutr.commands.overview import OF_ALLENNLP, OF_MODELS
from declutr.recipes import recipe_names

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "COVERAGE.md").read_text(encoding="utf-8")
ABSENT = "not here: "
RECIPE = re.compile(r"(?:[a-z]\w*/)*[a-z]\w*|reclaim/ablations/(?:weight|fraction)_[0-9.]+")
"""What is in backquotes and is no command, test or setting; those have spaces, dots or colons."""
FEWEST_WORDS = 2
"""Of a reason why something is not here."""


class CoverageRow(NamedTuple):
    """A row of a table of a paper."""

    where: str
    what: str
    here: str
    held_by: str

    @property
    def is_here(self) -> bool:
        return not self.here.startswith(ABSENT)

    @property
    def recipes(self) -> list[str]:
        quoted = re.findall(r"`([^`]+)`", self.here)
        return [name for name in quoted if self.is_here and RECIPE.fullmatch(name)]


def sections() -> dict[str, list[CoverageRow]]:
    """Return the rows of each paper, by the heading of its section."""
    found: dict[str, list[CoverageRow]] = {}
    for part in PAGE.split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        table = [line for line in body.splitlines() if line.startswith("| ")][1:]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
        found[heading] = [CoverageRow(*row) for row in cells]
    return found


SECTIONS = sections()
ROWS = [row for rows in SECTIONS.values() for row in rows]
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.where)


@every_row
def test_a_row_says_where_something_is_or_why_it_is_not(row: CoverageRow) -> None:
    assert row.where and row.what
    if row.is_here:
        assert row.here and row.held_by, "a row of something that is here names a test"
    else:
        assert len(row.here.removeprefix(ABSENT).split()) >= FEWEST_WORDS and not row.held_by


@every_row
def test_recipes_of_a_row_are_there(row: CoverageRow) -> None:
    assert set(row.recipes) <= set(recipe_names())


@every_row
def test_commands_of_a_row_are_there(row: CoverageRow) -> None:
    known = {*declutr.__main__.COMMANDS, *OF_MODELS, *OF_ALLENNLP}
    assert set(re.findall(r"`declutr ([\w-]+)", row.here)) <= known


@every_row
def test_tests_of_a_row_are_there(row: CoverageRow) -> None:
    quoted = re.findall(r"`([^`]+)`", row.held_by)
    assert ", ".join(f"`{place}`" for place in quoted) == row.held_by
    for place in quoted:
        file, _, name = place.partition("::")
        path = ROOT / file
        assert file.startswith("tests/") and path.is_file(), place
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        assert not name or name in defined, place


def test_every_recipe_is_named() -> None:
    assert set(recipe_names()) == {name for row in ROWS for name in row.recipes}


def test_the_summary_counts_rows() -> None:
    summary = PAGE.partition("\n## ")[0]
    counted = re.findall(r"^\| \[(.+)\]\(\S+\) \| (\d+) \| (\d+) \|$", summary, re.MULTILINE)
    expected = [
        (heading, str(len(rows)), str(sum(not row.is_here for row in rows)))
        for heading, rows in SECTIONS.items()
    ]
    assert counted == expected
