"""Copies of recipes in the user's own folder, with all files that they import."""

from __future__ import annotations

import re
from pathlib import Path

from declutr.recipes import recipe_path, recipes_folder

_COMMENT = re.compile(r"(?:^|(?<=\s))(?://|#).*", re.MULTILINE)
_IMPORT = re.compile(r"\bimport(?:str)?\s+[\"']([^\"']+)[\"']")


class WouldOverwrite(FileExistsError):
    """Error of a file in the way of a copy, with other content."""


def imported_files(recipe: Path) -> dict[Path, Path]:
    """Return a recipe and all files that it imports, directly or not, each with who imports it.

    The recipe comes first, imported by itself. Imports are found as Jsonnet finds them: beside the
    file, or else beside the folder of this package's recipes. What is nowhere is left out.
    """
    importers = {recipe.resolve(): recipe}
    files = list(importers)
    for file in files:  # it grows in between
        text = _COMMENT.sub("", file.read_text(encoding="utf-8", errors="replace"))
        for name in _IMPORT.findall(text):
            places = (folder / name for folder in (file.parent, recipes_folder().parent))
            imported = next((place.resolve() for place in places if place.is_file()), None)
            if imported is not None and imported not in importers:
                importers[imported] = file
                files.append(imported)
    return importers


def copy_recipe(name: str, folder: Path, overwrite: bool = False) -> list[Path]:
    """Copy a recipe of this package and all that it imports, so that the copy runs where it lies.

    Files keep their places below the folder, so that several recipes share what they import.

    # Parameters

    name : the name of the recipe, as `recipe_path` takes it.
    folder : where to; it is made if it is not there.
    overwrite : whether to replace files with other content.

    # Returns

    The paths of the copies, the recipe first.

    # Raises

    `WouldOverwrite` : a file with other content is in the way. Nothing has been copied then.
    `UnknownRecipe` : see `recipe_path`.
    """
    top = recipes_folder().resolve()
    sources = imported_files(recipe_path(name, of_package=True))
    copies = {folder / source.relative_to(top): source.read_bytes() for source in sources}
    for copy, content in copies.items():
        if not overwrite and copy.exists() and copy.read_bytes() != content:
            raise WouldOverwrite(
                f"'{copy}' exists with other content, so nothing was copied. Choose another "
                "folder with -o, or replace it with --force."
            )
    for copy, content in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    return list(copies)
