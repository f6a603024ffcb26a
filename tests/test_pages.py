"""The pages of the repository name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_OURS = {"my_model.py", "model.py"}
"""A user's file, and a file of release 1.6 of which docs/GPU.md tells."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    known = [
        path.relative_to(ROOT).as_posix()
        for folder in ("declutr", "tests", "benchmarks", "scripts", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = set(re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))) - NOT_OURS
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in known)}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert not {link for link in links if not (page.parent / link).exists()}
