"""Hooks of mkdocs: pages from outside `docs`, links between them, and the reference.

The site has all Markdown of the repository, so that no link leads out of it. Files of other kinds
that pages link to, such as recipes, become pages that show them.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "training_config/**/*.md", "examples/**/*.md")
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
IMPORT = re.compile(r"from (declutr[\w.]*) import (\w+(?:, \w+)*)")
BELOW = "    options: { heading_level: 3 }"
SHOWN = {".jsonnet": "jsonnet", ".libsonnet": "jsonnet", ".py": "python", ".toml": "toml"}
"""Endings of files that are shown on pages of their own, with their languages."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not lie in `docs`."""
    for file in (path for pattern in OUTSIDE for path in sorted(ROOT.glob(pattern))):
        place = file.relative_to(ROOT).as_posix()
        files.append(File.generated(config, place, content=file.read_text(encoding="utf-8")))
    pages = [*DOCS.glob("*.md"), *[ROOT / file.src_uri for file in files if file.generated_by]]
    for file in sorted({target for page in pages for target in shown_files(page)}):
        place = file.relative_to(ROOT).as_posix()
        code = f"# {file.name}\n\n```{SHOWN[file.suffix]}\n{file.read_text()}\n```\n"
        files.append(File.generated(config, f"{place}.md", content=code))
    for place, content in reference():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Make links lead to pages of the site; they are written for the repository."""
    source = page.file.src_uri
    here = ROOT / source if page.file.generated_by else DOCS / source

    def on_site(match: re.Match[str]) -> str:
        target = (here.parent / match[2]).resolve()
        if not target.exists():  # of the site alone, or broken: mkdocs tells
            return match[0]
        return (
            match[1] + posixpath.relpath(site_place(target), posixpath.dirname(source)) + match[3]
        )

    return LINK.sub(on_site, markdown)


def site_place(file: Path) -> str:
    """Where a file of the repository lies on the site."""
    if file == ROOT / "README.md":
        return "index.md"
    if file.is_dir():
        file = file / "README.md"
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    place = file.relative_to(ROOT).as_posix()
    return f"{place}.md" if file.suffix in SHOWN else place


def shown_files(page: Path) -> Iterator[Path]:
    """The files that a page links to, and that have no page yet."""
    for _, link, _ in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        if target.is_file() and target.suffix in SHOWN:
            yield target


def reference() -> Iterator[tuple[str, str]]:
    """The pages of the reference: the supported imports, and the parts by registered name."""
    _, *sections = re.split(r"^## (.+)$", (DOCS / "API.md").read_text(), flags=re.MULTILINE)
    page = "# Supported imports in full\n\nThe list is in [API](../API.md).\n\n"
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        described = "".join(f"::: {path}\n{BELOW}\n\n" for path in imports(content))
        page += f"## {title}\n\n{described}" if described else ""
    yield "reference/imports.md", page
    for base, parts in components().items():
        name = base.rpartition(":")[2]
        head = f"# {name}\n\nThe types of `{name}` in a recipe, and their keys.\n\n"
        described = "".join(
            f"## `{kind}`\n\n::: {place.replace(':', '.')}\n{BELOW}\n\n"
            for kind, place in parts.items()
        )
        yield f"reference/{name}.md", head + described


def imports(section: str) -> Iterator[str]:
    """The places of what a section of docs/API.md names, each once."""
    found = [
        f"{module}.{name}"
        for module, names in IMPORT.findall(section)
        for name in names.split(", ")
    ]
    if several := re.search(r"^From `(declutr[\w.]*)`", section, re.MULTILINE):
        found += [
            f"{several[1]}.{name}" for name in re.findall(r"`(\w+)`", section[several.end() :])
        ]
    yield from dict.fromkeys(place for place in found if not place.endswith(".__version__"))


def components() -> dict[str, dict[str, str]]:
    """The table of registered names, read without importing AllenNLP."""
    file = ROOT / "declutr" / "bridge" / "component_names.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "COMPONENTS"
    )
    assert table is not None
    return {
        base: parts for base, parts in ast.literal_eval(table).items() if "subcommand" not in base
    }
