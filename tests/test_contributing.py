"""The walks of CONTRIBUTING.md, followed to the letter in a copy, end with tests that pass."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WALKS = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Adding something")[2]
STEP = re.compile(
    r"(New file) \*\*([\w/.]+)\*\*|^`([\w/.]+)`|^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
COPIED = ("declutr", "tests", "docs", "scripts", "training_config", "pyproject.toml", "README.md")

FINDS = "tests/test_components.py::test_every_name_finds_its_class"
CHECKED = [
    *("tests/objectives/pairs/test_decoupled.py", "tests/data/test_halves_reader.py"),
    "tests/models/test_views.py::test_shortened_texts_have_lost_their_ends",
    "tests/objectives/test_laws.py",
    "tests/test_objectives_page.py::test_every_registered_objective_is_listed",
    "tests/test_objectives_page.py::test_every_recipe_is_listed",
    f"{FINDS}[declutr.objectives.objective:Objective]",
    f"{FINDS}[declutr.models.views:Views]",
    "tests/test_components.py::test_objectives_are_imported_on_demand",
    "tests/test_recipes.py::test_recipe_trains_one_step[declutr_short]",
    *("-k", "decoupled or is_covered or not test_laws"),  # of the other objectives
]


def steps() -> Iterator[tuple[str, bool, str, str]]:
    """The file that each block of code changes, whether it is new, its language and the code."""
    file, new = "", False
    for begins, created, changed, language, code in STEP.findall(WALKS):
        if language:
            yield file, new, language, code
        else:
            file, new = created or changed, bool(begins)


def parts_of(diff: str) -> tuple[str, str]:
    """What a diff finds, and what it puts in its place."""
    lines = diff.splitlines()
    before, after = ("\n".join(line[1:] for line in lines if line[:1] != sign) for sign in "+-")
    return before, after


def test_each_step_changes_a_file_at_one_place() -> None:
    kinds = set()
    for file, new, language, code in steps():
        assert (ROOT / file).exists() != new, file
        assert max(map(len, code.splitlines())) <= (100 if new else 101), file
        kinds.add(language)
        if not new:
            before, _ = parts_of(code)
            assert language == "diff"
            assert (ROOT / file).read_text(encoding="utf-8").count(before) == 1, (file, before)
    assert kinds == {"python", "diff", "jsonnet"}


@pytest.mark.slow
def test_the_walks_end_with_tests_that_pass(tmp_path: Path) -> None:
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for file, new, _, code in steps():
        place = tmp_path / file
        text = code if new else place.read_text(encoding="utf-8").replace(*parts_of(code))
        place.write_text(text, encoding="utf-8")
    code = (
        "import runpy, sys, pytest\n"
        "runpy.run_path('scripts/write_pages.py', run_name='__main__')\n"
        "sys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *CHECKED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "`decoupled_loss`" in (tmp_path / "docs" / "API.md").read_text(encoding="utf-8")
