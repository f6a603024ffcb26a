"""The recipes of this package: Jsonnet files that `allennlp train` takes, by name or by path.

They lie in the folder `training_config` at the top of a clone, and beside this file in a wheel.
A recipe's name is its path in that folder without `.jsonnet`: `declutr`, `sentences/simcse`.
"""

from __future__ import annotations

import difflib
from pathlib import Path

__all__ = ["MOVED", "new_name", "recipe_names", "recipe_path", "recipes_folder"]

FOLDER = "training_config"
SUFFIX = ".jsonnet"
MOVED = "// Moved to "
"""How a file begins that only imports a recipe from its new path, given in the rest of the line."""


class UnknownRecipe(ValueError):
    """Error of a name that no recipe has, or that several share."""


def recipes_folder() -> Path:
    """Return the folder of the recipes: that of the clone, or the one installed with the wheel."""
    installed = Path(__file__).parent / FOLDER
    return installed if installed.is_dir() else Path(__file__).parents[2] / FOLDER


def new_name(file: Path) -> str | None:
    """Return the name of the recipe that a file at an earlier path stands for, `None` for others.

    # Raises

    `OSError` : the file cannot be read.
    """
    with file.open(encoding="utf-8") as lines:
        first = lines.readline()
    if not first.startswith(MOVED):
        return None
    return first.removeprefix(MOVED).split()[0].rstrip(",;:").removesuffix(SUFFIX)


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted, those at the top first; earlier paths are left out."""
    folder = recipes_folder()
    files = [file for file in folder.rglob(f"*{SUFFIX}") if new_name(file) is None]
    names = [file.relative_to(folder).as_posix().removesuffix(SUFFIX) for file in files]
    return sorted(names, key=lambda name: ("/" in name, name))


def recipe_path(name: str | Path) -> Path:
    """Return the path of a recipe.

    # Parameters

    name : the path of a file, which is returned as it is; or the name of a recipe of this package,
        with or without its folder and `.jsonnet`: `simcse`, `sentences/simcse.jsonnet`.

    # Raises

    `UnknownRecipe` (a `ValueError`) : there is no such file, and no recipe has this name, or more
        than one.
    """
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    wanted = Path(name).as_posix().removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    folder = recipes_folder()
    earlier = folder / f"{wanted}{SUFFIX}"
    if earlier.is_file():
        wanted = new_name(earlier) or wanted
    names = recipe_names()
    found = [known for known in names if wanted in (known, known.rpartition("/")[2])]
    if wanted in found or len(found) == 1:
        return folder / f"{wanted if wanted in found else found[0]}{SUFFIX}"
    if found:
        raise UnknownRecipe(f"{name!s} is the name of several recipes: {', '.join(found)}.")
    raise UnknownRecipe(
        f"There is no recipe {str(name)!r}. Expected the path of a file, or a name that "
        f"`declutr recipes` lists{_nearest(wanted, names)}."
    )


def _nearest(wanted: str, names: list[str]) -> str:
    """Return `"; the nearest: ..."` with up to three names, or nothing when none is near."""
    by_last = {name.rpartition("/")[2]: name for name in names}
    last = wanted.rpartition("/")[2].lower()
    close = difflib.get_close_matches(last, by_last, n=3)
    return f"; the nearest: {', '.join(by_last[found] for found in close)}" if close else ""
