"""The site of `make docs`: its navigation has every page, and its docstrings keep every word."""

from pathlib import Path

import pytest
import yaml

from declutr.components import COMPONENTS
from tests.conftest import script

ROOT = Path(__file__).parent.parent


def places(part: object) -> set[str]:
    """The pages of a part of the navigation."""
    if isinstance(part, str):
        return {part}
    parts = part.values() if isinstance(part, dict) else part
    return set().union(*map(places, parts))  # type: ignore[call-overload]


def test_every_page_is_in_the_navigation() -> None:
    navigation = places(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    parts = {f"reference/{base.rpartition(':')[2]}.md" for base in COMPONENTS}
    parts.remove("reference/Subcommand.md")
    assert pages | parts | {"CONTRIBUTING.md", "CHANGELOG.md"} <= navigation


def test_sections_of_docstrings_become_those_of_google() -> None:
    pytest.importorskip("griffe", reason="comes with declutr[docs]")
    written = """Compute it.

It is quick.

# Parameters

first, second : views `(N, d)`, of which
    both are unit.
rate : a share.

# Returns

The loss,
a scalar.

# Raises

`ValueError` (at once) : if the views differ.
"""
    assert script("site_docstrings").in_google_style(written) == (
        "Compute it.\n\nIt is quick.\n\n"
        "Args:\n    first: views `(N, d)`, of which\n        both are unit.\n"
        "    second: views `(N, d)`, of which\n        both are unit.\n    rate: a share.\n\n"
        "Returns:\n    The loss, a scalar.\n\n"
        "Raises:\n    ValueError: if the views differ."
    )


def test_links_of_the_repository_lead_to_pages_of_the_site() -> None:
    pytest.importorskip("mkdocs", reason="comes with declutr[docs]")
    site_place = script("site_pages").site_place
    for file, place in {
        "README.md": "index.md",
        "docs/CPU.md": "CPU.md",
        "docs/benchmarks/step.svg": "benchmarks/step.svg",
        "examples/topic_classifier": "examples/topic_classifier/README.md",
        "training_config/declutr.jsonnet": "training_config/declutr.jsonnet.md",
    }.items():
        assert site_place(ROOT / file) == place
