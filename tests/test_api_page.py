"""docs/API.md: the supported imports are those that work, and none of them is deprecated."""

import inspect
import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

import declutr
import declutr.objectives

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "API.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `((?:from|import) [^`]+)` \| (.+?) \| (.*?) ?\|$", PAGE, re.MULTILINE)


def imported(statement: str) -> dict[str, Any]:
    """What an import statement gives, by name; a deprecated name is an error."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        exec(statement, names)
    return {name: value for name, value in names.items() if name != "__builtins__"}


def has(found: Any, member: str) -> bool:
    """Whether a class has a member: of the class, a field, or set by its constructor."""
    of_constructor = rf"\bself\.{member}\b" if inspect.isclass(found) else "$^"
    return (
        hasattr(found, member)
        or member in getattr(found, "__annotations__", {})
        or re.search(of_constructor, inspect.getsource(found)) is not None
    )


@pytest.mark.parametrize(("statement", "members"), [(row[0], row[2]) for row in ROWS])
def test_every_import_works_and_has_its_members(statement: str, members: str) -> None:
    found = imported(statement)
    assert found
    missing = [
        member
        for member in re.findall(r"`(\w+)`", members)
        for value in found.values()
        if not has(value, member)
    ]
    assert missing == []


def test_every_row_is_read() -> None:
    assert len(ROWS) >= 45
    assert len(ROWS) == len(re.findall(r"^\| `(?:from|import) ", PAGE, re.MULTILINE))
    assert all(what[0].islower() and what[-1] not in "." for _, what, _ in ROWS)


def test_what_pages_import_is_supported() -> None:
    supported = {name for row in ROWS for name in imported(row[0])} | {*declutr.objectives.__all__}
    for page in (ROOT / "docs").glob("*.md"):
        code = page.read_text(encoding="utf-8")
        for statement in re.findall(r"^ *(from declutr\S* import .+)$", code, re.MULTILINE):
            assert set(imported(statement.strip())) <= supported, f"{page.name}: {statement}"


def test_what_the_package_exports_is_supported() -> None:
    prefix = "from declutr import "
    listed = {row[0].removeprefix(prefix) for row in ROWS if row[0].startswith(prefix)}
    assert set(declutr.__all__) == listed


def test_pages_list_what_the_package_has() -> None:
    """Losses and registered names on this page, deprecated names in docs/MIGRATION.md."""
    script = runpy.run_path(str(ROOT / "scripts" / "write_pages.py"))
    for page, expected in script["pages"]().items():
        found = page.read_text(encoding="utf-8")
        assert found == expected, f"{page.name}: run python scripts/write_pages.py"
    assert len(script["deprecated_names"]().splitlines()) > 150
    assert "`nt_xent_loss`" in PAGE and "| `Views` | `cutoff`, `dropout`, " in PAGE


def test_losses_are_functions() -> None:
    for name in declutr.objectives.__all__:
        assert callable(getattr(declutr.objectives, name)), name


def test_paths_of_the_original_package_are_listed() -> None:
    section = PAGE.split("## The original package")[1]
    for path in re.findall(r"`(declutr\.[\w.]+)`", section):
        module, _, name = path.rpartition(".")
        assert imported(f"import {path}" if name != "DeCLUTR" else f"from {module} import {name}")


def test_type_checkers_are_told_of_annotations() -> None:
    assert (Path(declutr.__file__).parent / "py.typed").is_file()
    assert '"declutr": ["py.typed"]' in (ROOT / "setup.py").read_text(encoding="utf-8")
